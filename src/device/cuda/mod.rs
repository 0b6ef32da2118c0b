//! NVIDIA GPUs: packed forward passes in our own kernels (`kernels/`), in bf16 with sums in f32.
//!
//! [`runtime`] is what a GPU does for us; [`driver`] is a real one, [`emulated`] the CPU in its place. [`kernels`] launches one
//! operation each, [`model`] holds the weights, [`forward`] is the order of launches, [`device`] the seam to everything else.
//! A row's bits do not depend on its batch: [`tiles`] chooses a kernel by a layer's shape alone.

mod batch;
pub mod device;
mod driver;
#[cfg(feature = "emulated")]
pub mod emulated;
#[cfg(all(test, feature = "emulated"))]
mod emulated_tests;
mod forward;
mod images;
pub mod kernels;
mod model;
mod probe;
pub mod runtime;
mod self_check;
pub mod tiles;
mod top_k;

use std::sync::Arc;

use super::Device;
use crate::error::{Error, Result};
pub use probe::{Probe, probe};

/// Opens a GPU by its number, and has it compute something that the CPU can check.
pub fn open(ordinal: usize) -> Result<Arc<dyn Device>> {
    let name = format!("cuda:{ordinal}");
    let opened = || {
        probe().usable(ordinal)?;
        let runtime: Arc<dyn runtime::Runtime> = Arc::new(driver::Driver::new(ordinal)?);
        // A device of its own: the check's models go with it.
        self_check::check(&device::CudaDevice::new(&name, Arc::clone(&runtime)))?;
        Ok(runtime)
    };
    let runtime = opened().map_err(|e: Error| e.at(format!("device {name}")))?;
    Ok(Arc::new(device::CudaDevice::new(name, runtime)))
}
