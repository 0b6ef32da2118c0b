//! The connection to a teacher's server: a first look before anything is spent, and one pair asked, with retries.
//!
//! An attempt is made again after what may pass: 429, 408 and 5xx, a connection that fails or breaks, a timeout, a body
//! that is no answer. Every other refusal is final for the pair. A key is never in an error: where a server repeats it,
//! its variable's name stands instead.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::{StatusCode, Url, redirect};

use super::answer::{Answer, message};
use super::budget::Budget;
use super::definition::Teacher;
use super::judgement::Usage;
use super::prompt::Messages;
use super::retry::{Backoff, wish};
use crate::error::{Error, Result};

/// A body beyond this is not read: 20 alternatives of a long thought's tokens are a few MiB.
const LONGEST_BODY: usize = 64 << 20;
const CONNECT: Duration = Duration::from_secs(10);

/// Asks one server, over connections that are kept.
pub struct Client {
    teacher: Arc<Teacher>,
    http: reqwest::Client,
    chat: Url,
    key: Option<Key>,
    pub(super) backoff: Backoff,
}

struct Key {
    variable: String,
    secret: String,
}

/// What became of one pair.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    pub outcome: Outcome,
    pub attempts: u32,
    /// Attempts whose answer did not come whole, but which the server may have computed and may charge.
    pub lost: u32,
    /// Of the answer by its usage, and of the lost attempts at their most.
    pub cost: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Answered {
        answer: Answer,
        usage: Usage,
        /// The server counts no tokens.
        estimated: bool,
    },
    /// Not answered, for this reason.
    Failed(String),
    /// An attempt was lost, for this reason, and another one no longer fits the limit of costs.
    TooDear(String),
}

/// How one attempt ended.
enum Attempt {
    Answered(Answer),
    Again { why: String, wish: Option<Duration>, lost: bool },
    Never(String),
}

impl Client {
    /// Reads the key. Nothing is sent yet.
    pub fn new(teacher: Arc<Teacher>) -> Result<Self> {
        Client::with_variables(teacher, |name| std::env::var(name).ok())
    }

    pub(super) fn with_variables(teacher: Arc<Teacher>, read: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let settings = teacher.settings();
        let key = settings.key_env.as_deref().map(|name| key(name, read(name))).transpose()?;
        let chat = settings.endpoint(&["chat", "completions"])?;
        let mut headers = HeaderMap::new();
        if let Some(key) = &key {
            let mut bearer = HeaderValue::from_str(&format!("Bearer {}", key.secret)).map_err(|_| {
                Error::usage(format!("the value of ${} is no key: it holds what a header cannot", key.variable))
            })?;
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        let mut http = reqwest::Client::builder()
            .default_headers(headers)
            // Some services turn away who has no name.
            .user_agent(concat!("memslate/", env!("CARGO_PKG_VERSION")))
            .timeout(Duration::from_secs_f64(settings.timeout_seconds))
            .connect_timeout(CONNECT)
            .pool_max_idle_per_host(settings.concurrency)
            // A request is sent where the job says and nowhere else.
            .redirect(redirect::Policy::none());
        if chat.host_str().is_some_and(|host| matches!(host, "localhost" | "127.0.0.1" | "[::1]")) {
            http = http.no_proxy();
        }
        let http = http.build().map_err(|e| Error::internal("the HTTP client cannot be made").source(cause(&e)))?;
        Ok(Client { teacher, http, chat, key, backoff: Backoff::default() })
    }

    pub fn teacher(&self) -> &Arc<Teacher> {
        &self.teacher
    }

    /// Looks whether the server is there, takes the key and serves the model, before anything is spent.
    pub async fn check(&self) -> Result<()> {
        let settings = self.teacher.settings();
        let url = settings.shown_url();
        let models = settings.endpoint(&["models"])?;
        let mut attempt = 1;
        let (status, body) = loop {
            let (why, wish) = match self.get(models.clone()).await {
                Ok((status, wish, body)) if may_pass(status) => (said(status, &body), wish),
                Ok((status, _, body)) => break (status, body),
                Err(e) if e.is_timeout() && !e.is_connect() => ("it does not answer in time".to_string(), None),
                Err(e) => {
                    return Err(Error::transient(format!("no connection to the teacher at {url}"))
                        .source(cause(&e))
                        .next("start the server, or name another in teacher.url"));
                }
            };
            if attempt >= settings.attempts {
                return Err(Error::transient(format!("the teacher at {url} is not ready")).source(why));
            }
            tokio::time::sleep(self.backoff.wait(&[0; 32], attempt, wish)).await;
            attempt += 1;
        };
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(self.refused(status, &url)),
            // A server without a list may still answer.
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Ok(()),
            status if status.is_success() => served(&body, &settings.model, &url),
            status => Err(Error::usage(format!("the teacher at {url} does not list its models"))
                .source(said(status, &body))
                .next("teacher.url is the server's base, such as http://localhost:8000/v1")),
        }
    }

