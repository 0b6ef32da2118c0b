//! What a model is: where it comes from ([`registry`], [`fetch`]), which files it has ([`folder`]), its numbers
//! ([`weights`]) and the files that hold them (`stored`), how text becomes tokens ([`tokenizer`]) and what names it in the lake ([`hash`]).
//!
//! Nothing here computes: that is the device's.

pub mod fetch;
pub mod folder;
pub mod hash;
mod pytorch;
mod random;
pub mod registry;
mod shards;
mod stored;
pub mod tokenizer;
pub mod weights;

pub use fetch::{default_models_dir, fetch};
pub use folder::{ModelFolder, resolve};
pub use registry::{Architecture, KnownModel, Pooling, known, known_models};
pub use tokenizer::{Sequence, TextTokenizer, Tokenized};
pub use weights::{ModelConfig, Weights};
