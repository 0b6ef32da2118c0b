//! NVIDIA GPUs: looks for the driver. There are no kernels yet.

use cudarc::driver::{CudaContext, sys};

use crate::error::{Error, Result};

/// What the driver said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// There is no driver library on this machine.
    NoDriver,
    /// The driver is there but could not be used.
    Failed(String),
    /// Names of the GPUs, by number.
    Gpus(Vec<String>),
}

/// Asks the driver which GPUs there are. Opens nothing that stays open.
pub fn probe() -> Probe {
    // A missing library makes cudarc panic, so its presence is asked first.
    // SAFETY: loads the driver's library, whose initialisers are NVIDIA's.
    if !unsafe { sys::is_culib_present() } {
        return Probe::NoDriver;
    }
    let names = || {
        let count = CudaContext::device_count()?;
        (0..count).map(|i| CudaContext::new(i as usize)?.name()).collect::<std::result::Result<Vec<_>, _>>()
    };
    match names() {
        Ok(gpus) => Probe::Gpus(gpus),
        Err(e) => Probe::Failed(e.to_string()),
    }
}

impl Probe {
    /// For the description of the device that is used instead.
    pub fn note(&self) -> String {
        match self {
            Probe::NoDriver => "no NVIDIA driver found".into(),
            Probe::Failed(why) => format!("the NVIDIA driver failed: {why}"),
            Probe::Gpus(gpus) if gpus.is_empty() => "no NVIDIA GPU found".into(),
            Probe::Gpus(gpus) => format!("{} found, but this build has no CUDA kernels yet", gpus.join(", ")),
        }
    }

    /// Why GPU `ordinal` cannot be used.
    pub fn refuse(&self, ordinal: usize) -> Error {
        let next = "use --device cpu or --device auto";
        match self {
            Probe::Gpus(gpus) if !gpus.is_empty() && ordinal >= gpus.len() => {
                let what = format!("there is no GPU cuda:{ordinal}: the driver has {}", gpus.len());
                Error::device(what).next(next)
            }
            other => Error::device(other.note()).next(next),
        }
    }
}

/// Opens a GPU. Always an error as long as there are no kernels.
pub fn open(ordinal: usize) -> Result<std::sync::Arc<dyn super::Device>> {
    Err(probe().refuse(ordinal).at(format!("device cuda:{ordinal}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Class;

    #[test]
    fn a_machine_without_a_driver_is_told_so_and_does_not_panic() {
        let e = open(0).err().expect("there are no kernels");
        assert_eq!(e.class, Class::Device);
        assert!(e.to_string().contains("--device cpu"), "{e}");
    }

    #[test]
    fn every_finding_has_its_own_words() {
        let h200 = Probe::Gpus(vec!["NVIDIA H200".into()]);
        assert!(h200.note().contains("NVIDIA H200 found, but this build has no CUDA kernels yet"));
        assert!(h200.refuse(3).to_string().contains("cuda:3"));
        assert!(Probe::NoDriver.refuse(0).to_string().contains("no NVIDIA driver"));
        assert!(Probe::Failed("no permission".into()).refuse(0).to_string().contains("no permission"));
    }
}
