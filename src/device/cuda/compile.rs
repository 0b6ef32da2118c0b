//! Kernels compiled on the machine that runs them, for chips that no committed cubin is for.
//!
//! Where NVRTC is there and knows the chip, it makes the chip's own code, which is kept in the user's cache; elsewhere the
//! driver compiles the committed PTX for compute capability 8.0. The two may round differently, so that the kernel plan names
//! which it is. NVRTC comes first: a chip's own code may use what PTX for 8.0 does not have, and NVRTC's version is known,
//! while a driver's compiler changes with the driver.

use std::path::Path;
use std::sync::LazyLock;

use sha2::{Digest, Sha256};

use super::nvrtc::{File, Nvrtc};
use crate::config::cache_folder;
use crate::error::{Error, Result};
use crate::system::hex;

macro_rules! file {
    ($name:literal) => {
        ($name, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/", $name)))
    };
}

/// What sources include. Headers of the emulation are none of them.
const HEADERS: &[File] = &[
    file!("attention.h"),
    file!("epilogue.h"),
    file!("kt.h"),
    file!("kt_hopper.h"),
    file!("quad.h"),
    file!("rows.h"),
    file!("tile.h"),
];

/// Sources that run on any chip from compute capability 8.0 on.
const SOURCES: &[File] = &[
    file!("attention.cu"),
    file!("embed.cu"),
    file!("gather.cu"),
    file!("gemm.cu"),
    file!("layer_norm.cu"),
    file!("pool.cu"),
    file!("score_head.cu"),
    file!("top_k.cu"),
];

/// Bytes of a digest, with which a file of the cache begins.
const DIGEST: usize = 32;

static FOUND: LazyLock<std::result::Result<Option<Nvrtc>, String>> =
    LazyLock::new(|| Nvrtc::find().map_err(|e| e.to_string()));

/// The compiler for a chip, if there is one that knows it.
///
/// # Errors
/// A library that the environment names and that cannot be used.
pub fn compiler(capability: (u32, u32)) -> Result<Option<&'static Nvrtc>> {
    match &*FOUND {
        Ok(found) => Ok(found.as_ref().filter(|nvrtc| nvrtc.knows(capability))),
        Err(why) => Err(Error::device(why.clone())),
    }
}

/// The machine code of `kernels/NAME.cu` for a chip, from the user's cache or compiled now.
pub fn cubin(nvrtc: &Nvrtc, name: &str, capability: (u32, u32)) -> Result<Vec<u8>> {
    let folder = cache_folder().map(|cache| cache.join("memslate/kernels"));
    cached(nvrtc, name, capability, folder.as_deref())
}

/// As [`cubin`], with a cache in `folder`, or none.
fn cached(nvrtc: &Nvrtc, name: &str, capability: (u32, u32), folder: Option<&Path>) -> Result<Vec<u8>> {
    let architecture = format!("sm_{}{}", capability.0, capability.1);
    let source = SOURCES.iter().find(|(file, _)| file.strip_suffix(".cu") == Some(name));
    let source = *source.ok_or_else(|| Error::device(format!("kernels/{name} does not run on {architecture}")))?;
    let file = folder.map(|f| f.join(format!("{name}.{architecture}.{}.cubin", key(nvrtc, source, &architecture))));
    if let Some(code) = file.as_deref().and_then(read) {
        return Ok(code);
    }
    let code = nvrtc.cubin(source, HEADERS, &architecture)?;
    if let Some(file) = file
        && let Err(e) = write(&file, &code)
    {
        tracing::warn!("the kernels' cache {} cannot be written: {e}", file.display());
    }
    Ok(code)
}

/// Of all that the code depends on.
fn key(nvrtc: &Nvrtc, source: File, architecture: &str) -> String {
    let mut hash = Sha256::new();
    for (name, text) in [source].iter().chain(HEADERS) {
        hash.update(format!("{name} {}\n{text}", text.len()));
    }
    hash.update(format!("{architecture} {:?}", nvrtc.version));
    hex(&hash.finalize()[..8])
}

/// A whole file of the cache; none for one that is missing or damaged.
fn read(file: &Path) -> Option<Vec<u8>> {
    let mut bytes = std::fs::read(file).ok()?;
    let code = bytes.split_off(DIGEST.min(bytes.len()));
    (Sha256::digest(&code)[..] == bytes[..]).then_some(code)
}

