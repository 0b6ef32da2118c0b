//! The kernels as machine code: committed beside their sources, so that neither a build nor a run needs CUDA's compilers.
//!
//! `kernels/build.py` makes them. A cubin runs on its own major version from its minor version on, and sm_90a on 9.0 alone;
//! for any other chip the kernels are compiled on its machine ([`compile`]), or the driver gets PTX, which it compiles when it
//! is first loaded, and keeps in its own cache.

use std::borrow::Cow;

use super::compile;
use crate::error::{Error, Result};

/// The files of one kernel source: by compute capability the cubin, and the PTX.
struct Module {
    name: &'static str,
    cubins: &'static [((u32, u32), &'static [u8])],
    ptx: Option<&'static str>,
}

macro_rules! image {
    ($name:literal, $ending:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/cubins/", $name, ".", $ending))
    };
}

macro_rules! module {
    ($name:literal) => {
        Module {
            name: $name,
            cubins: &[
                ((8, 0), image!($name, "sm_80.cubin")),
                ((8, 9), image!($name, "sm_89.cubin")),
                ((9, 0), image!($name, "sm_90a.cubin")),
            ],
            ptx: Some(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/cubins/", $name, ".compute_80.ptx"))),
        }
    };
}

const MODULES: &[Module] = &[
    module!("attention"),
    Module { name: "attention_sm90", cubins: &[((9, 0), image!("attention_sm90", "sm_90a.cubin"))], ptx: None },
    module!("embed"),
    module!("gather"),
    module!("gemm"),
    Module { name: "gemm_sm90", cubins: &[((9, 0), image!("gemm_sm90", "sm_90a.cubin"))], ptx: None },
    module!("layer_norm"),
    module!("pool"),
    module!("score_head"),
    module!("top_k"),
];

/// The code of a module for a chip, as the driver loads it: machine code, or text that ends with a NUL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image(Cow<'static, [u8]>);

impl Image {
    /// What is committed for the chip, else what NVRTC makes for it, else PTX.
    pub fn of(name: &str, capability: (u32, u32)) -> Result<Self> {
        let module = module(name)?;
        if let Some(image) = module.cubin(capability) {
            return Ok(Image(Cow::Borrowed(image)));
        }
        if module.ptx.is_some()
            && let Some(nvrtc) = compile::compiler(capability)?
        {
            return Ok(Image(Cow::Owned(compile::cubin(nvrtc, name, capability)?)));
        }
        Self::ptx(module, capability)
    }

    fn ptx(module: &Module, capability: (u32, u32)) -> Result<Self> {
        let (major, minor) = capability;
        match module.ptx {
            Some(ptx) if capability >= (8, 0) => Ok(Image(Cow::Borrowed(ptx.as_bytes()))),
            _ => Err(Error::device(format!(
                "kernels/{} does not run on compute capability {major}.{minor}",
                module.name
            ))
            .next("use --device cpu")),
        }
    }

    /// Whether the driver compiles it.
    pub fn is_text(&self) -> bool {
        self.0.ends_with(b"\0") && !self.0.starts_with(b"\x7fELF")
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

fn module(name: &str) -> Result<&'static Module> {
    MODULES.iter().find(|m| m.name == name).ok_or_else(|| Error::internal(format!("there are no kernels named {name}")))
}

impl Module {
    fn cubin(&self, capability: (u32, u32)) -> Option<&'static [u8]> {
        let runs = |cubin: (u32, u32)| {
            cubin.0 == capability.0 && (cubin <= capability) && (cubin.0 < 9 || cubin == capability)
        };
        let cubins = self.cubins.iter().filter(|(cubin, _)| runs(*cubin));
        cubins.max_by_key(|(cubin, _)| *cubin).map(|(_, image)| *image)
    }
}

/// Who compiled a chip's kernels, for the kernel plan: nothing where they are committed, else `-nvrtc12.9` or `-ptx`.
pub fn origin(capability: (u32, u32)) -> String {
    if module("gemm").is_ok_and(|m| m.cubin(capability).is_some()) {
        return String::new();
    }
    match compile::compiler(capability) {
        Ok(Some(nvrtc)) => format!("-nvrtc{}.{}", nvrtc.version.0, nvrtc.version.1),
        _ => "-ptx".into(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::{Path, PathBuf};

    use serde::Deserialize;
    use sha2::{Digest, Sha256};

    use super::*;

    #[derive(Deserialize)]
    struct Manifest {
        files: BTreeMap<String, File>,
    }

    #[derive(Deserialize)]
    struct File {
        sha256: String,
        inputs: BTreeMap<String, String>,
    }

    fn kernels() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels")
    }

    fn hash(path: &Path) -> String {
        let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
    }

    /// Code that was compiled from older sources would run, and be wrong unseen.
    #[test]
    fn the_machine_code_is_that_of_the_sources() {
        let manifest = std::fs::read(kernels().join("cubins/manifest.json")).unwrap();
        let Manifest { files } = serde_json::from_slice(&manifest).unwrap();
        for (name, file) in &files {
            assert_eq!(hash(&kernels().join("cubins").join(name)), file.sha256, "{name}: run `make kernels`");
            for (input, expected) in &file.inputs {
                assert_eq!(&hash(&kernels().join(input)), expected, "{input} has changed: run `make kernels`");
            }
        }
        let committed = std::fs::read_dir(kernels().join("cubins")).unwrap();
        let committed: BTreeSet<String> = committed.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        let named: BTreeSet<String> = files.into_keys().chain(["manifest.json".to_string()]).collect();
        assert_eq!(committed, named);
    }

    #[test]
    fn every_source_is_a_module() {
        let sources = std::fs::read_dir(kernels()).unwrap().map(|e| e.unwrap().path());
        let names: BTreeSet<String> = sources
            .filter(|p| p.extension().is_some_and(|e| e == "cu"))
            .map(|p| p.file_stem().unwrap().to_str().unwrap().to_string())
            .collect();
        assert_eq!(names, MODULES.iter().map(|m| m.name.to_string()).collect());
    }

    #[test]
    fn a_chip_gets_the_newest_code_that_it_can_run() {
        let cubin = |capability| Image::of("gemm", capability).unwrap();
        assert_eq!(cubin((8, 0)), cubin((8, 6)));
        assert_ne!(cubin((8, 6)), cubin((8, 9)));
        assert_ne!(cubin((8, 9)), cubin((9, 0)));
        for newer in [(9, 1), (10, 0), (12, 0)] {
            let image = Image::ptx(module("gemm").unwrap(), newer).unwrap();
            assert!(image.bytes().starts_with(b"//") && image.is_text() && !cubin((9, 0)).is_text(), "{newer:?}");
        }
        assert_eq!([(8, 0), (8, 6), (8, 9), (9, 0)].map(origin), ["", "", "", ""]);
        assert_ne!(origin((12, 0)), "");
        assert!(Image::of("gemm_sm90", (9, 0)).is_ok());
        for other in [(8, 0), (10, 0), (7, 5)] {
            assert!(Image::of("gemm_sm90", other).unwrap_err().to_string().contains("does not run"), "{other:?}");
        }
        assert!(Image::of("gemm", (7, 5)).is_err());
    }
}
