//! The kernels as machine code: committed beside their sources, so that neither a build nor a run needs CUDA's compilers.
//!
//! `kernels/build.py` makes them. A cubin runs on its own major version from its minor version on, and sm_90a on 9.0 alone;
//! any other chip gets PTX, which the driver compiles when it is first loaded, and keeps in its own cache.

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

/// The code of a module for a chip, as the driver loads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Image(&'static [u8]);

impl Image {
    pub fn of(name: &str, capability: (u32, u32)) -> Result<Self> {
        let module = MODULES.iter().find(|m| m.name == name);
        let module = module.ok_or_else(|| Error::internal(format!("there are no kernels named {name}")))?;
        let runs = |cubin: (u32, u32)| {
            cubin.0 == capability.0 && (cubin <= capability) && (cubin.0 < 9 || cubin == capability)
        };
        let cubins = module.cubins.iter().filter(|(cubin, _)| runs(*cubin));
        if let Some((_, image)) = cubins.max_by_key(|(cubin, _)| *cubin) {
            return Ok(Image(image));
        }
        let (major, minor) = capability;
        match module.ptx {
            Some(ptx) if capability >= (8, 0) => Ok(Image(ptx.as_bytes())),
            _ => Err(Error::device(format!("kernels/{name} does not run on compute capability {major}.{minor}"))
                .next("use --device cpu")),
        }
    }

    /// Text ends with a NUL, as the driver wants it.
    pub fn bytes(self) -> &'static [u8] {
        self.0
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
            let ptx = cubin(newer).bytes();
            assert!(ptx.starts_with(b"//") && ptx.ends_with(b"\0"), "{newer:?}");
        }
        assert!(Image::of("gemm_sm90", (9, 0)).is_ok());
        for other in [(8, 0), (10, 0), (7, 5)] {
            assert!(Image::of("gemm_sm90", other).unwrap_err().to_string().contains("does not run"), "{other:?}");
        }
        assert!(Image::of("gemm", (7, 5)).is_err());
    }
}
