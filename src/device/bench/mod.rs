//! How fast a device is: whole passes, their stages, and what of it the device could do at best.
//!
//! The figures belong together: ceilings ([`ceilings`]), passes ([`passes`]) and stages ([`stages`]) are taken in one run, on one
//! device. Operations and bytes are counted ([`work`]) for what is really done: where only a sequence's first row is read,
//! the last layer computes no others on a GPU.

mod ceilings;
mod passes;
mod report;
mod shape;
mod stages;
#[cfg(all(test, feature = "emulated"))]
mod tests;
pub mod timed;
mod tune;
mod work;

use std::sync::Arc;

use super::cpu::CpuDevice;
use super::cuda::device::CudaDevice;
use super::cuda::runtime::{Chip, Runtime};
use super::select::{Choice, parse};
use super::{Device, cuda};
use crate::error::{Error, Result};
use crate::model::ModelFolder;
use crate::model::weights::Weights;
pub use report::{Ceilings, Pass, Report, Stage};
pub use shape::Shape;
pub use tune::{Candidate, Tuning};

/// What is measured.
#[derive(Debug, Clone)]
pub struct Options {
    /// `auto`, `cpu`, `cuda`, `cuda:N`.
    pub device: String,
    /// A model's own weights; without one, random weights of `shape`.
    pub model: Option<ModelFolder>,
    pub shape: Shape,
    /// Tokens of a sequence; 0: as turns and their questions are, see [`shape::mixed`].
    pub length_tokens: usize,
    /// Tokens of a pass: as many batches as they make. 0: a batch of the device (CPU: 2,048).
    pub pass_tokens: usize,
    /// How long each figure may take, at least three repetitions.
    pub seconds: f64,
    /// Times the kernels for matrix products as well, and proposes a table.
    pub tune: bool,
}

/// Measures.
///
/// # Errors
/// A device that cannot be used, a model that cannot be read, `tune` where there is nothing to choose (usage).
pub fn run(options: &Options) -> Result<Report> {
    let (device, runtime) = open(&options.device)?;
    measure(options, &device, runtime.as_ref())
}

/// Whether figures of a GPU's size would take hours: the emulation has three multiprocessors.
fn is_small(chip: &Chip) -> bool {
    chip.multiprocessors < 8
}

type Opened = (Arc<dyn Device>, Option<Arc<dyn Runtime>>);

/// A device, and what it runs on where its stages can be timed.
fn open(spec: &str) -> Result<Opened> {
    let opened = |name: &str, runtime: Arc<dyn Runtime>| -> Opened {
        (Arc::new(CudaDevice::new(name, Arc::clone(&runtime))), Some(runtime))
    };
    Ok(match parse(spec)? {
        Choice::Cpu => (Arc::new(CpuDevice::new("")), None),
        Choice::Cuda(ordinal) => opened(&format!("cuda:{ordinal}"), cuda::runtime(ordinal)?),
        Choice::Auto => match cuda::runtime(0) {
            Ok(runtime) => opened("cuda:0", runtime),
            Err(why) => (Arc::new(CpuDevice::new(why.what())), None),
        },
        #[cfg(feature = "emulated")]
        Choice::Emulated => opened("emulated", cuda::emulated::runtime()?),
    })
}

fn measure(options: &Options, device: &Arc<dyn Device>, runtime: Option<&Arc<dyn Runtime>>) -> Result<Report> {
    let tuned = match (options.tune, runtime) {
        (false, _) => None,
        (true, Some(runtime)) => Some(tune::tune(runtime, &options.shape.config, options.seconds)?),
        (true, None) => {
            let what = format!("{} has no kernels to choose from", device.describe().name);
            return Err(Error::usage(what).next("--tune is for a GPU: --device cuda"));
        }
    };
    let weights = match &options.model {
        Some(folder) => Weights::read(folder)?,
        None => options.shape.weights(),
    };
    let ceilings = match runtime {
        Some(runtime) => ceilings::gpu(runtime, options.seconds)?,
        None => ceilings::cpu(options.seconds),
    };
    let lengths = shape::lengths(options, &weights.config, device.describe().batch_tokens);
    let passes = passes::passes(device, &weights, &lengths, &ceilings, options.seconds)?;
    let stages = match runtime {
        Some(runtime) => stages::stages(runtime, &weights, &lengths, &ceilings, options.seconds)?,
        None => Vec::new(),
    };
    Ok(Report::new(device.describe(), &weights, options, ceilings, passes, stages, tuned))
}
