//! One pair and the first look, against a server that answers by a script.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use super::budget::Budget;
use super::client::{Asked, Client, Outcome};
use super::definition::Teacher;
use super::judgement::Usage;
use super::prompt::Messages;
use super::retry::Backoff;
use super::testing::{Act, Stub, answer, prompt, settings};
use crate::error::Result;

const PRICES: &str = "prompt_price = 1000000.0\ncompletion_price = 1000000.0\n";

/// A client whose waits are short.
fn client(url: &str, more: &str) -> Client {
    let mut client = try_client(url, more, None).unwrap();
    client.backoff = Backoff { first: Duration::from_millis(2), longest: Duration::from_millis(8) };
    client
}

fn try_client(url: &str, more: &str, secret: Option<&str>) -> Result<Client> {
    let teacher = Arc::new(Teacher::new(settings(url, more), prompt())?);
    Client::with_variables(teacher, |name| (name == "GRADER_KEY").then_some(secret?.to_string()))
}

fn messages() -> Messages {
    Messages { system: "s".into(), user: "u".into() }
}

async fn asked(act: impl Fn(usize) -> Act + Send + Sync + 'static, more: &str) -> Asked {
    let stub = Stub::start(move |request| act(request.seen));
    let asked = client(&stub.url(), more).ask(&messages()).await;
    assert_eq!(stub.posts(), asked.attempts as usize, "every attempt is counted");
    asked
}

fn text(asked: &Asked) -> &str {
    match &asked.outcome {
        Outcome::Answered { answer, .. } => &answer.text,
        Outcome::Failed(why) | Outcome::TooDear(why) => why,
    }
}

fn status(code: u16, body: &str) -> Act {
    Act::Status(code, Vec::new(), body.into())
}

#[tokio::test]
async fn a_fault_that_passes_is_asked_again_and_answered_once() {
    type Fault = (&'static str, fn() -> Act, u32);
    let faults: [Fault; 11] = [
        ("429", || status(429, ""), 0),
        ("500", || status(500, "{\"error\": {\"message\": \"oops\"}}"), 0),
        ("503", || status(503, "<html>busy</html>"), 0),
        ("429 with a wish", || Act::Status(429, vec![("Retry-After", "0.01".into())], String::new()), 0),
        ("504: someone on the way gave up", || status(504, ""), 1),
        ("hung up", || Act::HangUp, 1),
        ("broken off", || Act::Break, 1),
        ("not JSON", || Act::Body("\u{1}garbage".into()), 1),
        ("no choices", || Act::Body("{\"choices\": []}".into()), 1),
        ("an empty body", || Act::Body(String::new()), 1),
        ("an error with status 200", || Act::Body("{\"error\": {\"message\": \"busy\"}}".into()), 1),
    ];
    for (name, fault, lost) in faults {
        let act = move |seen| if seen < 2 { fault() } else { Act::Answer("7".into()) };
        let asked = asked(act, PRICES).await;
        assert_eq!((text(&asked), asked.attempts, asked.lost), ("7", 3, 2 * lost), "{name}");
        // "s" and "u" are 2 bytes, with 256 of the template and 8 of the answer 266 at most; the answer is 100 and 1.
        assert_eq!(asked.cost, f64::from(2 * lost) * 266.0 + 101.0, "{name}");
    }
}

#[tokio::test]
async fn a_timeout_is_asked_again_and_counts_as_spent() {
    let slow = |seen| {
        let wait = Duration::from_millis(if seen == 0 { 4000 } else { 0 });
        Act::Slow(wait, Box::new(Act::Answer("6".into())))
    };
    let asked = asked(slow, &format!("{PRICES}timeout_seconds = 1.5")).await;
    assert_eq!((text(&asked), asked.attempts, asked.lost, asked.cost), ("6", 2, 1, 266.0 + 101.0));
}

#[tokio::test]
async fn attempts_end() {
    let asked = asked(|_| status(503, "busy"), "attempts = 4").await;
    assert_eq!(asked.outcome, Outcome::Failed("status 503: busy".into()));
    assert_eq!((asked.attempts, asked.lost), (4, 0));
}

#[tokio::test]
async fn a_refusal_is_final_and_says_why() {
    let long = format!("{{\"error\": {{\"message\": \"too long: {}\"}}}}", "x".repeat(1000));
    let asked_long = asked(move |_| status(400, &long), "").await;
    assert_eq!((asked_long.attempts, text(&asked_long).len()), (1, "status 400: ".len() + 200));
    for code in [401, 403, 404, 413, 422] {
        let asked = asked(move |_| status(code, "no"), "").await;
        assert_eq!((text(&asked), asked.attempts), (format!("status {code}: no").as_str(), 1));
    }
    let moved = asked(|_| Act::Status(307, vec![("Location", "http://other/".into())], String::new()), "").await;
    assert_eq!((text(&moved), moved.attempts), ("status 307 (redirects to http://other/)", 1));
}

#[tokio::test]
async fn a_wish_is_waited_for() {
    let act = |seen| match seen {
        0 => Act::Status(429, vec![("Retry-After", "2".into())], String::new()),
        _ => Act::Answer("7".into()),
    };
    let stub = Stub::start(move |request| act(request.seen));
    let (client, m) = (client(&stub.url(), ""), messages());
    let mut asking = std::pin::pin!(client.ask(&m));
    assert!(tokio::time::timeout(Duration::from_secs(1), &mut asking).await.is_err());
    assert_eq!(stub.posts(), 1);
    assert_eq!(text(&asking.await), "7");
}

#[tokio::test]
async fn no_connection_costs_nothing() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let asked = client(&format!("http://{gone}/v1"), &format!("{PRICES}attempts = 3")).ask(&messages()).await;
    assert!(text(&asked).starts_with("no connection: "), "{asked:?}");
    assert_eq!((asked.attempts, asked.lost, asked.cost), (3, 0, 0.0));
}