    fn refused(&self, status: StatusCode, url: &str) -> Error {
        let status = status.as_u16();
        match &self.key {
            Some(key) => {
                Error::usage(format!("the teacher at {url} refuses the key in ${} (status {status})", key.variable))
                    .next(format!("set ${} to a key of this server", key.variable))
            }
            None => Error::usage(format!("the teacher at {url} wants a key (status {status})"))
                .next("name the environment variable that holds it in teacher.key_env"),
        }
    }

    async fn get(&self, url: Url) -> Result<(StatusCode, Option<Duration>, Vec<u8>), reqwest::Error> {
        let response = self.http.get(url).send().await?;
        let (status, wish) = (response.status(), wished(response.headers()));
        let body = body(response).await?;
        Ok((status, wish, self.redacted(body)))
    }

    /// Asks for one pair, as often as the settings allow.
    pub async fn ask(&self, m: &Messages) -> Asked {
        let budget = Budget::default();
        budget.reserve(self.teacher.most_cost(m));
        self.ask_within(m, &budget).await
    }

    /// Asks for one pair whose most cost is reserved, and settles what it did cost.
    pub async fn ask_within(&self, m: &Messages, budget: &Budget) -> Asked {
        let most = self.teacher.most_cost(m);
        let key = self.teacher.key(m);
        let body = self.teacher.body(m).to_string();
        let (mut attempts, mut lost) = (0, 0);
        loop {
            attempts += 1;
            let (why, wish, paid) = match self.attempt(body.clone()).await {
                Attempt::Answered(answer) => {
                    let (usage, estimated) = self.teacher.usage(Some(m), &answer);
                    let cost = self.teacher.cost(usage);
                    budget.settle(most, cost);
                    let outcome = Outcome::Answered { answer, usage, estimated };
                    return Asked { outcome, attempts, lost, cost: cost + most * f64::from(lost) };
                }
                Attempt::Never(why) => {
                    budget.settle(most, 0.0);
                    return Asked { outcome: Outcome::Failed(why), attempts, lost, cost: most * f64::from(lost) };
                }
                Attempt::Again { why, wish, lost } => (why, wish, lost),
            };
            lost += u32::from(paid);
            let cost = most * f64::from(lost);
            let last = attempts >= self.teacher.settings().attempts;
            if paid || last {
                budget.settle(most, if paid { most } else { 0.0 });
            }
            if last {
                return Asked { outcome: Outcome::Failed(why), attempts, lost, cost };
            }
            if paid && !budget.reserve(most) {
                return Asked { outcome: Outcome::TooDear(why), attempts, lost, cost };
            }
            tokio::time::sleep(self.backoff.wait(&key, attempts, wish)).await;
        }
    }

