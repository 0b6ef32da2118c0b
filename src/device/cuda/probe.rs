//! Which GPUs there are, and whether we can use them.

use cudarc::driver::{CudaContext, DriverError, result, sys};

use crate::error::{Error, Result};

/// The oldest compute capability that has the instructions: tensor cores for bf16 and asynchronous copies.
const OLDEST: (u32, u32) = (8, 0);
/// The oldest CUDA whose driver loads our compiled kernels, as drivers count.
const OLDEST_CUDA: i32 = 12_000;

/// What the driver said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// There is no driver library on this machine.
    NoDriver,
    /// The driver is there but could not be used.
    Failed(String),
    /// The driver is older than our kernels: the CUDA version that it has.
    OldDriver(i32),
    /// By number.
    Gpus(Vec<Gpu>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    pub name: String,
    pub capability: (u32, u32),
}

/// Asks the driver which GPUs there are. Opens nothing that stays open.
pub fn probe() -> Probe {
    // A missing library makes cudarc panic, so its presence is asked first.
    // SAFETY: loads the driver's library, whose initialisers are NVIDIA's.
    if !unsafe { sys::is_culib_present() } {
        return Probe::NoDriver;
    }
    match (driver_version(), gpus()) {
        (Ok(version), _) if version < OLDEST_CUDA => Probe::OldDriver(version),
        (Ok(_), Ok(gpus)) => Probe::Gpus(gpus),
        (Err(e), _) | (_, Err(e)) => Probe::Failed(e.to_string()),
    }
}

fn driver_version() -> std::result::Result<i32, DriverError> {
    let mut version = 0;
    result::init()?;
    // SAFETY: the driver writes a number.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result()?;
    Ok(version)
}

fn gpus() -> std::result::Result<Vec<Gpu>, DriverError> {
    let gpu = |i| {
        let context = CudaContext::new(i as usize)?;
        let (major, minor) = context.compute_capability()?;
        Ok(Gpu { name: context.name()?, capability: (major as u32, minor as u32) })
    };
    (0..CudaContext::device_count()?).map(gpu).collect()
}

impl Probe {
    /// Whether GPU `ordinal` can be used; if not, why.
    pub fn usable(&self, ordinal: usize) -> Result<()> {
        let why = match self {
            Probe::NoDriver => "no NVIDIA driver found".into(),
            Probe::Failed(why) => format!("the NVIDIA driver failed: {why}"),
            Probe::OldDriver(version) => format!(
                "the NVIDIA driver has CUDA {}.{}; our kernels need {}.{}: install a newer driver",
                version / 1000,
                version % 1000 / 10,
                OLDEST_CUDA / 1000,
                OLDEST_CUDA % 1000 / 10
            ),
            Probe::Gpus(gpus) if gpus.is_empty() => "no NVIDIA GPU found".into(),
            Probe::Gpus(gpus) => match gpus.get(ordinal) {
                None => format!("there is no GPU cuda:{ordinal}: the driver has {}", gpus.len()),
                Some(gpu) if gpu.capability < OLDEST => {
                    let ((major, minor), (least, _)) = (gpu.capability, OLDEST);
                    format!("{} has compute capability {major}.{minor}; our kernels need {least}.0 or newer", gpu.name)
                }
                Some(_) => return Ok(()),
            },
        };
        Err(Error::device(why).next("use --device cpu or --device auto"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(name: &str, capability: (u32, u32)) -> Gpu {
        Gpu { name: name.into(), capability }
    }

    #[test]
    fn every_finding_has_its_own_words() {
        let gpus = Probe::Gpus(vec![gpu("NVIDIA H200", (9, 0)), gpu("Tesla V100", (7, 0))]);
        assert!(gpus.usable(0).is_ok());
        let refused = |probe: &Probe, ordinal, parts: &[&str]| {
            let e = probe.usable(ordinal).unwrap_err().to_string();
            assert!(parts.iter().all(|p| e.contains(p)) && e.contains("--device cpu"), "{e}");
        };
        refused(&gpus, 1, &["Tesla V100", "7.0", "8.0"]);
        refused(&gpus, 3, &["cuda:3", "has 2"]);
        refused(&Probe::NoDriver, 0, &["no NVIDIA driver"]);
        refused(&Probe::Gpus(Vec::new()), 0, &["no NVIDIA GPU"]);
        refused(&Probe::Failed("no permission".into()), 0, &["no permission"]);
        refused(&Probe::OldDriver(11_040), 0, &["11.4", "12.0"]);
    }
}
