//! `--device`: from a word to a device.

use std::sync::Arc;

use super::cpu::CpuDevice;
use super::{Device, cuda};
use crate::error::{Error, Result};

/// Opens `auto`, `cpu`, `cuda` (the first GPU) or `cuda:N`.
///
/// `auto` takes the CPU where no GPU can be used, and its description says what was found.
pub fn open(spec: &str) -> Result<Arc<dyn Device>> {
    let wrong = || Error::usage(format!("there is no device {spec:?}")).next("devices: auto, cpu, cuda, cuda:N");
    match spec {
        "auto" => Ok(Arc::new(CpuDevice::new(cuda::probe().note()))),
        "cpu" => Ok(Arc::new(CpuDevice::new(""))),
        "cuda" => cuda::open(0),
        other => {
            let number = other.strip_prefix("cuda:").ok_or_else(wrong)?;
            cuda::open(number.parse().map_err(|_| wrong())?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Class;

    #[test]
    fn words_become_devices() {
        assert_eq!(open("cpu").unwrap().describe().name, "cpu");
        let auto = open("auto").unwrap().describe();
        assert_eq!(auto.name, "cpu");
        assert!(auto.detail.contains(&cuda::probe().note()), "{}", auto.detail);
        // Why it was chosen is no part of the arithmetic.
        assert_eq!(auto.kernel_plan, open("cpu").unwrap().describe().kernel_plan);
        for (spec, class) in [
            ("cuda", Class::Device),
            ("cuda:1", Class::Device),
            ("cuda:x", Class::Usage),
            ("gpu", Class::Usage),
            ("", Class::Usage),
        ] {
            assert_eq!(open(spec).err().unwrap().class, class, "{spec:?}");
        }
    }
}
