//! `--device`: from a word to a device.

use std::sync::Arc;

use super::cpu::CpuDevice;
use super::{Device, cuda};
use crate::error::{Error, Result};

/// What a word asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    Auto,
    Cpu,
    /// By number.
    Cuda(usize),
    #[cfg(feature = "emulated")]
    Emulated,
}

/// Reads `auto`, `cpu`, `cuda` (the first GPU) or `cuda:N`.
pub fn parse(spec: &str) -> Result<Choice> {
    let wrong = || Error::usage(format!("there is no device {spec:?}")).next("devices: auto, cpu, cuda, cuda:N");
    Ok(match spec {
        "auto" => Choice::Auto,
        "cpu" => Choice::Cpu,
        "cuda" => Choice::Cuda(0),
        #[cfg(feature = "emulated")]
        "emulated" => Choice::Emulated,
        other => {
            let number = other.strip_prefix("cuda:").ok_or_else(wrong)?;
            Choice::Cuda(number.parse().map_err(|_| wrong())?)
        }
    })
}

/// Opens the device that a word asks for.
///
/// `auto` takes the first GPU, and the CPU where that cannot be used; its description then says why.
pub fn open(spec: &str) -> Result<Arc<dyn Device>> {
    match parse(spec)? {
        Choice::Auto => match cuda::open(0) {
            Ok(device) => Ok(device),
            Err(why) => Ok(Arc::new(CpuDevice::new(why.what()))),
        },
        Choice::Cpu => Ok(Arc::new(CpuDevice::new(""))),
        Choice::Cuda(ordinal) => cuda::open(ordinal),
        #[cfg(feature = "emulated")]
        Choice::Emulated => Ok(cuda::emulated::open()?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Class;

    #[test]
    fn words_become_devices() {
        assert_eq!(open("cpu").unwrap().describe().name, "cpu");
        for (spec, class) in [("cuda:x", Class::Usage), ("gpu", Class::Usage), ("", Class::Usage)] {
            assert_eq!(open(spec).err().unwrap().class, class, "{spec:?}");
        }
        let auto = open("auto").unwrap().describe();
        for spec in ["cuda", "cuda:0"] {
            match open(spec) {
                Ok(device) => assert_eq!(device.describe().name, auto.name),
                Err(e) => {
                    assert_eq!((e.class, auto.name.as_str()), (Class::Device, "cpu"));
                    assert!(auto.detail.contains(e.what()) && e.to_string().contains("--device cpu"), "{e}");
                    // Why it was chosen is no part of the arithmetic.
                    assert_eq!(auto.kernel_plan, open("cpu").unwrap().describe().kernel_plan);
                }
            }
        }
    }
}
