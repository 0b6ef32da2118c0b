//! Named tensors of a model and its configuration.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::folder::{ModelFolder, read_json};
use super::registry::{Architecture, Pooling};
use super::stored::{self, Stored};
use crate::config::Precision;
use crate::error::{Error, Result};

/// What to do about a file that is damaged, or not the model's.
pub(super) const FETCH_AGAIN: &str = "the file is damaged or belongs to another model: fetch the model again";
const MOST_LAYERS: usize = 1024;

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

    /// A number of `config.json`, in bounds in which no product of two of them overflows.
    fn number(json: &Value, key: &str) -> Result<usize> {
        const MOST: u64 = 1 << 24;
        match json.get(key).and_then(Value::as_u64) {
            Some(n @ 1..=MOST) => Ok(n as usize),
            Some(n) => Err(Error::data(format!("{key} is {n}, but must be from 1 to {MOST}")).next(FETCH_AGAIN)),
            None => Err(Error::data(format!("{key} is missing or not a whole number")).next(FETCH_AGAIN)),
        }
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
        let number = |key| Self::number(json, key);
        if let Some(act) = json.get("hidden_act").and_then(Value::as_str)
            && act != "gelu"
        {
            return Err(Error::data(format!("hidden_act {act:?} is not supported")).next("supported: gelu"));
        }
        if let Some(kind) = json.get("position_embedding_type").and_then(Value::as_str)
            && kind != "absolute"
        {
            return Err(
                Error::data(format!("position_embedding_type {kind:?} is not supported")).next("supported: absolute")
            );
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
                .ok_or_else(|| Error::data("layer_norm_eps is missing or not a number").next(FETCH_AGAIN))?
                as f32,
            pad_token_id: match json.get("pad_token_id") {
                None | Some(Value::Null) => architecture.default_pad_token_id(),
                Some(id) => id.as_u64().map_or(usize::MAX, |id| id as usize),
            },
        };
        let wrong = if !config.hidden.is_multiple_of(config.heads) {
            "hidden_size is not a multiple of num_attention_heads"
        } else if config.layers > MOST_LAYERS {
            "num_hidden_layers is above 1,024"
        } else if config.pad_token_id >= config.vocab {
            "pad_token_id is not below vocab_size"
        } else {
            return Ok(config);
        };
        Err(Error::data(wrong).next(FETCH_AGAIN))
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
    /// By name, the type of the numbers that are not of a type that weights have.
    unread: HashMap<String, String>,
}

impl Weights {
    /// Reads all tensors of the folder's weights file, or of its shards.
    pub fn read(folder: &ModelFolder) -> Result<Self> {
        let Stored { tensors, unread } = stored::read(&folder.weights)?;
        Ok(Weights {
            config: folder.config.clone(),
            pooling: folder.pooling,
            precision: folder.precision,
            file: folder.weights.clone(),
            tensors,
            unread,
        })
    }

    /// Tensors that come from no file; `file` says in messages what they are.
    pub(super) fn of(
        config: ModelConfig,
        pooling: Pooling,
        precision: Precision,
        file: PathBuf,
        tensors: HashMap<String, Tensor>,
    ) -> Self {
        Weights { config, pooling, precision, file, tensors, unread: HashMap::new() }
    }

    /// The tensor of this name and shape.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Arc<[f32]>> {
        let place = || self.file.display().to_string();
        if let Some(dtype) = self.unread.get(name) {
            return Err(Error::data(format!("tensor {name} holds numbers of type {dtype}")).at(place()).next(
                "weights of type f32, f16 and bf16 are read: convert the file, or fetch the model in such a type",
            ));
        }
        let tensor = self
            .tensors
            .get(name)
            .ok_or_else(|| Error::data(format!("there is no tensor {name}")).at(place()).next(FETCH_AGAIN))?;
        if tensor.shape != shape {
            let what = format!("tensor {name} has shape {:?}, expected {shape:?}", tensor.shape);
            return Err(Error::data(what).at(place()).next("config.json and the weights belong to different models"));
        }
        Ok(Arc::clone(&tensor.values))
    }

    pub fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name) || self.unread.contains_key(name)
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

/// The folder of a seeded model that tests use.
#[cfg(test)]
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/models").join(name)
}

/// Writes tensors as f32, for tests.
#[cfg(test)]
pub(crate) fn write_safetensors<'a>(path: &Path, tensors: impl Iterator<Item = (&'a String, &'a Tensor)>) {
    let bytes: Vec<(&String, &Tensor, Vec<u8>)> =
        tensors.map(|(n, t)| (n, t, t.values.iter().flat_map(|x| x.to_le_bytes()).collect())).collect();
    let view =
        |t: &Tensor, b| safetensors::tensor::TensorView::new(safetensors::Dtype::F32, t.shape.clone(), b).unwrap();
    let views = bytes.iter().map(|(n, t, b)| (*n, view(t, b.as_slice())));
    safetensors::serialize_to_file(views, None, path).unwrap();
}

#[cfg(test)]
mod tests {
    use safetensors::Dtype;
    use safetensors::tensor::TensorView;

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
    fn a_missing_tensor_and_a_wrong_shape_name_file_and_tensor() {
        let w = read("bert_encoder");
        let e = w.tensor("encoder.layer.7.output.dense.weight", &[32, 48]).unwrap_err().to_string();
        assert!(e.contains("model.safetensors") && e.contains("encoder.layer.7.output.dense.weight"), "{e}");
        let e = w.tensor("encoder.layer.1.output.dense.weight", &[48, 32]).unwrap_err().to_string();
        assert!(e.contains("[32, 48]") && e.contains("[48, 32]") && e.contains("encoder.layer.1"), "{e}");
    }

