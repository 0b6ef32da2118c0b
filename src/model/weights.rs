//! Named tensors of a model and its configuration.
//!
//! Tensors are read one after another, so a file is never in memory as a whole beside its f32 values. Names are given
//! without the architecture's prefix (`bert.`, `roberta.`), so that a device sees one set of names.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use candle_core::pickle::PthTensors;
use half::{bf16, f16};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde_json::Value;

use super::folder::{ModelFolder, read_json};
use super::registry::{Architecture, Pooling};
use crate::config::Precision;
use crate::error::{Context, Error, Result};

/// The numbers of `config.json` that a forward pass needs.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    pub architecture: Architecture,
    pub vocab: usize,
    pub hidden: usize,
    pub layers: usize,
    pub heads: usize,
    /// Width of the feed-forward part.
    pub intermediate: usize,
    /// Rows of the position table.
    pub positions: usize,
    /// Rows of the segment table.
    pub types: usize,
    pub layer_norm_eps: f32,
    pub pad_token_id: usize,
}

impl ModelConfig {
    /// Reads and checks `config.json`.
    pub fn read(path: &Path) -> Result<Self> {
        let place = path.display().to_string();
        let json = read_json(path)?.ok_or_else(|| Error::data("there is no config.json").at(place.clone()))?;
        Self::parse(&json).map_err(|e| e.at(place))
    }

    fn parse(json: &Value) -> Result<Self> {
        let architecture = match json.get("model_type").and_then(Value::as_str) {
            Some("bert") => Architecture::Bert,
            Some("xlm-roberta") => Architecture::XlmRoberta,
            other => {
                return Err(Error::data(format!("model_type {:?} is not supported", other.unwrap_or("(none)")))
                    .next("supported: bert, xlm-roberta"));
            }
        };
        let number = |key: &str| {
            let value = json.get(key).and_then(Value::as_u64).map(|n| n as usize);
            value.ok_or_else(|| Error::data(format!("{key} is missing or not a whole number")))
        };
        if let Some(act) = json.get("hidden_act").and_then(Value::as_str)
            && act != "gelu"
        {
            return Err(Error::data(format!("hidden_act {act:?} is not supported")).next("supported: gelu"));
        }
        if let Some(kind) = json.get("position_embedding_type").and_then(Value::as_str)
            && kind != "absolute"
        {
            return Err(Error::data(format!("position_embedding_type {kind:?} is not supported")));
        }
        let config = ModelConfig {
            architecture,
            vocab: number("vocab_size")?,
            hidden: number("hidden_size")?,
            layers: number("num_hidden_layers")?,
            heads: number("num_attention_heads")?,
            intermediate: number("intermediate_size")?,
            positions: number("max_position_embeddings")?,
            types: number("type_vocab_size")?,
            layer_norm_eps: json
                .get("layer_norm_eps")
                .and_then(Value::as_f64)
                .ok_or_else(|| Error::data("layer_norm_eps is missing"))? as f32,
            pad_token_id: json.get("pad_token_id").and_then(Value::as_u64).unwrap_or(0) as usize,
        };
        if config.heads == 0 || !config.hidden.is_multiple_of(config.heads) {
            return Err(Error::data("hidden_size is not a multiple of num_attention_heads"));
        }
        Ok(config)
    }

    /// The row of the position table for a text's first token.
    pub fn first_position(&self) -> usize {
        match self.architecture {
            Architecture::Bert => 0,
            Architecture::XlmRoberta => self.pad_token_id + 1,
        }
    }

    /// Tokens for which the position table has rows.
    pub fn usable_positions(&self) -> usize {
        self.positions.saturating_sub(self.first_position())
    }

    /// Floating-point operations of one forward pass over texts of these lengths: the matrix products, a multiplication
    /// and an addition counted as two.
    pub fn flops(&self, tokens_per_text: &[usize]) -> f64 {
        let (h, ffn, layers) = (self.hidden as f64, self.intermediate as f64, self.layers as f64);
        let per_token = 2.0 * (4.0 * h * h + 2.0 * h * ffn) * layers;
        tokens_per_text.iter().map(|&n| n as f64 * (per_token + 4.0 * h * n as f64 * layers)).sum()
    }
}

/// A tensor of f32, row-major.
#[derive(Debug, Clone)]
pub struct Tensor {
    pub shape: Vec<usize>,
    pub values: Arc<[f32]>,
}

/// A model's tensors and what is needed to run them.
#[derive(Debug, Clone)]
pub struct Weights {
    pub config: ModelConfig,
    pub pooling: Pooling,
    pub precision: Precision,
    /// The file that the tensors come from, for messages.
    pub file: PathBuf,
    tensors: HashMap<String, Tensor>,
}

