//! lake
