//! XLM-RoBERTa in every type of weights, at every length up to the last position and past it, against transformers.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use tokenizers::Tokenizer;

use super::testing::{batcher, folder, long_scorer};
use super::{CrossEncoder, Encoder, Purpose};
use crate::config::Precision;
use crate::device::cpu::CpuDevice;
use crate::device::{Device, Head, PackedBatch};
use crate::model::weights::fixture;
use crate::model::{Architecture, ModelConfig, TextTokenizer, Weights, resolve};

#[derive(Deserialize)]
struct Expected {
    tokens: Vec<u32>,
    vector: Vec<f32>,
    logit: f32,
}

#[test]
fn all_types_and_both_file_formats_give_the_numbers_of_transformers() {
    let from = fixture("xlmr_types");
    let expected: BTreeMap<String, Vec<Expected>> =
        serde_json::from_slice(&std::fs::read(from.join("expected.json")).unwrap()).unwrap();
    assert_eq!(expected.keys().collect::<Vec<_>>(), ["bf16", "f16", "f32"]);
    for (dtype, rows) in &expected {
        for (extension, file) in [("safetensors", "model.safetensors"), ("bin", "pytorch_model.bin")] {
            let dir = tempfile::tempdir().unwrap();
            for f in ["config.json", "tokenizer.json"] {
                std::fs::copy(from.join(f), dir.path().join(f)).unwrap();
            }
            std::fs::copy(from.join(format!("{dtype}.{extension}")), dir.path().join(file)).unwrap();
            let folder = resolve(dir.path().to_str().unwrap(), Path::new("")).unwrap();
            assert!(folder.weights.ends_with(file));
            let weights = Weights::read(&folder).unwrap();
            let device = CpuDevice::new("");
            let (embed, score) = (Head::Embed, Head::Score);
            let (embed, score) = (device.load(&weights, embed).unwrap(), device.load(&weights, score).unwrap());
            let mut batch = PackedBatch { starts: vec![0], ..PackedBatch::default() };
            for row in rows {
                batch.tokens.extend(&row.tokens);
                batch.starts.push(batch.tokens.len());
            }
            batch.types = vec![0; batch.tokens.len()];
            let (vectors, logits) = (device.forward(embed, &batch).unwrap(), device.forward(score, &batch).unwrap());
            assert_eq!((vectors.rows, logits.rows), (rows.len(), rows.len()));
            for (i, row) in rows.iter().enumerate() {
                let got = &vectors.values[i * vectors.columns..][..vectors.columns];
                let off = row.vector.iter().zip(got).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                let place = format!("{dtype}.{extension}, {} tokens", row.tokens.len());
                assert!(got.len() == row.vector.len() && off <= 1e-4, "{place}: off by {off:e}");
                assert!((row.logit - logits.values[i]).abs() <= 1e-4, "{place}: {} {}", row.logit, logits.values[i]);
            }
        }
    }
}

/// `<s> q </s></s> d </s>`, and of `d` what fits, put together here from the ids of the two texts.
#[test]
fn of_a_pair_the_turn_alone_is_cut() {
    let file = fixture("xlmr_scorer").join("tokenizer.json");
    let tokenizer = Tokenizer::from_file(&file).unwrap();
    let ids = |text: &str| tokenizer.encode(text, false).unwrap().get_ids().to_vec();
    let special = |token| tokenizer.token_to_id(token).unwrap();
    let (begin, end) = (special("<s>"), special("</s>"));
    let config = ModelConfig::read(&fixture("xlmr_scorer").join("config.json")).unwrap();
    assert_eq!(config.architecture, Architecture::XlmRoberta);
    let question = "when was the red train ?";
    let q = ids(question);
    for most in [17, 31, 32, 64] {
        let ours = TextTokenizer::read(&file, &config, most).unwrap();
        let room = most - 4 - q.len();
        for words in [1, 2, 3, room - 1, room, room + 1, 500] {
            let turn = vec!["dog"; words].join(" ");
            let d = ids(&turn);
            let kept = &d[..d.len().min(room)];
            let right = [&[begin], &q[..], &[end, end], kept, &[end]].concat();
            let made = ours.pairs(&[(Some(question), Some(&turn))]).unwrap().remove(0);
            assert_eq!(made.truncated, d.len() > room, "{most} {words}");
            assert_eq!(made.sequence.unwrap().tokens, right, "{most} {words}");
        }
    }
}

/// 8,194 rows of positions, two of them reserved: 8,192 tokens are read, and of 8,193 the last word is not.
#[test]
fn a_text_above_8192_tokens_is_cut_and_counted_and_reads_no_row_past_the_end() {
    let (_dir, folder) = long_scorer();
    assert_eq!((folder.config.positions, folder.max_tokens), (8194, 8192));
    let encoder = Encoder::load(&folder, &batcher()).unwrap();
    let text = |words: usize| {
        let words: Vec<&str> = (0..words).map(|i| ["dog", "cat", "book", "river", "tea"][i * i % 7 % 5]).collect();
        words.join(" ")
    };
    // With the two special tokens: 8,191, 8,192 and 8,193.
    let texts = [text(8189), text(8190), text(8191)];
    let got = encoder.embed(&texts.each_ref().map(|t| Some(t.as_str())), Purpose::Passage).unwrap();
    assert_eq!(got.iter().map(|e| e.truncated).collect::<Vec<_>>(), [false, false, true]);
    assert_eq!(encoder.progress().tokens(), 8191 + 8192 + 8192);
    let [shorter, whole, cut] = [0, 1, 2].map(|i| got[i].vector.clone().unwrap());
    assert_eq!(cut, whole, "what is cut is as if it had not been said");
    assert_ne!(shorter, whole);
}

#[test]
fn a_question_longer_than_the_model_leaves_its_turn_room() {
    for precision in [Precision::F32, Precision::Int8] {
        let scorer = CrossEncoder::load(&folder("xlmr_scorer").in_precision(precision), &batcher()).unwrap();
        let (question, turn) = ("where is my dog ".repeat(100), "the cat is in the garden ".repeat(100));
        let got =
            scorer.score(&[(Some(&question), Some(&turn)), (Some(&question), Some("tea")), (Some("who"), Some("tea"))]);
        let got = got.unwrap();
        assert_eq!(got.iter().map(|s| s.truncated).collect::<Vec<_>>(), [true, true, false]);
        assert!(got.iter().all(|s| s.logit.is_some()));
    }
}
