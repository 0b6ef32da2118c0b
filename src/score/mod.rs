//! Neural scoring: texts to unit vectors, (question, turn) pairs to logits, and their SQL functions.
//!
//! A text that is null, blank or without a token is never sent to a model. A result that is not a finite number is
//! marked by a null, never sorted as a number.

mod cross_encoder;
mod encoder;
mod loaded;
mod sql;

#[cfg(test)]
mod batch_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod types_tests;

pub use cross_encoder::{CrossEncoder, Scored};
pub use encoder::{Embedded, Encoder, Purpose, vector_bytes};
pub use sql::{
    cross_score_function, cross_score_signature_only, cross_score_type, embed_function, embed_signature_only,
    embed_type,
};
