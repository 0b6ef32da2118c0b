//! Text to token ids. A text is tokenised once; a pair is put together from the ids of its two texts.
//!
//! The truncation rule is [`TRUNCATION_RULE`]: of a single text, the first tokens that fit are kept. Of a pair, the
//! second text (the turn) is cut; the first (the question) is cut only where it alone takes more than half of the model's
//! tokens and the turn has no room left, and then to that half or to what the turn leaves free.

use std::collections::HashMap;
use std::path::Path;

use rayon::prelude::*;
use tokenizers::Tokenizer;

use super::registry::Architecture;
use super::weights::ModelConfig;
use crate::error::{Error, Result};

/// Names the rule; part of every model's hash.
pub const TRUNCATION_RULE: &str = "single: head; pair: second first, first to half; 1";

/// One input of a model, special tokens included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sequence {
    pub tokens: Vec<u32>,
    /// Segment ids, one a token.
    pub types: Vec<u32>,
}

/// A sequence, and whether some of the text was cut to make it fit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tokenized {
    /// `None`: the text is null, blank or without a token. Such a text is never sent to a model.
    pub sequence: Option<Sequence>,
    pub truncated: bool,
}

/// A model's tokenizer with the model's limits.
#[derive(Debug)]
pub struct TextTokenizer {
    tokenizer: Tokenizer,
    architecture: Architecture,
    max_tokens: usize,
    begin: u32,
    separator: u32,
}

impl TextTokenizer {
    /// Reads `tokenizer.json`, which must be that of the model. Its own truncation and padding are switched off.
    pub fn read(path: &Path, config: &ModelConfig, max_tokens: usize) -> Result<Self> {
        Self::of(path, config, max_tokens).map_err(|e| e.at(path.display().to_string()))
    }

    fn of(path: &Path, config: &ModelConfig, max_tokens: usize) -> Result<Self> {
        let not = |e| Error::data("not a tokenizer").source(e).next("fetch the model again");
        let mut tokenizer = Tokenizer::from_file(path).map_err(not)?;
        tokenizer.with_truncation(None).map_err(|e| Error::internal("truncation").source(e))?;
        tokenizer.with_padding(None);
        let (begin, separator) = specials(&tokenizer, config)?;
        in_vocabulary(&tokenizer, config)?;
        if max_tokens < 8 {
            return Err(Error::data(format!("a model that reads {max_tokens} tokens is of no use"))
                .next("see max_position_embeddings in config.json and max_seq_length in sentence_bert_config.json"));
        }
        Ok(TextTokenizer { tokenizer, architecture: config.architecture, max_tokens, begin, separator })
    }

    pub fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// Sequences of single texts, in order.
    pub fn singles(&self, texts: &[Option<&str>]) -> Result<Vec<Tokenized>> {
        texts.par_iter().map(|text| Ok(self.single(&self.ids(*text)?))).collect()
    }

    /// Sequences of (question, turn) pairs, in order. Each distinct text is tokenised once.
    pub fn pairs(&self, pairs: &[(Option<&str>, Option<&str>)]) -> Result<Vec<Tokenized>> {
        let mut places = HashMap::new();
        let mut distinct = Vec::new();
        for text in pairs.iter().flat_map(|(a, b)| [a, b]) {
            places.entry(*text).or_insert_with(|| {
                distinct.push(*text);
                distinct.len() - 1
            });
        }
        let ids: Vec<Vec<u32>> = distinct.par_iter().map(|text| self.ids(*text)).collect::<Result<_>>()?;
        Ok(pairs.iter().map(|(a, b)| self.pair(&ids[places[a]], &ids[places[b]])).collect())
    }

    /// Ids of a text without special tokens; none where it is null or blank.
    fn ids(&self, text: Option<&str>) -> Result<Vec<u32>> {
        match text {
            Some(text) if !text.trim().is_empty() => {
                let encoding = self.tokenizer.encode_fast(text, false);
                Ok(encoding.map_err(|e| Error::data("a text cannot be tokenised").source(e))?.get_ids().to_vec())
            }
            _ => Ok(Vec::new()),
        }
    }

    fn single(&self, ids: &[u32]) -> Tokenized {
        if ids.is_empty() {
            return Tokenized::default();
        }
        let keep = ids.len().min(self.max_tokens - 2);
        let mut sequence = Sequence::default();
        sequence.extend(0, &[self.begin]);
        sequence.extend(0, &ids[..keep]);
        sequence.extend(0, &[self.separator]);
        Tokenized { sequence: Some(sequence), truncated: keep < ids.len() }
    }

