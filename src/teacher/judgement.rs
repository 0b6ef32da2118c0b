//! Pairs, what a teacher said of them, and how a judgement is written as a line.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::error::{Context, Error, Result};
use crate::system::hex;

/// Characters of an answer that are kept.
const KEPT: usize = 200;

/// A question and a turn's content, and the hashes by which the caller knows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    pub question: String,
    pub content: String,
    pub question_hash: [u8; 32],
    pub content_hash: [u8; 32],
}

/// What a teacher says of a pair.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// From 0 to 10.
    Grade(f64),
    /// The teacher answered, but not with a grade; the reason is one of few ([`super::grade`], [`super::expected`]).
    SetAside(String),
}

/// Tokens, as the server counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Usage {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        self.prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        self.completion_tokens = self.completion_tokens.saturating_add(other.completion_tokens);
    }
}

/// A pair that was answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// Of the messages and the teacher: [`super::Teacher::key`].
    pub key: [u8; 32],
    pub question_hash: [u8; 32],
    pub content_hash: [u8; 32],
    pub verdict: Verdict,
    /// As given, cut at 200 characters.
    pub answer: String,
    pub usage: Usage,
}

/// A judgement as it stands in a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: String,
    question: String,
    content: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    grade: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    set_aside: Option<String>,
    answer: String,
    prompt_tokens: u64,
    completion_tokens: u64,
}

impl Judgement {
    /// One line of JSON, with its newline.
    pub fn to_line(&self) -> Result<String> {
        let (grade, set_aside) = match &self.verdict {
            Verdict::Grade(grade) => (Some(*grade), None),
            Verdict::SetAside(reason) => (None, Some(reason.clone())),
        };
        let line = Line {
            key: hex(&self.key),
            question: hex(&self.question_hash),
            content: hex(&self.content_hash),
            grade,
            set_aside,
            answer: self.answer.clone(),
            prompt_tokens: self.usage.prompt_tokens,
            completion_tokens: self.usage.completion_tokens,
        };
        let mut text = serde_json::to_string(&line).or_internal("a judgement is JSON")?;
        text.push('\n');
        Ok(text)
    }

    pub fn from_line(line: &[u8]) -> Result<Judgement> {
        let line: Line = serde_json::from_slice(line).or_data("it is no judgement")?;
        let hash = |text: &str| from_hex(text).ok_or_else(|| Error::data(format!("{text:?} is no hash")));
        let verdict = match (line.grade, line.set_aside) {
            (Some(grade), None) if (0.0..=10.0).contains(&grade) => Verdict::Grade(grade),
            (None, Some(reason)) => Verdict::SetAside(reason),
            _ => return Err(Error::data("it has neither a grade from 0 to 10 nor a reason")),
        };
        Ok(Judgement {
            key: hash(&line.key)?,
            question_hash: hash(&line.question)?,
            content_hash: hash(&line.content)?,
            verdict,
            answer: line.answer,
            usage: Usage { prompt_tokens: line.prompt_tokens, completion_tokens: line.completion_tokens },
        })
    }
}

/// The part of an answer or of a server's message that is kept.
pub fn cut(text: &str) -> String {
    text.chars().take(KEPT).collect()
}

/// A hash from its 64 digits.
pub fn from_hex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut hash = [0; 32];
    for (byte, at) in hash.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn judgement(verdict: Verdict, answer: &str) -> Judgement {
        let usage = Usage { prompt_tokens: 431, completion_tokens: 2 };
        Judgement {
            key: [1; 32],
            question_hash: [2; 32],
            content_hash: [255; 32],
            verdict,
            answer: answer.into(),
            usage,
        }
    }

    #[test]
    fn a_line_says_what_it_is() {
        let line = judgement(Verdict::Grade(7.5), "7.5\n").to_line().unwrap();
        let (a, b, c) = ("01".repeat(32), "02".repeat(32), "ff".repeat(32));
        let head = format!("{{\"key\":\"{a}\",\"question\":\"{b}\",\"content\":\"{c}\",");
        assert_eq!(line, head + "\"grade\":7.5,\"answer\":\"7.5\\n\",\"prompt_tokens\":431,\"completion_tokens\":2}\n");
    }

    #[test]
    fn what_is_no_judgement_is_refused() {
        let good = judgement(Verdict::SetAside("empty".into()), "").to_line().unwrap();
        assert!(Judgement::from_line(good.as_bytes()).is_ok());
        let reason = "\"set_aside\":\"empty\"";
        for other in ["\"grade\":11", "\"grade\":-0.5", "\"grade\":null", "\"grade\":3,\"set_aside\":\"x\"", "\"x\":1"]
        {
            let bad = good.replace(reason, other);
            assert!(Judgement::from_line(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(Judgement::from_line(good.replace("0101", "01é").as_bytes()).is_err());
        assert!(Judgement::from_line(&good.as_bytes()[..good.len() - 3]).is_err());
        assert!(Judgement::from_line(b"").is_err());
    }

    #[test]
    fn answers_are_cut_between_characters() {
        assert_eq!(cut(&"é".repeat(300)), "é".repeat(200));
        assert_eq!(cut("7"), "7");
    }

    proptest! {
        /// Grades have six decimals at most, which JSON gives back to the bit.
        #[test]
        fn lines_are_read_as_they_were_written(
            millionths in 0u32..=10_000_000, aside in any::<Option<String>>(), answer in any::<String>(),
            key in any::<[u8; 32]>(), tokens in any::<u64>(),
        ) {
            let grade = Verdict::Grade(f64::from(millionths) / 1e6);
            let mut given = judgement(aside.map_or(grade, Verdict::SetAside), &answer);
            given.key = key;
            given.usage.completion_tokens = tokens;
            let line = given.to_line().unwrap();
            prop_assert_eq!(line.find('\n'), Some(line.len() - 1));
            prop_assert_eq!(Judgement::from_line(line.trim_end().as_bytes()).unwrap(), given);
        }
    }
}
