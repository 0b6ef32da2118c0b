//! The folder of a model without weights: words for tokens, and the shape that the seeded device's vectors have.

use std::collections::BTreeMap;
use std::path::Path;

use memslate::error::{Context, Result};
use serde_json::json;

use crate::support::language::Language;

/// Vectors' heads have this many values, as the encoders' have.
const HEAD: usize = 32;

/// Writes config.json, tokenizer.json and weights without a tensor into `folder`.
pub fn write(folder: &Path, language: &Language, dim: usize) -> Result<()> {
    let special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"];
    let words = special.into_iter().chain(language.words());
    let mut vocabulary = BTreeMap::new();
    for word in words {
        let next = vocabulary.len();
        vocabulary.entry(word).or_insert(next);
    }
    let config = json!({
        "model_type": "bert", "hidden_size": dim, "num_hidden_layers": 1, "num_attention_heads": dim.div_ceil(HEAD),
        "intermediate_size": 4 * dim, "hidden_act": "gelu", "max_position_embeddings": 512, "type_vocab_size": 2,
        "vocab_size": vocabulary.len(), "layer_norm_eps": 1e-12, "pad_token_id": 0,
    });
    let one = |token: &str, id: usize| json!({ "id": token, "ids": [id], "tokens": [token] });
    let around = |sequence: &str| {
        json!([
            { "SpecialToken": { "id": "[CLS]", "type_id": 0 } },
            { "Sequence": { "id": sequence, "type_id": 0 } },
            { "SpecialToken": { "id": "[SEP]", "type_id": 0 } },
        ])
    };
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null, "decoder": null,
        "pre_tokenizer": { "type": "WhitespaceSplit" },
        "post_processor": {
            "type": "TemplateProcessing", "single": around("A"), "pair": around("B"),
            "special_tokens": { "[CLS]": one("[CLS]", 2), "[SEP]": one("[SEP]", 3) },
        },
        "model": { "type": "WordLevel", "unk_token": "[UNK]", "vocab": vocabulary },
    });
    let header = b"{}";
    let mut weights = (header.len() as u64).to_le_bytes().to_vec();
    weights.extend(header);
    std::fs::create_dir_all(folder.join("1_Pooling")).or_data("the model's folder cannot be made")?;
    for (name, bytes) in [
        ("config.json", config.to_string().into_bytes()),
        ("tokenizer.json", tokenizer.to_string().into_bytes()),
        ("model.safetensors", weights),
        ("1_Pooling/config.json", json!({ "pooling_mode_mean_tokens": true }).to_string().into_bytes()),
    ] {
        std::fs::write(folder.join(name), bytes).or_data("the model cannot be written")?;
    }
    Ok(())
}