    /// A file of one tensor beside the seeded model's other files.
    fn with_weights(bytes: &[u8]) -> (tempfile::TempDir, Weights) {
        let dir = tempfile::tempdir().unwrap();
        for f in ["config.json", "tokenizer.json"] {
            std::fs::copy(fixture("bert_encoder").join(f), dir.path().join(f)).unwrap();
        }
        std::fs::write(dir.path().join("model.safetensors"), bytes).unwrap();
        let weights = Weights::read(&resolve(dir.path().to_str().unwrap(), Path::new("")).unwrap()).unwrap();
        (dir, weights)
    }

    #[test]
    fn numbers_of_another_type_are_refused_by_name_where_they_are_weights() {
        for dtype in [Dtype::I8, Dtype::U8, Dtype::F64, Dtype::I64, Dtype::F8_E4M3] {
            let data = vec![0; dtype.bitsize() / 8 * 32];
            let weight = TensorView::new(dtype, vec![32], &data).unwrap();
            let ids = [0; 64 * 8];
            let ids = TensorView::new(Dtype::I64, vec![1, 64], &ids).unwrap();
            let tensors = [("bert.embeddings.LayerNorm.bias", weight), ("bert.embeddings.position_ids", ids)];
            let (_dir, weights) = with_weights(&safetensors::serialize(tensors, None).unwrap());
            let e = weights.tensor("embeddings.LayerNorm.bias", &[32]).unwrap_err().to_string();
            let parts = ["model.safetensors", "embeddings.LayerNorm.bias", &format!("{dtype:?}"), "f32, f16 and bf16"];
            assert!(parts.iter().all(|part| e.contains(part)), "{e}");
            assert!(weights.has("embeddings.LayerNorm.bias") && !weights.has("classifier.weight"));
        }
    }

    #[test]
    fn a_broken_config_names_the_key_and_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.json");
        let whole = std::fs::read_to_string(fixture("xlmr_encoder").join("config.json")).unwrap();
        let whole: serde_json::Map<String, Value> = serde_json::from_str(&whole).unwrap();
        let refuses = |text: &str, parts: &[&str]| {
            std::fs::write(&path, text).unwrap();
            let e = ModelConfig::read(&path).unwrap_err().to_string();
            let remedy = e.contains("fetch the model again") || e.contains("supported: ");
            assert!(e.contains("config.json") && remedy && parts.iter().all(|p| e.contains(p)), "{text}: {e}");
        };
        refuses("", &["not JSON"]);
        refuses(r#"{"model_type": "xlm-roberta", "vocab_"#, &["not JSON"]);
        refuses("[1, 2]", &["model_type"]);
        let numbers = [
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "max_position_embeddings",
            "type_vocab_size",
        ];
        for key in numbers {
            for value in [None, Some(0u64.into()), Some((-3).into()), Some("32".into()), Some(u64::MAX.into())] {
                let mut json = whole.clone();
                json.remove(key);
                json.extend(value.map(|v| (key.to_string(), v)));
                refuses(&Value::from(json).to_string(), &[key]);
            }
        }
        for (key, value) in [
            ("num_attention_heads", Value::from(5)),
            ("num_hidden_layers", 100_000.into()),
            ("layer_norm_eps", "small".into()),
            ("pad_token_id", 1_000_000.into()),
            ("hidden_act", "relu".into()),
            ("position_embedding_type", "relative_key".into()),
        ] {
            let mut json = whole.clone();
            json.insert(key.into(), value);
            refuses(&Value::from(json).to_string(), &[key]);
        }
    }

    /// XLM-RoBERTa keeps the rows up to its filler's for itself: 2 of 514 and of 8,194.
    #[test]
    fn of_a_position_table_the_rows_after_the_filler_are_usable() {
        let mut json = std::fs::read_to_string(fixture("xlmr_encoder").join("config.json"))
            .map(|text| serde_json::from_str::<Value>(&text).unwrap())
            .unwrap();
        for (rows, usable) in [(514, 512), (8194, 8192)] {
            json["max_position_embeddings"] = rows.into();
            for pad in [Value::from(1), Value::Null] {
                json["pad_token_id"] = pad;
                let config = ModelConfig::parse(&json).unwrap();
                assert_eq!((config.first_position(), config.usable_positions()), (2, usable));
            }
        }
        json["model_type"] = "bert".into();
        json["max_position_embeddings"] = 512.into();
        let config = ModelConfig::parse(&json).unwrap();
        assert_eq!((config.first_position(), config.usable_positions()), (0, 512));
    }

    #[test]
    fn operations_are_counted_from_the_configuration() {
        let config = read("bert_encoder").config;
        // 2 layers x (2 x (4 x 32 x 32 + 2 x 32 x 48) a token + 4 x 32 x 10 for attention), 10 tokens.
        assert_eq!(config.flops(&[10]), 10.0 * 2.0 * (2.0 * (4096.0 + 3072.0) + 1280.0));
        assert_eq!(config.flops(&[10, 10]), 2.0 * config.flops(&[10]));
    }
}
