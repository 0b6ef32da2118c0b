//! The `[teacher]` table of a job file.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// How a grade is read from an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The number that the answer says.
    #[default]
    Greedy,
    /// The mean of the grades, weighted with the probabilities that the server gives each of them.
    Expected,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Mode::Greedy => "greedy",
            Mode::Expected => "expected",
        }
    }
}

/// Which teacher, and how it is asked.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The server's base up to its version, such as `http://localhost:8000/v1`.
    pub url: String,
    /// As the server names it.
    pub model: String,
    /// The environment variable that holds the key; without it none is sent.
    #[serde(default)]
    pub key_env: Option<String>,
    /// The file of the prompt, relative to the job file.
    pub prompt: String,
    /// `greedy` (the default) or `expected`.
    #[serde(default)]
    pub mode: Mode,
    /// Tokens of an answer at most; 8 by default.
    #[serde(default = "eight")]
    pub max_tokens: u32,
    /// 0 by default.
    #[serde(default)]
    pub temperature: f64,
    /// Sent if it is given.
    #[serde(default)]
    pub seed: Option<u64>,
    /// Merged into the body of each request, such as `{ chat_template_kwargs = { enable_thinking = false } }`. Where it says
    /// `max_completion_tokens`, which some services want, that stands for `max_tokens`.
    #[serde(default)]
    pub extra: toml::Table,
    /// Requests under way at once; 64 by default.
    #[serde(default = "sixty_four")]
    pub concurrency: usize,
    /// Of one attempt; 60 by default.
    #[serde(default = "sixty")]
    pub timeout_seconds: f64,
    /// Of one pair, the first included; 6 by default.
    #[serde(default = "six")]
    pub attempts: u32,
    /// Of a million tokens; 0 by default.
    #[serde(default)]
    pub prompt_price: f64,
    /// Of a million tokens; 0 by default.
    #[serde(default)]
    pub completion_price: f64,
}

fn eight() -> u32 {
    8
}
fn sixty_four() -> usize {
    64
}
fn sixty() -> f64 {
    60.0
}
fn six() -> u32 {
    6
}

/// What `extra` may not say, because a setting of its own says it or an answer could not be read.
const OWN: [&str; 9] =
    ["model", "messages", "max_tokens", "temperature", "seed", "stream", "n", "logprobs", "top_logprobs"];

/// Stands for `max_tokens` where `extra` holds it.
pub const OTHER_MAX: &str = "max_completion_tokens";

impl Settings {
    /// Whether every value can be meant.
    pub fn check(&self) -> Result<()> {
        let wrong = |key: &str, says: String| Err(Error::usage(says).at(format!("teacher.{key}")));
        base(&self.url)?;
        if self.model.trim().is_empty() {
            return wrong("model", "no model is named".into());
        }
        let max = self.max_answer();
        if max == 0 || max > 1 << 20 {
            return wrong("max_tokens", format!("it is {max}, and must be from 1 to {}", 1 << 20));
        }
        if self.mode == Mode::Expected && max < 2 {
            return wrong("max_tokens", "it is 1; mode = \"expected\" needs 2, to tell 10 from 1".into());
        }
        if !(0.0..=2.0).contains(&self.temperature) {
            return wrong("temperature", format!("it is {}, and must be from 0 to 2", self.temperature));
        }
        if !(1..=4096).contains(&self.concurrency) {
            return wrong("concurrency", format!("it is {}, and must be from 1 to 4096", self.concurrency));
        }
        if !(0.001..=86_400.0).contains(&self.timeout_seconds) {
            return wrong(
                "timeout_seconds",
                format!("it is {}, and must be from 0.001 to 86400", self.timeout_seconds),
            );
        }
        if !(1..=100).contains(&self.attempts) {
            return wrong("attempts", format!("it is {}, and must be from 1 to 100", self.attempts));
        }
        for (key, price) in [("prompt_price", self.prompt_price), ("completion_price", self.completion_price)] {
            if !(price.is_finite() && price >= 0.0) {
                return wrong(key, format!("it is {price}, and must be 0 or more, of a million tokens"));
            }
        }
        self.extra().map(|_| ())
    }

    /// `extra` as it goes into a body.
    pub fn extra(&self) -> Result<Map<String, Value>> {
        if let Some(key) = OWN.iter().find(|key| self.extra.contains_key(**key)) {
            return Err(Error::usage(format!("it says {key}, which is not its to say"))
                .at("teacher.extra")
                .next("say it in [teacher] itself, if there is such a key; each request asks for one answer, whole"));
        }
        if let Some(max) = self.extra.get(OTHER_MAX)
            && max.as_integer().and_then(|max| u32::try_from(max).ok()).is_none()
        {
            return Err(Error::usage(format!("it is {max}, and must be a number of tokens"))
                .at(format!("teacher.extra.{OTHER_MAX}")));
        }
        table(&self.extra, "teacher.extra")
    }

    /// Tokens that an answer has at most.
    pub fn max_answer(&self) -> u32 {
        let other = self.extra.get(OTHER_MAX).and_then(toml::Value::as_integer);
        other.and_then(|max| u32::try_from(max).ok()).unwrap_or(self.max_tokens)
    }

    /// Where a path of the server lies.
    pub fn endpoint(&self, path: &[&str]) -> Result<reqwest::Url> {
        let mut url = base(&self.url)?;
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        Ok(url)
    }

    /// The URL as errors name it: without a query, which may hold a secret.
    pub fn shown_url(&self) -> String {
        self.url.split(['?', '#']).next().unwrap_or_default().to_string()
    }
}

