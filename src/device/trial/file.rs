//! Operands in, results out: safetensors files.

use std::collections::HashMap;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::Value;

use crate::error::{Context, Error, Result};

/// A file's tensors, as bytes.
pub struct Operands {
    tensors: HashMap<String, Operand>,
    /// What the header says beside the tensors.
    pub metadata: HashMap<String, String>,
}

#[derive(Debug, Clone)]
pub struct Operand {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

impl Operands {
    pub fn read(path: &Path) -> Result<Self> {
        let place = || path.display().to_string();
        let bytes = std::fs::read(path).map_err(|e| Error::data("cannot be read").source(e).at(place()))?;
        let (_, header) =
            SafeTensors::read_metadata(&bytes).or_data("not a safetensors file").map_err(|e| e.at(place()))?;
        let metadata = header.metadata().clone().unwrap_or_default();
        let file = SafeTensors::deserialize(&bytes).or_data("not a safetensors file").map_err(|e| e.at(place()))?;
        let operand = |view: TensorView| Operand {
            dtype: view.dtype(),
            shape: view.shape().to_vec(),
            bytes: view.data().to_vec(),
        };
        let tensors = file.tensors().into_iter().map(|(name, view)| (name, operand(view))).collect();
        Ok(Operands { tensors, metadata })
    }

    #[cfg(all(test, feature = "emulated"))]
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.tensors.keys().cloned()
    }

    pub fn get(&self, name: &str) -> Result<&Operand> {
        self.tensors.get(name).ok_or_else(|| Error::data(format!("there is no tensor {name}")))
    }

    /// A tensor of bf16 as bytes, with its rows and columns.
    pub fn halves(&self, name: &str) -> Result<(&[u8], [usize; 2])> {
        let operand = self.get(name)?;
        let [rows, columns] = operand.shape[..] else { return Err(wrong(name, operand, "a matrix of bf16")) };
        if operand.dtype != Dtype::BF16 {
            return Err(wrong(name, operand, "a matrix of bf16"));
        }
        Ok((&operand.bytes, [rows, columns]))
    }

    pub fn floats(&self, name: &str) -> Result<Vec<f32>> {
        let operand = self.get(name)?;
        if operand.dtype != Dtype::F32 {
            return Err(wrong(name, operand, "f32"));
        }
        Ok(operand.bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
    }

    /// Whole numbers from 0 of any of the types that PyTorch writes.
    pub fn counts(&self, name: &str) -> Result<Vec<u32>> {
        let operand = self.get(name)?;
        let values: Vec<i64> = match operand.dtype {
            Dtype::I32 => {
                operand.bytes.chunks_exact(4).map(|b| i64::from(i32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect()
            }
            Dtype::U32 => {
                operand.bytes.chunks_exact(4).map(|b| i64::from(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect()
            }
            Dtype::I64 => {
                let number = |b: &[u8]| i64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]);
                operand.bytes.chunks_exact(8).map(number).collect()
            }
            _ => return Err(wrong(name, operand, "whole numbers")),
        };
        let fits = |n: i64| u32::try_from(n).map_err(|_| Error::data(format!("tensor {name} holds {n}")));
        values.into_iter().map(fits).collect()
    }
}

fn wrong(name: &str, got: &Operand, expected: &str) -> Error {
    Error::data(format!("tensor {name} is {:?} of shape {:?}; expected {expected}", got.dtype, got.shape))
}

/// Results by name.
#[derive(Default)]
pub struct Results {
    tensors: Vec<(String, Operand)>,
}

impl Results {
    pub fn put(&mut self, name: String, dtype: Dtype, shape: &[usize], bytes: Vec<u8>) {
        self.tensors.push((name, Operand { dtype, shape: shape.to_vec(), bytes }));
    }

    pub fn put_floats(&mut self, name: String, shape: &[usize], values: &[f32]) {
        self.put(name, Dtype::F32, shape, values.iter().flat_map(|v| v.to_le_bytes()).collect());
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        let mut views = Vec::new();
        for (name, operand) in &self.tensors {
            views.push((
                name.as_str(),
                TensorView::new(operand.dtype, operand.shape.clone(), &operand.bytes)
                    .or_internal("a result's shape")?,
            ));
        }
        safetensors::serialize_to_file(views, None, path)
            .map_err(|e| Error::data("cannot be written").source(e).at(path.display().to_string()))
    }
}

/// The list of cases in a file's header.
pub fn cases(operands: &Operands) -> Result<Vec<Value>> {
    let text = operands.metadata.get("cases").ok_or_else(|| Error::data("the header has no list of cases"))?;
    serde_json::from_str(text).or_data("the list of cases is not JSON")
}
