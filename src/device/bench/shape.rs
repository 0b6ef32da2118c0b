//! The models and the texts that a device is measured on.

use std::str::FromStr;

use super::Options;
use crate::error::{Error, Result};
use crate::model::registry::{Architecture, Pooling};
use crate::model::weights::{ModelConfig, Weights};

/// Rows of a random model's table of words: enough that gathering from it misses every cache, and a tenth of the memory of
/// XLM-RoBERTa's own. Nothing else in a pass depends on it.
const VOCABULARY: usize = 32_768;
/// A pass of a CPU: seconds, not minutes, with the large model.
const CPU_TOKENS: usize = 2_048;
/// The longest turn with its question that is scored: what cross-encoders are given.
const MIXED_MOST: usize = 480;
/// A question, and the marks between it and the turn.
const QUESTION_TOKENS: usize = 24;

/// A model without its weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Shape {
    pub name: String,
    pub config: ModelConfig,
    pub pooling: Pooling,
}

impl FromStr for Shape {
    type Err = Error;

    /// `xlmr-large` (bge-m3, bge-reranker-v2-m3) or `minilm` (all-MiniLM-L6-v2).
    fn from_str(name: &str) -> Result<Self> {
        let (architecture, pooling, hidden, layers, heads, intermediate, positions) = match name {
            "xlmr-large" => (Architecture::XlmRoberta, Pooling::Cls, 1024, 24, 16, 4096, 8194),
            "minilm" => (Architecture::Bert, Pooling::Mean, 384, 6, 12, 1536, 512),
            other => {
                let error = Error::usage(format!("--shape {other}: there is no such shape"));
                return Err(error.next("xlmr-large or minilm; --model takes any model"));
            }
        };
        let types = if architecture == Architecture::Bert { 2 } else { 1 };
        let config = ModelConfig {
            architecture,
            vocab: VOCABULARY,
            hidden,
            layers,
            heads,
            intermediate,
            positions,
            types,
            layer_norm_eps: 1e-5,
            pad_token_id: 1,
        };
        Ok(Shape { name: name.into(), config, pooling })
    }
}

impl Shape {
    /// Seeded weights.
    pub fn weights(&self) -> Weights {
        Weights::random(&self.config, self.pooling, 1)
    }
}

/// The lengths of a pass's sequences, in tokens: those that the options ask for, and a mixture beside a fixed length.
pub(super) fn lengths(options: &Options, config: &ModelConfig, batch_tokens: usize) -> Vec<(String, Vec<usize>)> {
    let cpu = batch_tokens <= CPU_TOKENS || options.device == "cpu";
    let tokens = match options.pass_tokens {
        0 if cpu => CPU_TOKENS.min(batch_tokens),
        0 => batch_tokens,
        tokens => tokens,
    };
    let most = config.usable_positions();
    let mut all = vec![("mixed".to_string(), mixed(tokens, most))];
    if options.length_tokens > 0 {
        let length = options.length_tokens.min(most);
        all.insert(0, (format!("{length} each"), vec![length; (tokens / length).max(1)]));
    }
    all
}

/// Turns as chats have them, each with a question: every other one a user's, around 40 tokens, the others an assistant's,
/// around 420, both log-normal; cut at 480. At least so many tokens in all, seeded.
pub(super) fn mixed(tokens: usize, most: usize) -> Vec<usize> {
    let mut state = 11u64;
    let mut even = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / (1u64 << 24) as f64
    };
    let (mut lengths, mut sum) = (Vec::new(), 0);
    while sum < tokens {
        // The sum of twelve even numbers: normal enough for lengths.
        let normal: f64 = (0..12).map(|_| even()).sum::<f64>() - 6.0;
        let (middle, spread) = if lengths.len() % 2 == 0 { (40f64, 0.7) } else { (420.0, 0.5) };
        let turn = ((middle.ln() + spread * normal).exp() as usize).clamp(4, MIXED_MOST);
        let length = (turn + QUESTION_TOKENS).min(most);
        sum += length;
        lengths.push(length);
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shapes_are_those_of_the_models() {
        let large: Shape = "xlmr-large".parse().unwrap();
        // 604 million operations a token without attention, as the model's configuration gives them.
        assert_eq!(large.config.flops(&[1]) - 4.0 * 1024.0 * 24.0, 603_979_776.0);
        assert_eq!(large.config.usable_positions(), 8192);
        let small: Shape = "minilm".parse().unwrap();
        assert_eq!((small.config.heads, small.config.hidden / small.config.heads), (12, 32));
        assert!("bert".parse::<Shape>().unwrap_err().to_string().contains("xlmr-large or minilm"));
    }

    #[test]
    fn mixed_lengths_have_two_middles_and_keep_to_the_model() {
        let lengths = mixed(200_000, 8192);
        assert!(lengths.iter().sum::<usize>() >= 200_000 && lengths.iter().all(|n| (28..=504).contains(n)));
        let median = |from: usize| {
            let mut own: Vec<usize> = lengths.iter().skip(from).step_by(2).copied().collect();
            own.sort_unstable();
            own[own.len() / 2]
        };
        assert!(median(0).abs_diff(64) <= 8 && median(1).abs_diff(444) <= 40, "{} {}", median(0), median(1));
        assert!(mixed(1000, 64).iter().all(|n| *n <= 64));
    }
}
