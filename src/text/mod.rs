//! Text: what BM25 counts, the language of a text, o200k tokens, dates.
//!
//! Nothing here knows of turns, stores or tables; the SQL functions stand in [`sql`].

mod ascii;
pub mod dates;
pub mod language;
mod latin;
pub mod o200k;
mod pieces;
pub mod script;
pub mod sql;
pub mod stems;
pub mod words;

pub use language::{detect as detect_language, detect_together as detect_language_together};
pub use o200k::count_tokens;
pub use sql::functions;
pub use words::Tokenizer;
