//! A teacher: settings and a prompt, and all that follows from them without asking.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::answer::Answer;
use super::judgement::{Judgement, Usage, Verdict, cut};
use super::prompt::{Messages, Prompt};
use super::settings::{Mode, OTHER_MAX, Settings};
use super::{expected, grade};
use crate::error::{Error, Result};
use crate::system::hex;
use crate::text::count_tokens;

/// Of how pairs are rendered and grades are read. A change makes another teacher, so it is raised with each.
const READING: u32 = 1;
/// What a chat template may add to the texts: role markers, a standing system message, a date.
const TEMPLATE_TOKENS: u64 = 256;
/// Alternatives asked for: the most that the services give.
const ALTERNATIVES: u32 = 20;

/// Settings and a prompt, checked.
#[derive(Debug, Clone)]
pub struct Teacher {
    settings: Settings,
    extra: Map<String, Value>,
    prompt: Prompt,
    hash: String,
}

impl Teacher {
    pub fn new(settings: Settings, prompt: Prompt) -> Result<Self> {
        settings.check()?;
        let extra = settings.extra()?;
        let (system, user) = prompt.texts();
        let says = json!({
            "reading": READING, "model": settings.model, "mode": settings.mode.name(), "max_tokens": settings.max_answer(),
            "temperature": settings.temperature, "seed": settings.seed, "extra": extra, "system": system, "user": user,
        });
        let hash = hex(&Sha256::digest(canonical(&says).as_bytes()));
        Ok(Teacher { settings, extra, prompt, hash })
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Hex SHA-256 of all that a grade depends on: model, mode, decoding, `extra`, the prompt's texts. Not of where the
    /// server is, with which key or how fast it is asked.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// The model and the start of the hash, for people.
    pub fn name(&self) -> String {
        format!("{}@{}", self.settings.model, &self.hash[..8])
    }

    pub fn render(&self, question: &str, turn: &str) -> Messages {
        self.prompt.render(question, turn)
    }

    /// By what a pair's judgement is known: SHA-256 of the teacher's hash and of the messages.
    pub fn key(&self, m: &Messages) -> [u8; 32] {
        let length = (m.system.len() as u64).to_le_bytes();
        let hash = Sha256::new().chain_update(&self.hash).chain_update(length);
        hash.chain_update(&m.system).chain_update(&m.user).finalize().into()
    }

    /// The body of a chat completion request.
    pub fn body(&self, m: &Messages) -> Value {
        let mut body = self.extra.clone();
        let mut messages = Vec::with_capacity(2);
        if !m.system.is_empty() {
            messages.push(json!({"role": "system", "content": m.system}));
        }
        messages.push(json!({"role": "user", "content": m.user}));
        body.insert("model".into(), self.settings.model.clone().into());
        body.insert("messages".into(), messages.into());
        if !body.contains_key(OTHER_MAX) {
            body.insert("max_tokens".into(), self.settings.max_tokens.into());
        }
        body.insert("temperature".into(), self.settings.temperature.into());
        if let Some(seed) = self.settings.seed {
            body.insert("seed".into(), seed.into());
        }
        if self.settings.mode == Mode::Expected {
            body.insert("logprobs".into(), true.into());
            body.insert("top_logprobs".into(), ALTERNATIVES.into());
        }
        Value::Object(body)
    }

    /// What a request costs at most: a byte-level vocabulary makes no more tokens than there are bytes.
    pub fn most_cost(&self, m: &Messages) -> f64 {
        self.cost(Usage {
            prompt_tokens: (m.system.len() + m.user.len()) as u64 + TEMPLATE_TOKENS,
            completion_tokens: self.settings.max_answer().into(),
        })
    }

    pub fn cost(&self, usage: Usage) -> f64 {
        let Settings { prompt_price, completion_price, .. } = self.settings;
        (usage.prompt_tokens as f64 * prompt_price + usage.completion_tokens as f64 * completion_price) / 1e6
    }

    /// Whether anything has a price.
    pub fn has_prices(&self) -> bool {
        self.settings.prompt_price > 0.0 || self.settings.completion_price > 0.0
    }

    /// What an answer says. It is an error if the answer lacks what this mode reads: so will all others.
    pub fn verdict(&self, answer: &Answer) -> Result<Verdict> {
        if answer.refused {
            return Ok(Verdict::SetAside(grade::REFUSED.into()));
        }
        let read = match self.settings.mode {
            Mode::Greedy => grade::read(&answer.text),
            Mode::Expected if answer.text.trim().is_empty() => Err(grade::EMPTY),
            Mode::Expected => {
                let tokens = answer.tokens.as_deref().filter(|t| !t.is_empty()).ok_or_else(no_logprobs)?;
                expected::read(&answer.text, tokens).ok_or_else(no_logprobs)?
            }
        };
        Ok(read.map_or_else(|reason| Verdict::SetAside(reason.into()), Verdict::Grade))
    }

    /// The tokens of a request and its answer, and whether they are estimated, as the server counts none: in o200k tokens,
    /// which are not the server's, of the messages, where they are at hand, and of the answer.
    pub fn usage(&self, m: Option<&Messages>, answer: &Answer) -> (Usage, bool) {
        let estimate = || Usage {
            prompt_tokens: m.map_or(0, |m| count_tokens(&m.system) + count_tokens(&m.user)) as u64,
            completion_tokens: count_tokens(&answer.text) as u64,
        };
        (answer.usage.unwrap_or_else(estimate), answer.usage.is_none())
    }

    /// The judgement of a pair that was answered.
    pub fn judge(&self, of: &Subject, answer: &Answer, usage: Usage) -> Result<Judgement> {
        Ok(Judgement {
            key: of.key,
            question_hash: of.question_hash,
            content_hash: of.content_hash,
            verdict: self.verdict(answer)?,
            answer: cut(&answer.text),
            usage,
        })
    }
}

/// A pair by its hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subject {
    pub key: [u8; 32],
    pub question_hash: [u8; 32],
    pub content_hash: [u8; 32],
}

