//! ranker