impl Weights {
    /// Reads all tensors of the folder's weights file.
    pub fn read(folder: &ModelFolder) -> Result<Self> {
        let file = &folder.weights;
        let tensors = if file.extension().is_some_and(|e| e == "safetensors") {
            read_safetensors(file)
        } else {
            read_pytorch(file)
        };
        let tensors = tensors.map_err(|e| e.at(file.display().to_string()))?;
        Ok(Weights {
            config: folder.config.clone(),
            pooling: folder.pooling,
            precision: folder.precision,
            file: file.clone(),
            tensors,
        })
    }

    /// The tensor of this name and shape.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Arc<[f32]>> {
        let place = || self.file.display().to_string();
        let tensor =
            self.tensors.get(name).ok_or_else(|| Error::data(format!("there is no tensor {name}")).at(place()))?;
        if tensor.shape != shape {
            let what = format!("tensor {name} has shape {:?}, expected {shape:?}", tensor.shape);
            return Err(Error::data(what).at(place()).next("config.json and the weights belong to different models"));
        }
        Ok(Arc::clone(&tensor.values))
    }

    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Takes the model apart for a test or another device.
    pub fn tensors(&self) -> &HashMap<String, Tensor> {
        &self.tensors
    }

    /// Puts another tensor in the place of one.
    pub fn set(&mut self, name: &str, tensor: Tensor) {
        self.tensors.insert(name.to_string(), tensor);
    }
}

/// A name without the prefix under which a model with a head keeps its body.
fn short(name: &str) -> &str {
    ["bert.", "roberta."].iter().find_map(|p| name.strip_prefix(p)).unwrap_or(name)
}

fn read_safetensors(path: &Path) -> Result<HashMap<String, Tensor>> {
    let mut file = File::open(path).or_data("cannot open the file")?;
    let (start, metadata) = read_header(&mut file)?;
    let mut tensors = HashMap::new();
    for (name, info) in metadata.tensors() {
        if matches!(info.dtype, Dtype::I64 | Dtype::I32 | Dtype::BOOL | Dtype::U8) {
            continue; // position_ids and other buffers that can be computed
        }
        let tensor = read_tensor(&mut file, start, info).map_err(|e| e.at(format!("tensor {name}")))?;
        tensors.insert(short(&name).to_string(), tensor);
    }
    Ok(tensors)
}

/// Where the numbers begin, and what is where. The library's own reader wants the whole file in memory.
fn read_header(file: &mut File) -> Result<(u64, Metadata)> {
    const NOT: &str = "not a safetensors file, or only a part of one";
    let size = file.metadata().or_data("cannot read the file's size")?.len();
    let mut length = [0; 8];
    file.read_exact(&mut length).or_data(NOT)?;
    let length = u64::from_le_bytes(length);
    if length > size.saturating_sub(8) {
        return Err(Error::data(NOT));
    }
    let mut header = vec![0; length as usize];
    file.read_exact(&mut header).or_data(NOT)?;
    let metadata: Metadata = serde_json::from_slice(&header).or_data(NOT)?;
    let expected = 8 + length + metadata.data_len() as u64;
    if size != expected {
        return Err(Error::data(format!("the file has {size} bytes, but its header speaks of {expected}"))
            .next("the download may be incomplete: fetch the model again"));
    }
    Ok((8 + length, metadata))
}

fn read_tensor(file: &mut File, start: u64, info: &TensorInfo) -> Result<Tensor> {
    let (from, to) = info.data_offsets;
    let mut bytes = vec![0; to.checked_sub(from).ok_or_else(|| Error::data("its place is not one"))?];
    file.seek(SeekFrom::Start(start + from as u64)).or_data("cannot be read")?;
    file.read_exact(&mut bytes).or_data("cannot be read: the file is too short")?;
    let values = to_f32(info.dtype, &bytes)?;
    if values.len() != info.shape.iter().product::<usize>() {
        return Err(Error::data(format!("has {} values, not those of shape {:?}", values.len(), info.shape)));
    }
    Ok(Tensor { shape: info.shape.clone(), values })
}

fn to_f32(dtype: Dtype, bytes: &[u8]) -> Result<Arc<[f32]>> {
    let two = |b: &[u8]| [b[0], b[1]];
    Ok(match dtype {
        Dtype::F32 => bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
        Dtype::F16 => bytes.chunks_exact(2).map(|b| f16::from_le_bytes(two(b)).to_f32()).collect(),
        Dtype::BF16 => bytes.chunks_exact(2).map(|b| bf16::from_le_bytes(two(b)).to_f32()).collect(),
        other => return Err(Error::data(format!("numbers of type {other:?} are not supported"))),
    })
}

