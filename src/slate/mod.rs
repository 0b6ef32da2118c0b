//! slate