fn base(text: &str) -> Result<reqwest::Url> {
    let wrong = |says: &str| {
        Error::usage(says).at("teacher.url").next("name the server's base, such as http://localhost:8000/v1")
    };
    let url = reqwest::Url::parse(text).map_err(|e| wrong("it cannot be read as a URL").source(e))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(wrong("it is no http:// or https:// URL"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("it holds a user or a password").next("keep keys in an environment variable: key_env"));
    }
    if url.path().trim_end_matches('/').ends_with("/completions") {
        return Err(wrong("it names an endpoint, not the server's base"));
    }
    Ok(url)
}

/// TOML as JSON; what JSON has no word for is an error.
fn table(table: &toml::Table, place: &str) -> Result<Map<String, Value>> {
    table.iter().map(|(key, v)| Ok((key.clone(), value(v, &format!("{place}.{key}"))?))).collect()
}

fn value(v: &toml::Value, place: &str) -> Result<Value> {
    Ok(match v {
        toml::Value::String(text) => text.clone().into(),
        toml::Value::Integer(n) => (*n).into(),
        toml::Value::Float(x) => serde_json::Number::from_f64(*x)
            .map(Value::Number)
            .ok_or_else(|| Error::usage(format!("it is {x}, which JSON cannot say")).at(place))?,
        toml::Value::Boolean(b) => (*b).into(),
        toml::Value::Datetime(_) => {
            return Err(Error::usage("it is a date, which JSON cannot say").at(place).next("write it as a text"));
        }
        toml::Value::Array(items) => Value::Array(items.iter().map(|v| value(v, place)).collect::<Result<_>>()?),
        toml::Value::Table(inner) => Value::Object(self::table(inner, place)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = "url = \"http://h:1/v1\"\nmodel = \"m\"\nprompt = \"prompts/grade.toml\"\n";

    fn read(more: &str) -> Settings {
        toml::from_str(&format!("{LEAST}{more}")).unwrap()
    }

    #[test]
    fn what_is_not_said_has_the_documented_value() {
        let s = read("");
        assert_eq!((s.mode, s.max_tokens, s.temperature, s.seed), (Mode::Greedy, 8, 0.0, None));
        assert_eq!((s.concurrency, s.timeout_seconds, s.attempts), (64, 60.0, 6));
        assert_eq!((s.prompt_price, s.completion_price, s.key_env.as_deref()), (0.0, 0.0, None));
        s.check().unwrap();
        assert!(toml::from_str::<Settings>(&format!("{LEAST}max_token = 3")).is_err());
        assert!(toml::from_str::<Settings>("url = \"http://h/v1\"").is_err());
    }

    #[test]
    fn what_cannot_be_meant_is_refused_by_name() {
        let cases = [
            ("max_tokens = 0", "teacher.max_tokens"),
            ("mode = \"expected\"\nmax_tokens = 1", "teacher.max_tokens"),
            ("temperature = nan", "teacher.temperature"),
            ("temperature = -1.0", "teacher.temperature"),
            ("concurrency = 0", "teacher.concurrency"),
            ("timeout_seconds = 0.0", "teacher.timeout_seconds"),
            ("timeout_seconds = inf", "teacher.timeout_seconds"),
            ("attempts = 0", "teacher.attempts"),
            ("prompt_price = -1.0", "teacher.prompt_price"),
            ("completion_price = nan", "teacher.completion_price"),
            ("extra = { messages = [] }", "teacher.extra"),
            ("extra = { a = { b = [1, inf] } }", "teacher.extra.a.b"),
            ("extra = { a = 2023-01-01 }", "teacher.extra.a"),
            ("extra = { max_completion_tokens = \"many\" }", "teacher.extra.max_completion_tokens"),
        ];
        for (more, place) in cases {
            let e = read(more).check().unwrap_err();
            assert!(e.to_string().starts_with(place) && e.exit_code() == 2, "{more}: {e}");
        }
    }

    #[test]
    fn urls_are_bases() {
        let with = |url: &str| Settings { url: url.into(), ..read("") };
        let chat = |url: &str| with(url).endpoint(&["chat", "completions"]).unwrap().to_string();
        assert_eq!(chat("http://h:1/v1"), "http://h:1/v1/chat/completions");
        assert_eq!(chat("http://h:1/v1/"), "http://h:1/v1/chat/completions");
        assert_eq!(chat("https://h/d?api-version=3"), "https://h/d/chat/completions?api-version=3");
        assert_eq!(with("https://h/d?key=secret").shown_url(), "https://h/d");
        for bad in ["", "h:1/v1", "ftp://h/v1", "http://me:secret@h/v1", "http://h/v1/chat/completions"] {
            let said = with(bad).check().unwrap_err().to_string();
            assert!(said.starts_with("teacher.url") && !said.contains("secret"), "{bad}: {said}");
        }
    }

    #[test]
    fn extra_becomes_json() {
        let s = read("extra = { chat_template_kwargs = { enable_thinking = false }, top_p = 0.5, stop = [\"a\"] }");
        let json = Value::Object(s.extra().unwrap());
        assert_eq!(
            json,
            serde_json::json!({"chat_template_kwargs": {"enable_thinking": false}, "top_p": 0.5, "stop": ["a"]})
        );
        assert_eq!(read("extra = { max_completion_tokens = 900 }").max_answer(), 900);
        assert_eq!(read("max_tokens = 3").max_answer(), 3);
    }
}