    /// BERT: `[CLS] a [SEP] b [SEP]`, the second part of segment 1. XLM-RoBERTa: `<s> a </s></s> b </s>`.
    fn pair(&self, a: &[u32], b: &[u32]) -> Tokenized {
        if a.is_empty() || b.is_empty() {
            return Tokenized::default();
        }
        let (middle, second): (&[u32], u32) = match self.architecture {
            Architecture::Bert => (&[self.separator], 1),
            Architecture::XlmRoberta => (&[self.separator, self.separator], 0),
        };
        let room = self.max_tokens - 2 - middle.len();
        let (keep_a, keep_b) = shares(a.len(), b.len(), room, self.max_tokens / 2);
        let mut sequence = Sequence::default();
        sequence.extend(0, &[self.begin]);
        sequence.extend(0, &a[..keep_a]);
        sequence.extend(0, middle);
        sequence.extend(second, &b[..keep_b]);
        sequence.extend(second, &[self.separator]);
        Tokenized { sequence: Some(sequence), truncated: keep_a < a.len() || keep_b < b.len() }
    }
}

const NOT_THE_MODELS: &str = "tokenizer.json and config.json belong to different models: fetch the model again";

/// The ids of the tokens before and after a text. They and the filler must be those of the model.
fn specials(tokenizer: &Tokenizer, config: &ModelConfig) -> Result<(u32, u32)> {
    let [first, last, pad] = config.architecture.special_tokens();
    let given = tokenizer.encode("", true).map_err(|e| Error::data("not a tokenizer").source(e))?;
    let (&[begin, separator], true) = (given.get_ids(), given.get_tokens() == [first, last]) else {
        return Err(Error::data(format!(
            "an empty text gives the tokens {:?}, not {first} {last}",
            given.get_tokens()
        ))
        .next(NOT_THE_MODELS));
    };
    match tokenizer.token_to_id(pad) {
        Some(id) if id as usize != config.pad_token_id => {
            Err(Error::data(format!("{pad} is token {id}, but pad_token_id is {}", config.pad_token_id))
                .next(NOT_THE_MODELS))
        }
        _ => Ok((begin, separator)),
    }
}

/// Every token that the tokenizer can give has a row in the model's table.
fn in_vocabulary(tokenizer: &Tokenizer, config: &ModelConfig) -> Result<()> {
    let outside = tokenizer.get_vocab(true).into_iter().filter(|(_, id)| *id as usize >= config.vocab);
    match outside.min_by_key(|(_, id)| *id) {
        Some((token, id)) => {
            let what = format!("token {id}, {token:?}, is not in the model's vocabulary of {}", config.vocab);
            Err(Error::data(what).next(NOT_THE_MODELS))
        }
        None => Ok(()),
    }
}

/// How many tokens of a pair's texts fit into `room`: the second yields, the first only above `half`.
fn shares(a: usize, b: usize, room: usize, half: usize) -> (usize, usize) {
    let keep_a = a.min(half.max(room.saturating_sub(b)));
    (keep_a, b.min(room - keep_a))
}