#[tokio::test]
async fn a_lost_attempt_is_not_repeated_beyond_the_limit() {
    let stub = Stub::start(|_| Act::Body("garbage".into()));
    let client = client(&stub.url(), PRICES);
    // Two attempts of 266 fit into 600, three do not.
    let budget = Budget::new(Some(600.0)).unwrap();
    assert!(budget.reserve(266.0));
    let asked = client.ask_within(&messages(), &budget).await;
    assert_eq!(asked.outcome, Outcome::TooDear("the server's answer is not JSON".into()));
    assert_eq!((asked.attempts, asked.lost, asked.cost, budget.spent()), (2, 2, 532.0, 532.0));
}

#[tokio::test]
async fn the_first_of_several_choices_counts_and_no_usage_is_estimated() {
    let body = r#"{"choices": [{"message": {"content": "hello world"}}, {"message": {"content": "3"}}]}"#;
    let asked = asked(|_| Act::Body(body.into()), "").await;
    let Outcome::Answered { answer, usage, estimated } = asked.outcome else { panic!("not answered") };
    // "s" and "u" are a token each, and so are "hello" and " world".
    assert_eq!(
        (answer.text.as_str(), usage, estimated),
        ("hello world", Usage { prompt_tokens: 2, completion_tokens: 2 }, true)
    );
}

// --- Before anything is spent ---

async fn checked(act: impl Fn() -> Act + Send + Sync + 'static) -> String {
    let stub = Stub::scripted(move |_| act());
    let client = client(&stub.url(), "attempts = 2");
    let said = client.check().await.map_or_else(|e| e.to_string(), |()| "ok".into());
    assert_eq!(stub.posts(), 0, "nothing is spent");
    said.replace(&stub.url(), "URL")
}

#[tokio::test]
async fn the_first_look_names_what_is_wrong() {
    assert_eq!(checked(|| Act::Body(r#"{"data": [{"id": "n"}, {"id": "m"}]}"#.into())).await, "ok");
    assert_eq!(checked(|| status(404, "")).await, "ok");
    assert_eq!(checked(|| Act::Body("a page".into())).await, "ok");
    let other = checked(|| Act::Body(r#"{"data": [{"id": "n"}, {"id": "o"}]}"#.into())).await;
    assert!(other.starts_with("the teacher at URL does not serve \"m\"; it serves n, o\n"), "{other}");
    let none = checked(|| Act::Body(r#"{"data": []}"#.into())).await;
    assert!(none.contains("it serves no model"), "{none}");
    let keyless = checked(|| status(401, "secret")).await;
    assert!(keyless.contains("wants a key") && keyless.contains("teacher.key_env"), "{keyless}");
    let busy = checked(|| status(503, "loading the model")).await;
    assert_eq!(busy, "the teacher at URL is not ready: status 503: loading the model");
    let odd = checked(|| status(400, "odd")).await;
    assert!(odd.starts_with("the teacher at URL does not list its models: status 400: odd"), "{odd}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let said = client(&format!("http://{gone}/v1"), "").check().await.unwrap_err().to_string();
    assert!(said.starts_with(&format!("no connection to the teacher at http://{gone}/v1: ")), "{said}");
    assert!(said.contains("refused") && said.contains("start the server"), "{said}");
}

#[tokio::test]
async fn a_key_is_sent_and_never_said() {
    const SECRET: &str = "sk-very-secret";
    let key_env = "key_env = \"GRADER_KEY\"";
    let stub = Stub::scripted(|request| match (request.authorization.as_deref(), request.path.as_str()) {
        (Some("Bearer sk-very-secret"), "/v1/models") => status(403, "bad key sk-very-secret"),
        (Some("Bearer sk-very-secret"), _) if request.body.contains("\"u\"") => {
            Act::Body("{\"error\": \"sk-very-secret\"}".into())
        }
        (Some("Bearer sk-very-secret"), _) => status(400, &format!("{} sk-very-secret", "x".repeat(195))),
        _ => status(418, "no key"),
    });
    let mut client = try_client(&stub.url(), &format!("{key_env}\nattempts = 1"), Some("sk-very-secret\n")).unwrap();
    client.backoff.first = Duration::from_millis(1);
    let said = client.check().await.unwrap_err().to_string();
    assert!(said.contains("refuses the key in $GRADER_KEY (status 403)") && !said.contains("sk-"), "{said}");
    let repeated = client.ask(&messages()).await;
    assert_eq!(text(&repeated), "the server's answer holds no choices: $GRADER_KEY");
    // Cut in the middle of what stands for the key, not of the key.
    let cut = client.ask(&Messages { user: "v".into(), ..messages() }).await;
    assert!(text(&cut).ends_with("x $GRA"), "{cut:?}");

    for (secret, says) in
        [(None, "GRADER_KEY is not set"), (Some(" \n"), "GRADER_KEY is not set"), (Some("a\nb"), "no key")]
    {
        let said = try_client(&stub.url(), key_env, secret).err().unwrap();
        assert!(said.to_string().contains(says) && said.exit_code() == 2, "{said}");
        assert!(!said.to_string().contains(SECRET));
    }
}

#[tokio::test]
async fn a_request_is_what_the_teacher_says() {
    let stub = Stub::start(|request| {
        assert_eq!(request.path, "/v1/chat/completions");
        let body: serde_json::Value = serde_json::from_str(&request.body).unwrap();
        Act::Body(answer(&format!("{} {}", body["top_k"], body["messages"][1]["content"])))
    });
    let asked = client(&stub.url(), "extra = { top_k = 4 }").ask(&messages()).await;
    assert_eq!(text(&asked), "4 \"u\"");
}
