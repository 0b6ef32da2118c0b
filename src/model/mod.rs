//! model
pub mod weights;