impl Sequence {
    fn extend(&mut self, segment: u32, ids: &[u32]) {
        self.tokens.extend_from_slice(ids);
        self.types.resize(self.tokens.len(), segment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::weights::fixture;

    fn tokenizer(name: &str, architecture: Architecture, max_tokens: usize) -> TextTokenizer {
        let config = ModelConfig::read(&fixture(name).join("config.json")).unwrap();
        assert_eq!(config.architecture, architecture);
        TextTokenizer::read(&fixture(name).join("tokenizer.json"), &config, max_tokens).unwrap()
    }

    const QUESTION: &str = "What did I buy at the shop yesterday?";
    const TURN: &str = "I bought bread, tea and a red book on Monday.";

    #[test]
    fn pairs_are_what_the_tokenizer_itself_would_make() {
        for (name, architecture) in [("bert_scorer", Architecture::Bert), ("xlmr_scorer", Architecture::XlmRoberta)] {
            let t = tokenizer(name, architecture, 64);
            let made = t.pairs(&[(Some(QUESTION), Some(TURN))]).unwrap();
            let sequence = made[0].sequence.as_ref().unwrap();
            assert_eq!(sequence.tokens, t.tokenizer.encode((QUESTION, TURN), true).unwrap().get_ids());
            assert!(!made[0].truncated);
        }
    }

    #[test]
    fn segments_follow_the_architecture() {
        let t = tokenizer("bert_scorer", Architecture::Bert, 64);
        let made = t.pairs(&[(Some("who"), Some("dog cat"))]).unwrap();
        assert_eq!(made[0].sequence.as_ref().unwrap().types, [0, 0, 0, 1, 1, 1]);
        let t = tokenizer("xlmr_scorer", Architecture::XlmRoberta, 64);
        let made = t.pairs(&[(Some("who"), Some("dog cat"))]).unwrap();
        assert_eq!(made[0].sequence.as_ref().unwrap().types, [0; 7]);
    }

    #[test]
    fn the_turn_is_cut_and_the_question_is_whole() {
        let t = tokenizer("bert_scorer", Architecture::Bert, 32);
        let question = t.singles(&[Some(QUESTION)]).unwrap()[0].sequence.clone().unwrap().tokens;
        let long = TURN.repeat(20);
        let made = t.pairs(&[(Some(QUESTION), Some(&long)), (Some(QUESTION), Some("dog"))]).unwrap();
        assert_eq!(made.iter().map(|m| m.truncated).collect::<Vec<_>>(), [true, false]);
        let tokens = &made[0].sequence.as_ref().unwrap().tokens;
        assert_eq!(tokens.len(), 32);
        assert_eq!(tokens[..question.len()], question[..]);
        assert_eq!(*tokens.last().unwrap(), *question.last().unwrap());
    }

    #[test]
    fn shares_of_a_pair() {
        // Room 61 of 64 tokens, half 32.
        assert_eq!(shares(10, 20, 61, 32), (10, 20));
        assert_eq!(shares(10, 500, 61, 32), (10, 51));
        assert_eq!(shares(500, 500, 61, 32), (32, 29));
        assert_eq!(shares(500, 5, 61, 32), (56, 5));
        assert_eq!(shares(40, 500, 61, 32), (32, 29));
    }

    #[test]
    fn single_texts_keep_their_head() {
        let t = tokenizer("bert_encoder", Architecture::Bert, 16);
        let long = "dog cat ".repeat(50);
        let made = t.singles(&[Some(&long), Some("dog cat")]).unwrap();
        let (cut, whole) = (made[0].sequence.as_ref().unwrap(), made[1].sequence.as_ref().unwrap());
        assert!(made[0].truncated && !made[1].truncated);
        assert_eq!((cut.tokens.len(), whole.tokens.len()), (16, 4));
        assert_eq!(cut.tokens[..3], whole.tokens[..3]);
        assert_eq!(cut.tokens[15], whole.tokens[3]);
    }

    #[test]
    fn blank_texts_make_no_sequence() {
        let t = tokenizer("bert_encoder", Architecture::Bert, 64);
        for made in t.singles(&[None, Some(""), Some(" \n\t\u{3000}"), Some("\u{1}")]).unwrap() {
            assert_eq!(made, Tokenized::default());
        }
        for made in t.pairs(&[(None, Some("dog")), (Some("dog"), Some("  ")), (None, None)]).unwrap() {
            assert_eq!(made, Tokenized::default());
        }
    }

    #[test]
    fn a_file_that_is_no_tokenizer_is_named() {
        let config = ModelConfig::read(&fixture("bert_encoder").join("config.json")).unwrap();
        let e = TextTokenizer::read(&fixture("bert_encoder").join("config.json"), &config, 64).unwrap_err();
        assert!(e.to_string().contains("config.json"), "{e}");
    }

    #[test]
    fn a_tokenizer_of_another_model_is_refused() {
        let read = |name: &str, change: &dyn Fn(&mut ModelConfig)| {
            let mut config = ModelConfig::read(&fixture(name).join("config.json")).unwrap();
            change(&mut config);
            TextTokenizer::read(&fixture(name).join("tokenizer.json"), &config, 64).map_err(|e| e.to_string())
        };
        for name in ["bert_encoder", "xlmr_encoder"] {
            assert!(read(name, &|_| ()).is_ok());
            for (change, said) in [
                (&(|c: &mut ModelConfig| c.vocab -= 1) as &dyn Fn(&mut ModelConfig), "vocabulary"),
                (&|c| c.pad_token_id = 2, "pad_token_id is 2"),
                (
                    &|c| {
                        c.architecture = match c.architecture {
                            Architecture::Bert => Architecture::XlmRoberta,
                            Architecture::XlmRoberta => Architecture::Bert,
                        }
                    },
                    "an empty text gives",
                ),
            ] {
                let e = read(name, change).unwrap_err();
                assert!(e.contains("tokenizer.json") && e.contains(said) && e.contains("fetch the model again"), "{e}");
            }
        }
    }
}
