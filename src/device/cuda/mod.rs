//! NVIDIA GPUs: packed forward passes in our own kernels (`kernels/`), in bf16 with sums in f32.
//!
//! [`runtime`] is what a GPU does for us; [`driver`] is a real one, [`emulated`] the CPU in its place. [`kernels`] launches one
//! operation each, [`model`] holds the weights, [`forward`] is the order of launches, [`slot`] what a batch needs for itself,
//! [`device`] the seam to everything else. A row's bits do not depend on its batch: [`tiles`] chooses a kernel by a layer's
//! shape alone.
//!
//! A batch is put to the GPU without waiting for the one before it: its indices are copied on a stream of their own, its
//! launches follow in order. So the GPU is never idle for a launch, and CUDA graphs are left out: they would save some
//! microseconds a launch of the CPU's time, which runs ahead, and they need shapes that repeat, thus padding.

mod batch;
mod compile;
pub mod device;
mod driver;
#[cfg(feature = "emulated")]
pub mod emulated;
#[cfg(all(test, feature = "emulated"))]
pub mod emulated_tests;
mod forward;
mod images;
pub mod kernels;
#[cfg(all(test, feature = "emulated"))]
mod library_tests;
mod lt;
mod model;
mod nvrtc;
mod probe;
pub mod runtime;
mod self_check;
mod slot;
pub mod tiles;
pub mod top_k;

use std::sync::Arc;

use super::Device;
use crate::error::{Error, Result};
pub use probe::{Probe, probe};

/// Opens a GPU by its number, and has it compute something that the CPU can check.
pub fn open(ordinal: usize) -> Result<Arc<dyn Device>> {
    Ok(Arc::new(device::CudaDevice::new(format!("cuda:{ordinal}"), runtime(ordinal)?)))
}

/// A GPU that has been checked.
pub fn runtime(ordinal: usize) -> Result<Arc<dyn runtime::Runtime>> {
    let name = format!("cuda:{ordinal}");
    let opened = || {
        probe().usable(ordinal)?;
        let runtime: Arc<dyn runtime::Runtime> = Arc::new(driver::Driver::new(ordinal)?);
        // A device of its own: the check's models go with it.
        self_check::check(&device::CudaDevice::new(&name, Arc::clone(&runtime)))?;
        Ok(runtime)
    };
    opened().map_err(|e: Error| e.at(format!("device {name}")))
}
