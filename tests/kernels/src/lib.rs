//! Checks of the CUDA kernels under `kernels/`, run on a CPU.
//!
//! The kernels are compiled by g++ into a shared library that runs each thread block as fibers (`kernels/emulation`). Here
//! the library is opened, every kernel is launched on seeded inputs, and what it wrote is compared with a scalar
//! reference in f64.
//!
//! Bottom up: [`memory`] is what a kernel reads and writes, [`emulation`] launches kernels, [`inputs`] makes the numbers,
//! [`reference`] says what is right, [`measure`] how far off a result is, [`checks`] are the named cases. `kernel-check`
//! (main.rs) runs them against one library. [`build`] compiles libraries for the tests, and [`trial`] runs `kernel-check` as
//! a process of its own, because a wrong kernel ends its process.
//!
//! The tests: `emulated.rs`, all kernels are right; `planted.rs`, each bug planted in a kernel is found, so the checks can
//! fail; `sanitized.rs`, no access out of bounds, no undefined behaviour and no race.

pub mod build;
pub mod checks;
pub mod emulation;
pub mod inputs;
pub mod measure;
pub mod memory;
pub mod reference;
pub mod trial;
