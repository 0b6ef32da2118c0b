//! Checkpoints of PyTorch (since 1.6: a zip with a pickle). candle's unpickler builds values and runs nothing.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use candle_core::DType;
use candle_core::pickle::{Object, Stack, TensorInfo};
use zip::ZipArchive;

use super::stored::{Float, Stored, to_f32};
use super::weights::{FETCH_AGAIN, Tensor};
use crate::error::{Context, Error, Result};

type Archive = ZipArchive<BufReader<File>>;

const NOT: &str = "not a PyTorch checkpoint, or only a part of one";

pub fn read(path: &Path) -> Result<Stored> {
    let file = File::open(path).or_data("cannot open the file")?;
    let mut archive = ZipArchive::new(BufReader::new(file)).or_data(NOT).map_err(|e| e.next(FETCH_AGAIN))?;
    let pickle = archive.file_names().flatten().find(|name| name.ends_with("data.pkl")).map(|name| name.into_owned());
    let pickle = pickle.ok_or_else(|| Error::data(NOT).next(FETCH_AGAIN))?;
    let folder = Path::new(&pickle).with_extension("");
    let mut stored = Stored::default();
    for (name, value) in entries(&mut archive, &pickle).map_err(|e| e.next(FETCH_AGAIN))? {
        let text = name.clone().unicode().unwrap_or_default();
        let info = match value.into_tensor_info(name, &folder) {
            Ok(Some(info)) => info,
            // Not a tensor.
            Ok(None) => continue,
            // A type of numbers that candle does not know.
            Err(e) => {
                stored.skip(&text, e.to_string());
                continue;
            }
        };
        let float = match info.dtype {
            DType::F32 => Float::F32,
            DType::F16 => Float::F16,
            DType::BF16 => Float::Bf16,
            other => {
                stored.skip(&text, format!("{other:?}"));
                continue;
            }
        };
        let tensor = tensor(&mut archive, &info, float);
        stored.insert(&text, tensor.map_err(|e| e.at(format!("tensor {text}")).next(FETCH_AGAIN))?);
    }
    Ok(stored)
}

/// Names and values of the state: the pickled dictionary itself, or what it keeps under `state_dict`.
fn entries(archive: &mut Archive, pickle: &str) -> Result<Vec<(Object, Object)>> {
    let mut stack = Stack::empty();
    let mut reader = BufReader::new(archive.by_name(pickle).or_data(NOT)?);
    stack.read_loop(&mut reader).or_data(NOT)?;
    let Some(entries) = dictionary(stack.finalize().or_data(NOT)?) else { return Err(Error::data(NOT)) };
    let state = |key: &Object| *key == Object::Unicode("state_dict".into());
    match entries.iter().position(|(key, _)| state(key)) {
        Some(at) => dictionary(entries.into_iter().nth(at).expect("it was found").1).ok_or_else(|| Error::data(NOT)),
        None => Ok(entries),
    }
}

/// A dictionary, or the fields of a scripted module.
fn dictionary(object: Object) -> Option<Vec<(Object, Object)>> {
    match object {
        Object::Dict(entries) => Some(entries),
        Object::Build { args, .. } => dictionary(*args),
        _ => None,
    }
}

/// The tensor's numbers in row-major order, whatever its strides in the storage.
fn tensor(archive: &mut Archive, info: &TensorInfo, float: Float) -> Result<Tensor> {
    let mut bytes = Vec::new();
    let mut member = archive.by_name(&info.path).or_data("has no numbers in the file")?;
    // Reading to the end compares the checksum.
    member.read_to_end(&mut bytes).or_data("cannot be read")?;
    let storage = to_f32(float, &bytes);
    let (shape, strides) = (info.layout.dims(), info.layout.stride());
    // candle gives the offset in bytes.
    let first = info.layout.start_offset() / info.dtype.size_in_bytes();
    let last = shape
        .iter()
        .zip(strides)
        .try_fold(first, |last, (side, stride)| last.checked_add(side.saturating_sub(1).checked_mul(*stride)?));
    let count = shape.iter().try_fold(1usize, |n, side| n.checked_mul(*side));
    // Strides of zero could repeat a number without end; a storage is no smaller than its tensor.
    let (true, Some(count)) = (last.is_some_and(|l| l < storage.len()), count.filter(|n| *n <= storage.len())) else {
        return Err(Error::data(format!("of shape {shape:?} is larger than its {} numbers", storage.len())));
    };
    let mut values = Vec::with_capacity(count);
    let mut index = vec![0; shape.len()];
    for _ in 0..count {
        values.push(storage[first + index.iter().zip(strides).map(|(i, stride)| i * stride).sum::<usize>()]);
        for (i, side) in index.iter_mut().zip(shape).rev() {
            *i += 1;
            if *i < *side {
                break;
            }
            *i = 0;
        }
    }
    Ok(Tensor { shape: shape.to_vec(), values: values.into() })
}
