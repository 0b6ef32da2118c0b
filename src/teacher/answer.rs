//! What a server answers: the body of a chat completion, as much of it as matters here.
//!
//! Servers differ in what they leave out and what they set to null, so only what a grade needs is asked for; of several
//! choices the first counts.

use serde::Deserialize;
use serde_json::Value;

use super::judgement::{Usage, cut};

/// A token of an answer and what might have stood there.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    pub text: String,
    pub logprob: f64,
    pub alternatives: Vec<(String, f64)>,
}

/// An answer as it was given, not yet read as a grade.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub text: String,
    /// The server says so itself; the text is then the refusal's.
    pub refused: bool,
    /// None where the server gives no log-probabilities.
    pub tokens: Option<Vec<Token>>,
    /// None where the server counts nothing.
    pub usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Body {
    #[serde(default)]
    choices: Option<Vec<Choice>>,
    #[serde(default)]
    usage: Value,
}

#[derive(Deserialize)]
struct Choice {
    message: Message,
    #[serde(default)]
    logprobs: Option<Logprobs>,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    content: Value,
    #[serde(default)]
    refusal: Value,
}

#[derive(Deserialize)]
struct Logprobs {
    #[serde(default)]
    content: Option<Vec<Place>>,
}

#[derive(Deserialize)]
struct Place {
    token: String,
    #[serde(default)]
    logprob: Option<f64>,
    #[serde(default)]
    top_logprobs: Option<Vec<Alternative>>,
}

#[derive(Deserialize)]
struct Alternative {
    token: String,
    #[serde(default)]
    logprob: Option<f64>,
}

impl Answer {
    /// Reads a body; the error says what it is instead.
    pub fn parse(body: &[u8]) -> Result<Answer, String> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Err("the server's answer is empty".into());
        }
        let parsed: Body = serde_json::from_slice(body)
            .map_err(|e| if e.is_data() { unlike(body) } else { "the server's answer is not JSON".to_string() })?;
        let Some(choice) = parsed.choices.into_iter().flatten().next() else { return Err(unlike(body)) };
        let refusal = text(&choice.message.refusal);
        let refused = !refusal.trim().is_empty();
        let places = choice.logprobs.and_then(|l| l.content);
        Ok(Answer {
            text: if refused { refusal } else { text(&choice.message.content) },
            refused,
            tokens: places.map(|places| places.into_iter().map(token).collect()),
            usage: usage(&parsed.usage),
        })
    }
}

fn unlike(body: &[u8]) -> String {
    match message_in(body) {
        Some(said) => format!("the server's answer holds no choices: {said}"),
        None => "the server's answer holds no choices".into(),
    }
}

/// A text, or the texts of its parts, as some servers give it.
fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|p| p.get("text")?.as_str()).collect(),
        _ => String::new(),
    }
}

fn token(place: Place) -> Token {
    let probability = |logprob: Option<f64>| logprob.unwrap_or(f64::NEG_INFINITY);
    let alternatives = place.top_logprobs.into_iter().flatten().map(|a| (a.token, probability(a.logprob))).collect();
    Token { text: place.token, logprob: probability(place.logprob), alternatives }
}

fn usage(value: &Value) -> Option<Usage> {
    let tokens = |key: &str| value.get(key)?.as_u64();
    Some(Usage { prompt_tokens: tokens("prompt_tokens")?, completion_tokens: tokens("completion_tokens").unwrap_or(0) })
}

/// What a server says of a request that it does not answer: on one line, cut.
pub fn message(body: &[u8]) -> String {
    message_in(body).unwrap_or_else(|| {
        let text = String::from_utf8_lossy(&body[..body.len().min(1000)]);
        one_line(&text)
    })
}