/// Beside its place, then renamed: a reader sees a whole file or none.
fn write(file: &Path, code: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let beside = file.with_extension(format!("tmp-{}", std::process::id()));
    std::fs::write(&beside, [&Sha256::digest(code)[..], code].concat())?;
    std::fs::rename(beside, file)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// The library that `make kernels-check` has installed from PyPI.
    fn nvrtc() -> Nvrtc {
        let cache = cache_folder().unwrap().join("memslate/nvrtc/nvidia/cuda_nvrtc/lib");
        let files =
            std::fs::read_dir(&cache).unwrap_or_else(|e| panic!("{}: {e}; run `make kernels-check`", cache.display()));
        let named = |p: &PathBuf| p.file_name().unwrap().to_string_lossy().starts_with("libnvrtc.so");
        let file = files.map(|e| e.unwrap().path()).find(named).expect("NVRTC in its folder");
        Nvrtc::open(&file.into_os_string()).unwrap()
    }

    #[test]
    fn every_source_compiles_for_chips_without_a_cubin_and_is_kept() {
        let (nvrtc, folder) = (nvrtc(), tempfile::tempdir().unwrap());
        let cache = Some(folder.path());
        for capability in [(8, 6), (10, 0), (12, 0)] {
            assert!(nvrtc.knows(capability), "{capability:?}");
        }
        assert!(!nvrtc.knows((7, 3)) && !nvrtc.knows((99, 0)));
        for (file, _) in SOURCES {
            let name = file.strip_suffix(".cu").unwrap();
            let code = cached(&nvrtc, name, (12, 0), cache).unwrap();
            // A cubin is an ELF file of machine 190, CUDA.
            assert_eq!((&code[..4], u16::from_le_bytes([code[18], code[19]])), (&b"\x7fELF"[..], 190));
            assert_ne!(code, cached(&nvrtc, name, (8, 6), None).unwrap());
        }
        let files: Vec<PathBuf> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().path()).collect();
        assert_eq!(files.len(), SOURCES.len());
        // What is kept is what is used: a file with another content under the right digest comes back as it is.
        let gather = files.iter().find(|f| f.to_string_lossy().contains("gather.sm_120.")).unwrap();
        write(gather, b"kept").unwrap();
        assert_eq!(cached(&nvrtc, "gather", (12, 0), cache).unwrap(), b"kept");
        // A damaged or shortened file is compiled again, and mended.
        for damaged in [&b"short"[..], &[7; 100]] {
            std::fs::write(gather, damaged).unwrap();
            let code = cached(&nvrtc, "gather", (12, 0), cache).unwrap();
            assert_eq!((&code[..4], read(gather)), (&b"\x7fELF"[..], Some(code.clone())));
        }
    }

    #[test]
    fn a_cache_that_cannot_be_written_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "in the way").unwrap();
        assert!(cached(&nvrtc(), "gather", (8, 6), Some(&file)).is_ok());
    }

    #[test]
    fn what_does_not_compile_says_what_and_for_which_chip() {
        let nvrtc = nvrtc();
        let e = nvrtc.cubin(("wrong.cu", "__global__ void f() { return 1 +; }"), &[], "sm_86").unwrap_err().to_string();
        assert!(
            e.contains("kernels/wrong.cu for sm_86") && e.contains("wrong.cu(1)") && e.contains("MEMSLATE_NVRTC=off"),
            "{e}"
        );
        let e = cached(&nvrtc, "gemm_sm90", (12, 0), None).unwrap_err().to_string();
        assert!(e.contains("gemm_sm90 does not run on sm_120"), "{e}");
        let e = Nvrtc::open(&"/no/such/libnvrtc.so".into()).err().unwrap().to_string();
        assert!(e.contains("/no/such/libnvrtc.so"), "{e}");
    }

    #[test]
    fn every_source_and_header_is_carried() {
        let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
        let files = std::fs::read_dir(kernels).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut there: Vec<String> =
            files.filter(|f| f.ends_with(".h") || (f.ends_with(".cu") && !f.ends_with("_sm90.cu"))).collect();
        there.sort();
        let mut carried: Vec<&str> = HEADERS.iter().chain(SOURCES).map(|(name, _)| *name).collect();
        carried.sort();
        assert_eq!(there, carried);
    }
}
