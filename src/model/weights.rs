//! Named tensors of a model and its configuration.
pub struct Weights {}