/// Reads a checkpoint of PyTorch with candle's reader, which builds tensors and runs nothing.
fn read_pytorch(path: &Path) -> Result<HashMap<String, Tensor>> {
    let open = |key| PthTensors::new(path, key).or_data("not a PyTorch checkpoint that can be read");
    let mut checkpoint = open(None)?;
    if checkpoint.tensor_infos().is_empty() {
        checkpoint = open(Some("state_dict"))?;
    }
    let mut tensors = HashMap::new();
    for name in checkpoint.tensor_infos().keys() {
        let cannot = || format!("tensor {name} cannot be read");
        let Some(tensor) = checkpoint.get(name).or_data(cannot())? else { continue };
        if tensor.dtype().is_int() {
            continue;
        }
        let shape = tensor.dims().to_vec();
        let flat = tensor.to_dtype(candle_core::DType::F32).and_then(|t| t.flatten_all()).or_data(cannot())?;
        let values: Vec<f32> = flat.to_vec1().or_data(cannot())?;
        tensors.insert(short(name).to_string(), Tensor { shape, values: values.into() });
    }
    Ok(tensors)
}

/// The folder of a seeded model that tests use.
#[cfg(test)]
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/models").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::folder::resolve;

    fn read(name: &str) -> Weights {
        let folder = resolve(fixture(name).to_str().unwrap(), Path::new("")).unwrap();
        Weights::read(&folder).unwrap()
    }

    #[test]
    fn f32_f16_bf16_and_pytorch_files_are_read() {
        for (name, head) in [
            ("bert_encoder", "encoder.layer.1.output.dense.weight"),
            ("bert_scorer", "classifier.weight"),
            ("xlmr_encoder", "embeddings.word_embeddings.weight"),
            ("xlmr_scorer", "classifier.out_proj.weight"),
        ] {
            let w = read(name);
            assert!(w.has(head), "{name}: {:?}", w.tensors().keys());
            assert!(w.tensors().values().all(|t| t.values.len() == t.shape.iter().product::<usize>()));
            let q = w.tensor("encoder.layer.0.attention.self.query.weight", &[32, 32]).unwrap();
            // The generator draws these with a standard deviation of 0.35.
            let spread = (q.iter().map(|v| v * v).sum::<f32>() / q.len() as f32).sqrt();
            assert!((0.3..0.4).contains(&spread), "{name}: {spread}");
        }
    }

    #[test]
    fn halves_are_read_by_their_definition() {
        // 1.5 = 0x3e00 in binary16 and 0x3fc0 in bfloat16; -2 = 0xc000 in both.
        assert_eq!(to_f32(Dtype::F16, &[0x00, 0x3e, 0x00, 0xc0]).unwrap()[..], [1.5, -2.0]);
        assert_eq!(to_f32(Dtype::BF16, &[0xc0, 0x3f, 0x00, 0xc0]).unwrap()[..], [1.5, -2.0]);
        assert!(to_f32(Dtype::F64, &[0; 8]).is_err());
    }

    #[test]
    fn a_missing_tensor_and_a_wrong_shape_name_file_and_tensor() {
        let w = read("bert_encoder");
        let e = w.tensor("encoder.layer.7.output.dense.weight", &[32, 48]).unwrap_err().to_string();
        assert!(e.contains("model.safetensors") && e.contains("encoder.layer.7.output.dense.weight"), "{e}");
        let e = w.tensor("encoder.layer.1.output.dense.weight", &[48, 32]).unwrap_err().to_string();
        assert!(e.contains("[32, 48]") && e.contains("[48, 32]") && e.contains("encoder.layer.1"), "{e}");
    }

    #[test]
    fn a_cut_or_foreign_file_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let whole = std::fs::read(fixture("bert_encoder").join("model.safetensors")).unwrap();
        let path = dir.path().join("model.safetensors");
        for bytes in [&whole[..whole.len() - 100], &whole[..200], b"PK\x03\x04 no safetensors here", &[]] {
            std::fs::write(&path, bytes).unwrap();
            assert!(read_safetensors(&path).is_err());
        }
        std::fs::write(&path, b"not a pickle").unwrap();
        assert!(read_pytorch(&path).is_err());
    }

    #[test]
    fn operations_are_counted_from_the_configuration() {
        let config = read("bert_encoder").config;
        // 2 layers x (2 x (4 x 32 x 32 + 2 x 32 x 48) a token + 4 x 32 x 10 for attention), 10 tokens.
        assert_eq!(config.flops(&[10]), 10.0 * 2.0 * (2.0 * (4096.0 + 3072.0) + 1280.0));
        assert_eq!(config.flops(&[10, 10]), 2.0 * config.flops(&[10]));
    }
}
