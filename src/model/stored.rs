//! Tensors as files hold them: safetensors here, PyTorch in [`super::pytorch`], several files by [`super::shards`].
//!
//! Tensors are read one after another, so a file is never in memory as a whole beside its f32 values. Names are given
//! without the architecture's prefix (`bert.`, `roberta.`), so that a device sees one set of names.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use half::{bf16, f16};
use safetensors::tensor::{Metadata, TensorInfo};

use super::weights::{FETCH_AGAIN, Tensor};
use super::{pytorch, shards};
use crate::error::{Context, Error, Result};

/// What a file holds.
#[derive(Debug, Default)]
pub struct Stored {
    pub tensors: HashMap<String, Tensor>,
    /// By name, the type of tensors whose numbers are not read. Files carry buffers of whole numbers (`position_ids`)
    /// that no model needs; a weight of such a type is an error when it is asked for.
    pub unread: HashMap<String, String>,
}

/// The types that weights may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Float {
    F32,
    F16,
    Bf16,
}

/// Reads a weights file, or all shards of an index.
pub fn read(path: &Path) -> Result<Stored> {
    if shards::is_index(path) {
        return shards::read_all(path);
    }
    let stored =
        if path.extension().is_some_and(|e| e == "safetensors") { read_safetensors(path) } else { pytorch::read(path) };
    stored.map_err(|e| e.at(path.display().to_string()))
}

impl Stored {
    pub fn insert(&mut self, name: &str, tensor: Tensor) {
        self.tensors.insert(short(name).to_string(), tensor);
    }

    pub fn skip(&mut self, name: &str, dtype: impl Into<String>) {
        self.unread.insert(short(name).to_string(), dtype.into());
    }
}

/// A name without the prefix under which a model with a head keeps its body.
pub fn short(name: &str) -> &str {
    ["bert.", "roberta."].iter().find_map(|p| name.strip_prefix(p)).unwrap_or(name)
}

fn read_safetensors(path: &Path) -> Result<Stored> {
    let mut file = File::open(path).or_data("cannot open the file")?;
    let (start, metadata) = read_header(&mut file)?;
    let mut stored = Stored::default();
    for (name, info) in metadata.tensors() {
        let float = match info.dtype {
            safetensors::Dtype::F32 => Float::F32,
            safetensors::Dtype::F16 => Float::F16,
            safetensors::Dtype::BF16 => Float::Bf16,
            other => {
                stored.skip(&name, format!("{other:?}"));
                continue;
            }
        };
        let tensor = read_tensor(&mut file, start, info, float).map_err(|e| e.at(format!("tensor {name}")))?;
        stored.insert(&name, tensor);
    }
    Ok(stored)
}

/// Where the numbers begin, and what is where. The library's own reader wants the whole file in memory.
fn read_header(file: &mut File) -> Result<(u64, Metadata)> {
    const NOT: &str = "not a safetensors file, or only a part of one";
    let not = |e: Error| e.next(FETCH_AGAIN);
    let size = file.metadata().or_data("cannot read the file's size")?.len();
    let mut length = [0; 8];
    file.read_exact(&mut length).or_data(NOT).map_err(not)?;
    let length = u64::from_le_bytes(length);
    if length > size.saturating_sub(8) {
        return Err(Error::data(NOT).next(FETCH_AGAIN));
    }
    let mut header = vec![0; length as usize];
    file.read_exact(&mut header).or_data(NOT).map_err(not)?;
    let metadata: Metadata = serde_json::from_slice(&header).or_data(NOT).map_err(not)?;
    let expected = 8 + length + metadata.data_len() as u64;
    if size != expected {
        return Err(Error::data(format!("the file has {size} bytes, but its header speaks of {expected}"))
            .next("the download may be incomplete: fetch the model again"));
    }
    Ok((8 + length, metadata))
}

fn read_tensor(file: &mut File, start: u64, info: &TensorInfo, float: Float) -> Result<Tensor> {
    let (from, to) = info.data_offsets;
    let bytes = to.checked_sub(from).filter(|bytes| (*bytes as u64) <= file.metadata().map_or(0, |m| m.len()));
    let mut bytes = vec![0; bytes.ok_or_else(|| Error::data("its place is not one").next(FETCH_AGAIN))?];
    file.seek(SeekFrom::Start(start + from as u64)).or_data("cannot be read")?;
    file.read_exact(&mut bytes).or_data("cannot be read: the file is too short").map_err(|e| e.next(FETCH_AGAIN))?;
    let values = to_f32(float, &bytes);
    if Some(values.len()) != info.shape.iter().try_fold(1usize, |n, side| n.checked_mul(*side)) {
        return Err(
            Error::data(format!("has {} values, not those of shape {:?}", values.len(), info.shape)).next(FETCH_AGAIN)
        );
    }
    Ok(Tensor { shape: info.shape.clone(), values })
}

pub fn to_f32(float: Float, bytes: &[u8]) -> Arc<[f32]> {
    let two = |b: &[u8]| [b[0], b[1]];
    match float {
        Float::F32 => bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
        Float::F16 => bytes.chunks_exact(2).map(|b| f16::from_le_bytes(two(b)).to_f32()).collect(),
        Float::Bf16 => bytes.chunks_exact(2).map(|b| bf16::from_le_bytes(two(b)).to_f32()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::weights::fixture;

    #[test]
    fn halves_are_read_by_their_definition() {
        // 1.5 = 0x3e00 in binary16 and 0x3fc0 in bfloat16; -2 = 0xc000 in both.
        assert_eq!(to_f32(Float::F16, &[0x00, 0x3e, 0x00, 0xc0])[..], [1.5, -2.0]);
        assert_eq!(to_f32(Float::Bf16, &[0xc0, 0x3f, 0x00, 0xc0])[..], [1.5, -2.0]);
    }

    #[test]
    fn a_file_that_is_cut_anywhere_names_itself_and_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        for (model, file) in [("bert_encoder", "model.safetensors"), ("xlmr_encoder", "pytorch_model.bin")] {
            let whole = std::fs::read(fixture(model).join(file)).unwrap();
            let path = dir.path().join(file);
            let cuts = [0, 4, 8, 100, 2000, whole.len() / 2, whole.len() - 100, whole.len() - 1];
            let cut = cuts.iter().map(|n| whole[..*n].to_vec());
            for bytes in cut.chain([b"PK\x03\x04 neither of both".to_vec(), vec![0; 5000], vec![255; 5000]]) {
                std::fs::write(&path, &bytes).unwrap();
                let e = read(&path).unwrap_err().to_string();
                assert!(e.contains(file) && e.contains("fetch the model again"), "{} bytes: {e}", bytes.len());
            }
        }
    }

    /// A header whose tensors overlap, leave the file, or have shapes that are not theirs.
    #[test]
    fn a_header_that_lies_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.safetensors");
        let shapes = ["[4]", "[18446744073709551615, 2]", "[]", "[2, 1]"];
        let places = ["[0, 8]", "[8, 0]", "[0, 9000]", "[4, 12]", "[0, 18446744073709551615]"];
        for (shape, place) in shapes.iter().flat_map(|s| places.map(|p| (s, p))) {
            let header = format!(r#"{{"a":{{"dtype":"F32","shape":{shape},"data_offsets":{place}}}}}"#);
            let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 8]].concat();
            std::fs::write(&path, bytes).unwrap();
            let read = read(&path);
            assert_eq!(read.is_ok(), (*shape, place) == ("[2, 1]", "[0, 8]"), "{shape} {place}: {read:?}");
        }
    }
}