fn no_logprobs() -> Error {
    Error::usage("mode = \"expected\" reads log-probabilities, and the server's answer holds none")
        .at("teacher.mode")
        .next("ask a server that gives top_logprobs (vLLM and SGLang do), or set mode = \"greedy\"")
}

/// JSON with the keys of every object in order, whatever order the maps keep.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            let entries = entries.iter().map(|(key, v)| format!("{}:{}", json!(key), canonical(v)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::teacher::testing::{prompt, settings};

    fn teacher(more: &str) -> Teacher {
        Teacher::new(settings("http://h/v1", more), prompt()).unwrap()
    }

    #[test]
    fn the_hash_is_of_what_a_grade_depends_on() {
        let hash = |more: &str| teacher(more).hash().to_string();
        let plain = hash("");
        assert_eq!(plain.len(), 64);
        for same in
            ["concurrency = 3", "key_env = \"K\"", "prompt_price = 2.0", "attempts = 1", "timeout_seconds = 1.0"]
        {
            assert_eq!(hash(same), plain, "{same}");
        }
        let elsewhere = Teacher::new(settings("https://other/v1", ""), prompt()).unwrap();
        assert_eq!(elsewhere.hash(), plain);
        let others =
            ["mode = \"expected\"", "max_tokens = 9", "temperature = 0.5", "seed = 0", "extra = { top_p = 0.5 }"];
        let mut hashes: Vec<String> = others.iter().map(|more| hash(more)).collect();
        let other_prompt = Prompt::parse("user = '{question} {turn}.'").unwrap();
        hashes.push(Teacher::new(settings("http://h/v1", ""), other_prompt).unwrap().hash().to_string());
        let mut other_model = settings("http://h/v1", "");
        other_model.model = "n".into();
        hashes.push(Teacher::new(other_model, prompt()).unwrap().hash().to_string());
        hashes.push(plain);
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), others.len() + 3);
        assert!(teacher("").name().starts_with("m@") && teacher("").name().len() == 10);
    }

    #[test]
    fn keys_tell_messages_and_teachers_apart() {
        let (a, b) = (teacher(""), teacher("seed = 1"));
        let m = |system: &str, user: &str| Messages { system: system.into(), user: user.into() };
        assert_eq!(a.key(&m("x", "y")), a.key(&m("x", "y")));
        let keys =
            [a.key(&m("x", "y")), b.key(&m("x", "y")), a.key(&m("xy", "")), a.key(&m("", "xy")), a.key(&m("y", "x"))];
        assert!((0..5).all(|i| (0..i).all(|j| keys[i] != keys[j])));
    }

    #[test]
    fn a_body_says_what_the_settings_say() {
        let m = Messages { system: "s".into(), user: "u".into() };
        let messages = json!([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]);
        assert_eq!(
            teacher("extra = { top_p = 1.0 }\nseed = 7").body(&m),
            json!({"model": "m", "messages": messages, "max_tokens": 8, "temperature": 0.0, "seed": 7, "top_p": 1.0})
        );
        let m = Messages { system: String::new(), user: "u".into() };
        assert_eq!(
            teacher("mode = \"expected\"\nextra = { max_completion_tokens = 20 }").body(&m),
            json!({"model": "m", "messages": [{"role": "user", "content": "u"}], "max_completion_tokens": 20,
                "temperature": 0.0, "logprobs": true, "top_logprobs": 20})
        );
    }

    #[test]
    fn costs_are_of_a_million_tokens() {
        let t = teacher("prompt_price = 2.0\ncompletion_price = 10.0");
        // 300,000 * 2 + 50,000 * 10 = 1,100,000 of a million.
        assert_eq!(t.cost(Usage { prompt_tokens: 300_000, completion_tokens: 50_000 }), 1.1);
        // (100 + 44 + 256) * 2 + 8 * 10 = 880; é is two bytes.
        let m = Messages { system: "s".repeat(100), user: "é".repeat(22) };
        assert_eq!(t.most_cost(&m), 0.00088);
        assert!(t.has_prices() && !teacher("").has_prices());
    }

    #[test]
    fn an_answer_without_what_the_mode_reads_is_an_error() {
        let answer = |text: &str, tokens| Answer { text: text.into(), refused: false, tokens, usage: None };
        let t = teacher("mode = \"expected\"");
        for tokens in [None, Some(Vec::new())] {
            let e = t.verdict(&answer("7", tokens.clone())).unwrap_err();
            assert!(e.to_string().contains("mode = \"expected\"") && e.exit_code() == 2, "{e}");
            assert_eq!(t.verdict(&answer(" ", tokens)).unwrap(), Verdict::SetAside(grade::EMPTY.into()));
        }
        assert_eq!(teacher("").verdict(&answer("7", None)).unwrap(), Verdict::Grade(7.0));
        let refused = Answer { refused: true, ..answer("I give it no 7", None) };
        assert_eq!(teacher("").verdict(&refused).unwrap(), Verdict::SetAside("refused".into()));
    }

    #[test]
    fn usage_is_estimated_where_none_is_given() {
        let (t, m) = (teacher(""), Messages { system: "hello".into(), user: "hello world".into() });
        let answer = Answer { text: "7".into(), refused: false, tokens: None, usage: None };
        // "hello", "hello", " world" and "7" are a token each.
        let usage = |prompt_tokens, completion_tokens| Usage { prompt_tokens, completion_tokens };
        assert_eq!(t.usage(Some(&m), &answer), (usage(3, 1), true));
        assert_eq!(t.usage(None, &answer), (usage(0, 1), true));
        assert_eq!(t.usage(Some(&m), &Answer { usage: Some(usage(9, 9)), ..answer }), (usage(9, 9), false));
    }
}
