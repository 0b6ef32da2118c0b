//! The engine: a DataFusion session with our functions, and the lake's files as its tables.

mod functions;
mod inputs;
mod merge;
mod scan;
mod session;
mod tables;

pub use functions::{FUNCTIONS_VERSION, Functions, Models};
pub use session::{Settings, bind, collect, count, memory_bytes, session, session_over, stream};
pub(crate) use session::{calls, names_parameter};
pub use tables::{empty, files, input, refers_to, register, register_snapshot};
