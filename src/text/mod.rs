//! text
pub mod dates;