    async fn attempt(&self, request: String) -> Attempt {
        let request = self.http.post(self.chat.clone()).header(CONTENT_TYPE, "application/json").body(request);
        let response = match request.send().await {
            Ok(response) => response,
            Err(e) => return broken(&e),
        };
        let (status, wish) = (response.status(), wished(response.headers()));
        let elsewhere = response.headers().get(LOCATION).and_then(|l| l.to_str().ok()).map(str::to_string);
        let body = match body(response).await {
            Ok(body) => body,
            Err(e) if status.is_success() => return broken(&e),
            Err(_) => Vec::new(),
        };
        if status.is_success() {
            return match Answer::parse(&body) {
                Ok(answer) => Attempt::Answered(answer),
                // It was answered, and may be charged; the bytes did not arrive as an answer.
                Err(_) => Attempt::Again {
                    why: Answer::parse(&self.redacted(body)).err().unwrap_or_default(),
                    wish: None,
                    lost: true,
                },
            };
        }
        let why = said(status, &self.redacted(body));
        match elsewhere {
            _ if may_pass(status) => Attempt::Again { why, wish, lost: gave_up(status) },
            Some(url) if status.is_redirection() => Attempt::Never(format!("{why} (redirects to {url})")),
            _ => Attempt::Never(why),
        }
    }

    /// A server's words without the key.
    fn redacted(&self, body: Vec<u8>) -> Vec<u8> {
        match (&self.key, std::str::from_utf8(&body)) {
            (Some(key), Ok(text)) if text.contains(&key.secret) => {
                text.replace(&key.secret, &format!("${}", key.variable)).into_bytes()
            }
            _ => body,
        }
    }
}

fn key(name: &str, value: Option<String>) -> Result<Key> {
    let secret = value.map(|v| v.trim().to_string()).filter(|v| !v.is_empty()).ok_or_else(|| {
        Error::usage(format!("the environment variable {name} is not set"))
            .at("teacher.key_env")
            .next(format!("set {name} to the server's key, or leave key_env out if it wants none"))
    })?;
    Ok(Key { variable: name.into(), secret })
}

/// Whether the model is among those that a server lists. A list in another form says nothing.
fn served(body: &[u8], model: &str, url: &str) -> Result<()> {
    const NAMED: usize = 20;
    let list: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let Some(models) = list.get("data").and_then(|d| d.as_array()) else { return Ok(()) };
    let names: Vec<&str> = models.iter().filter_map(|m| m.get("id")?.as_str()).collect();
    if names.contains(&model) {
        return Ok(());
    }
    let more = if names.len() > NAMED { format!(" and {} more", names.len() - NAMED) } else { String::new() };
    let named: Vec<&str> = names.into_iter().take(NAMED).collect();
    let named = if named.is_empty() { "no model".to_string() } else { named.join(", ") };
    Err(Error::usage(format!("the teacher at {url} does not serve {model:?}; it serves {named}{more}"))
        .next("name one of them in teacher.model"))
}

/// Refusals that may pass.
fn may_pass(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429)
}

/// Whether someone on the way waited no longer, while the server may have gone on.
fn gave_up(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 504 | 524)
}

fn said(status: StatusCode, body: &[u8]) -> String {
    match message(body) {
        said if said.is_empty() => format!("status {}", status.as_u16()),
        said => format!("status {}: {said}", status.as_u16()),
    }
}

fn wished(headers: &HeaderMap) -> Option<Duration> {
    wish(headers.get(RETRY_AFTER)?.to_str().ok()?)
}

/// Once a connection stood, the request may have been read.
fn broken(e: &reqwest::Error) -> Attempt {
    let why = match (e.is_connect(), e.is_timeout()) {
        (true, _) => format!("no connection: {}", cause(e)),
        (false, true) => "no answer in time".to_string(),
        (false, false) => "the connection broke".to_string(),
    };
    if e.is_builder() { Attempt::Never(cause(e)) } else { Attempt::Again { why, wish: None, lost: !e.is_connect() } }
}

/// The innermost cause, which names no URL.
fn cause(e: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = e;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    if cause.is::<reqwest::Error>() { "the request failed".into() } else { cause.to_string() }
}

async fn body(mut response: reqwest::Response) -> Result<Vec<u8>, reqwest::Error> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        // What is cut here is no JSON any more, and is treated so.
        let left = LONGEST_BODY - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(left)]);
        if chunk.len() > left {
            break;
        }
    }
    Ok(body)
}