/// The message in the forms of OpenAI, vLLM and FastAPI.
fn message_in(body: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(body).ok()?;
    let error = value.get("error").filter(|e| !e.is_null()).unwrap_or(&value);
    let said = ["message", "detail", "error"].iter().find_map(|key| error.get(key).filter(|v| !v.is_null()));
    match said.unwrap_or(error) {
        Value::String(text) => Some(one_line(text)),
        other if said.is_some() => Some(one_line(&other.to_string())),
        _ => None,
    }
}

fn one_line(text: &str) -> String {
    cut(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_answer_is_read_as_servers_give_it() {
        let body = br#"{"id": "x", "object": "chat.completion", "choices": [{"index": 0, "finish_reason": "stop",
            "message": {"role": "assistant", "content": "7", "refusal": null, "tool_calls": []}, "logprobs": {"content": [
            {"token": "7", "logprob": -0.5, "bytes": [55], "top_logprobs": [{"token": "7", "logprob": -0.5, "bytes": null},
            {"token": "8", "logprob": null}]}]}}, {"message": {"content": "3"}}],
            "usage": {"prompt_tokens": 41, "completion_tokens": 2, "total_tokens": 43, "prompt_tokens_details": null}}"#;
        let alternatives = vec![("7".to_string(), -0.5), ("8".to_string(), f64::NEG_INFINITY)];
        let tokens = Some(vec![Token { text: "7".into(), logprob: -0.5, alternatives }]);
        let usage = Some(Usage { prompt_tokens: 41, completion_tokens: 2 });
        assert_eq!(Answer::parse(body), Ok(Answer { text: "7".into(), refused: false, tokens, usage }));
    }

    #[test]
    fn what_is_left_out_is_none() {
        let parsed = |body: &str| Answer::parse(body.as_bytes()).unwrap();
        let bare = parsed(r#"{"choices": [{"message": {"content": null}, "logprobs": null}], "usage": null}"#);
        assert_eq!(bare, Answer { text: String::new(), refused: false, tokens: None, usage: None });
        let parts = parsed(r#"{"choices": [{"message": {"content": [{"type": "text", "text": "8"}]}}]}"#);
        assert_eq!(parts.text, "8");
        let refusal = parsed(r#"{"choices": [{"message": {"content": null, "refusal": "I will not."}}]}"#);
        assert!(refusal.refused && refusal.text == "I will not.");
    }

    #[test]
    fn what_is_no_answer_says_what_it_is() {
        let said = |body: &str| Answer::parse(body.as_bytes()).unwrap_err();
        assert_eq!(said(""), "the server's answer is empty");
        assert_eq!(said("<html>busy</html>"), "the server's answer is not JSON");
        assert_eq!(said("{\"choices\": [{\"mess"), "the server's answer is not JSON");
        assert_eq!(said("{\"choices\": []}"), "the server's answer holds no choices");
        assert_eq!(said("{\"choices\": [{}]}"), "the server's answer holds no choices");
        assert_eq!(said("[]"), "the server's answer holds no choices");
        assert_eq!(
            said("{\"error\": {\"message\": \"over\\nloaded\"}}"),
            "the server's answer holds no choices: over loaded"
        );
    }

    #[test]
    fn messages_are_found_in_each_form() {
        assert_eq!(message(br#"{"error": {"message": "too long", "code": 400}}"#), "too long");
        assert_eq!(message(br#"{"error": "too long"}"#), "too long");
        assert_eq!(message(br#"{"object": "error", "message": "too long"}"#), "too long");
        assert_eq!(message(br#"{"detail": [{"loc": "body"}]}"#), r#"[{"loc":"body"}]"#);
        assert_eq!(message(b"Bad\n  gateway"), "Bad gateway");
        assert_eq!(message("é".repeat(900).as_bytes()).chars().count(), 200);
        assert_eq!(message(b""), "");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(body in any::<Vec<u8>>(), text in "[\\[{\"a-z:,0-9}\\]]{0,40}") {
            let _ = (Answer::parse(&body), Answer::parse(text.as_bytes()), message(&body), message(text.as_bytes()));
        }
    }
}
