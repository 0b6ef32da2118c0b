//! A device put to the test from outside: models and single kernels run on operands that a file holds, so that a program that
//! knows the right values can compare. `benches/device.sh` is that program; `memslate-device` the binary that it carries.

mod file;
mod forward;
mod kernels;
mod operations;
#[cfg(all(test, feature = "emulated"))]
mod tests;

pub use forward::{Forward, Timing, forward};
pub use kernels::kernels;
