//! Whole streams of pairs, against a server that answers by a script.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::stream;

use super::client::Client;
use super::definition::Teacher;
use super::journal::Journal;
use super::judgement::{Judgement, Pair, Usage, Verdict};
use super::retry::Backoff;
use super::run::{Limits, ask_all};
use super::tally::Tally;
use super::testing::{Act, Stub, pair, prompt, settings};
use crate::error::{Error, Result};

const PRICES: &str = "prompt_price = 1000000.0\ncompletion_price = 1000000.0\n";
const NO_LIMIT: Limits = Limits { limit_cost: None, answered_before: false };

/// A server, its client, and a journal.
struct Bench {
    stub: Stub,
    client: Client,
    folder: tempfile::TempDir,
}

impl Bench {
    fn new(more: &str, script: impl Fn(usize, usize) -> Act + Send + Sync + 'static) -> Bench {
        let stub = Stub::start(move |request| script(number(&request.body), request.seen));
        let teacher = Arc::new(Teacher::new(settings(&stub.url(), more), prompt()).unwrap());
        let mut client = Client::new(teacher).unwrap();
        client.backoff = Backoff { first: Duration::from_millis(2), longest: Duration::from_millis(8) };
        Bench { stub, client, folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("journal")
    }

    /// The tally, what was handed on, and what the journal then holds.
    async fn run(&self, pairs: Vec<Result<Pair>>, limits: &Limits) -> (Result<Tally>, Vec<Judgement>, Vec<Judgement>) {
        let (mut journal, _) = Journal::open(&self.path()).unwrap();
        let mut given = Vec::new();
        let each = |j| {
            given.push(j);
            Ok(())
        };
        let tally = ask_all(&self.client, stream::iter(pairs), &mut journal, limits, each).await;
        drop(journal);
        let (_, kept) = Journal::open(&self.path()).unwrap();
        (tally, given, kept)
    }
}

/// The number that a body's turn says.
fn number(body: &str) -> usize {
    let from = body.find("number ").map_or(body.len(), |at| at + "number ".len());
    body[from..].chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

fn pairs(n: usize) -> Vec<Result<Pair>> {
    (0..n).map(|i| Ok(pair(i))).collect()
}

fn seven() -> Act {
    Act::Answer("7".into())
}

#[tokio::test]
async fn every_fault_ends_with_each_pair_graded_once() {
    let bench = Bench::new("concurrency = 8\ntimeout_seconds = 1.5", |n, seen| match (n % 8, seen) {
        (1, 0) => Act::Status(429, Vec::new(), String::new()),
        (2, 0) => Act::Status(429, vec![("Retry-After", "0.05".into())], String::new()),
        (3, 0..2) => Act::Status(500, Vec::new(), "oops".into()),
        (4, 0) => Act::Break,
        (5, 0) => Act::Body("garbage".into()),
        (6, 0) => Act::Body("{\"choices\": []}".into()),
        (7, 0) => Act::Slow(Duration::from_secs(4), Box::new(seven())),
        _ => Act::Answer((n % 11).to_string()),
    });
    let (tally, given, kept) = bench.run(pairs(48), &NO_LIMIT).await;
    let tally = tally.unwrap();
    // 48 pairs, 6 of each kind: one attempt more for each but the first kind, two for the 500s.
    assert_eq!((tally.asked, tally.graded, tally.attempts), (48, 48, 48 + 6 * 8));
    // Broken off, garbage, no choices, timeouts.
    assert_eq!(tally.lost, 24);
    assert!(tally.failed.is_empty() && tally.set_aside.is_empty() && !tally.stopped_by_cost);
    assert_eq!(tally.usage, Usage { prompt_tokens: 4800, completion_tokens: 48 });
    assert_eq!(bench.stub.posts(), 96);
    assert_eq!(given, kept, "the journal holds what was handed on, in the same order");
    for n in 0..48 {
        let of: Vec<_> = given.iter().filter(|j| j.content_hash == pair(n).content_hash).collect();
        assert_eq!((of.len(), &of[0].verdict), (1, &Verdict::Grade((n % 11) as f64)), "{n}");
        let key = bench.client.teacher().key(&bench.client.teacher().render(&pair(n).question, &pair(n).content));
        assert_eq!((of[0].key, of[0].question_hash), (key, pair(n).question_hash));
    }
    assert!(bench.stub.most_at_once() <= 8 + 6, "those that timed out may still be computed");
}

#[tokio::test]
async fn what_is_no_grade_is_set_aside_and_what_fails_is_not_journaled() {
    let bench = Bench::new("concurrency = 2", |n, _| match n {
        0 => Act::Answer("I cannot.".into()),
        1 => Act::Answer("11".into()),
        2 => Act::Status(400, Vec::new(), "{\"error\": {\"message\": \"too long\"}}".into()),
        _ => Act::Answer("0".into()),
    });
    let (tally, given, kept) = bench.run(pairs(5), &NO_LIMIT).await;
    let tally = tally.unwrap();
    assert_eq!((tally.asked, tally.graded, tally.answered()), (5, 2, 4));
    let said: Vec<_> = tally.set_aside.iter().map(|(reason, n)| (reason.as_str(), *n)).collect();
    assert_eq!(said, [("no grade", 1), ("out of range", 1)]);
    assert_eq!(tally.failed.into_iter().collect::<Vec<_>>(), [("status 400: too long".to_string(), 1)]);
    assert_eq!((given.len(), kept.len()), (4, 4));
}

#[tokio::test]
async fn connections_are_kept_and_requests_are_many_at_once() {
    let bench = Bench::new("", |_, _| Act::Slow(Duration::from_millis(50), Box::new(seven())));
    // 2,000 pairs one by one would take 100 seconds.
    let run = tokio::time::timeout(Duration::from_secs(30), bench.run(pairs(2000), &NO_LIMIT)).await;
    assert_eq!(run.unwrap().0.unwrap().graded, 2000);
    let at_once = bench.stub.most_at_once();
    assert!((32..=64).contains(&at_once), "{at_once}");
    assert!(bench.stub.connections() <= 2 * 64, "{}", bench.stub.connections());
}

/// Pairs are taken only when there is room for their request.
#[tokio::test]
async fn a_stream_is_not_read_ahead() {
    let bench = Bench::new("concurrency = 4", |_, _| seven());
    let (mut journal, _) = Journal::open(&bench.path()).unwrap();
    let (taken, done) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let pairs = stream::iter((0..200).map(|n| {
        taken.set(taken.get() + 1);
        assert!(taken.get() - done.get() <= 4, "{} taken, {} done", taken.get(), done.get());
        Ok(pair(n))
    }));
    let each = |_| {
        done.set(done.get() + 1);
        Ok(())
    };
    let tally = ask_all(&bench.client, pairs, &mut journal, &NO_LIMIT, each).await.unwrap();
    assert_eq!((tally.graded, taken.get(), done.get()), (200, 200, 200));
}

/// A run can be moved to another thread, whatever runs it.
#[tokio::test]
async fn a_run_is_send() {
    fn is_send<T: Send>(it: T) -> T {
        it
    }
    let bench = Bench::new("", |_, _| seven());
    let (mut journal, _) = Journal::open(&bench.path()).unwrap();
    let run = ask_all(&bench.client, stream::iter(pairs(3)), &mut journal, &NO_LIMIT, |_| Ok(()));
    assert_eq!(is_send(run).await.unwrap().graded, 3);
}

// --- Costs ---

/// What the pairs below cost at most: bytes of the messages, 256 of the template, 8 of the answer.
fn most(client: &Client) -> f64 {
    let m = client.teacher().render(&pair(1).question, &pair(1).content);
    let most = client.teacher().most_cost(&m);
    // "Grade."; <question-12 digits>, "which?", its end: 23 + 1 + 6 + 1 + 24; a blank; 19 + 1 + 8 + 1 + 20.
    assert_eq!(most, f64::from(6 + 55 + 1 + 49 + 256 + 8));
    most
}

#[tokio::test]
async fn no_request_starts_that_could_pass_the_limit() {
    let script = |_, _| Act::Slow(Duration::from_millis(20), Box::new(seven()));
    let bench = Bench::new(&format!("{PRICES}concurrency = 4"), script);
    assert_eq!(most(&bench.client), 375.0);
    // Each answer costs 101, but while two are under way 750 of 800 are taken, and a third does not fit.
    let (tally, given, _) = bench.run(pairs(9), &Limits { limit_cost: Some(800.0), ..NO_LIMIT }).await;
    let tally = tally.unwrap();
    assert!(tally.stopped_by_cost);
    assert_eq!((tally.asked, tally.cost, given.len(), bench.stub.posts()), (2, 202.0, 2, 2));

    let enough = Bench::new(&format!("{PRICES}concurrency = 1"), |_, _| seven());
    // One at a time: the ninth starts at 8 * 101 + 375 = 1183.
    let (tally, ..) = enough.run(pairs(9), &Limits { limit_cost: Some(1183.0), ..NO_LIMIT }).await;
    assert!(tally.as_ref().is_ok_and(|t| !t.stopped_by_cost && t.cost == 909.0), "{tally:?}");
    std::fs::remove_file(enough.path()).unwrap();
    let (tally, ..) = enough.run(pairs(9), &Limits { limit_cost: Some(1182.0), ..NO_LIMIT }).await;
    assert!(tally.as_ref().is_ok_and(|t| t.stopped_by_cost && t.asked == 8), "{tally:?}");
}

#[tokio::test]
async fn lost_attempts_count_against_the_limit() {
    let script = |_, _| Act::Body("garbage".into());
    let bench = Bench::new(&format!("{PRICES}concurrency = 1\nattempts = 9"), script);
    // Three attempts at 375 are 1125, four 1500.
    let (tally, ..) = bench.run(pairs(9), &Limits { limit_cost: Some(1499.0), ..NO_LIMIT }).await;
    let tally = tally.unwrap();
    assert!(tally.stopped_by_cost);
    assert_eq!((tally.asked, tally.failures(), tally.lost, tally.cost, bench.stub.posts()), (1, 1, 3, 1125.0, 3));
}

#[tokio::test]
async fn a_limit_without_prices_is_refused() {
    let bench = Bench::new("", |_, _| seven());
    let (tally, ..) = bench.run(pairs(1), &Limits { limit_cost: Some(1.0), ..NO_LIMIT }).await;
    let e = tally.unwrap_err();
    assert!(e.to_string().contains("nothing has a price") && e.exit_code() == 2, "{e}");
    assert_eq!(bench.stub.posts(), 0);
}

// --- Ends ---

#[tokio::test]
async fn a_server_that_answers_nothing_ends_the_run() {
    let bench = Bench::new("concurrency = 4\nattempts = 2", |_, _| Act::Status(500, Vec::new(), "oops".into()));
    let (tally, given, kept) = bench.run(pairs(500), &NO_LIMIT).await;
    let said = tally.unwrap_err().to_string();
    assert!(said.contains("the first 16 pairs all failed; the last: status 500: oops"), "{said}");
    assert!(said.starts_with(&format!("the teacher at {}", bench.stub.url())), "{said}");
    // 16 that failed twice, and at most 4 under way.
    assert!((32..=40).contains(&bench.stub.posts()), "{}", bench.stub.posts());
    assert!(given.is_empty() && kept.is_empty());

    let (tally, ..) = bench.run(pairs(3), &NO_LIMIT).await;
    let said = tally.unwrap_err().to_string();
    assert!(said.contains("all pairs failed, 3 of 3; the last: status 500: oops"), "{said}");

    // A teacher that answered before is known to be right: what it refuses now is the pairs' fault.
    let again = Limits { answered_before: true, ..NO_LIMIT };
    let (tally, ..) = bench.run(pairs(18), &again).await;
    assert_eq!(tally.map(|t| t.failures()).ok(), None, "more failed in a row than 16 and three for each under way");
    let (tally, ..) = bench.run(pairs(15), &again).await;
    assert_eq!(tally.unwrap().failures(), 15);
    assert_eq!(bench.run(Vec::new(), &NO_LIMIT).await.0.unwrap(), Tally::default());
}

#[tokio::test]
async fn a_server_that_goes_away_ends_the_run() {
    let bench = Bench::new("concurrency = 8\nattempts = 1", |n, _| match n {
        0..40 => seven(),
        _ => Act::Status(503, Vec::new(), "down".into()),
    });
    let (tally, given, kept) = bench.run(pairs(500), &NO_LIMIT).await;
    let said = tally.unwrap_err().to_string();
    assert!(said.contains("24 pairs in a row failed; the last: status 503: down"), "{said}");
    assert!(said.contains(&format!("{} pairs were answered before, which are kept", given.len())), "{said}");
    // Of the 40 that are answered, all but those that were under way beside 24 failures.
    assert!(kept == given && (33..=40).contains(&given.len()), "{}", given.len());
    // 40 and 24; an answer that comes late, of seven at most beside a failure, begins the count anew.
    assert!((64..=40 + 8 * 24 + 8).contains(&bench.stub.posts()), "{}", bench.stub.posts());
}

#[tokio::test]
async fn a_mode_that_the_server_does_not_serve_ends_the_run() {
    let bench = Bench::new("mode = \"expected\"\nconcurrency = 2", |_, _| seven());
    let (tally, given, kept) = bench.run(pairs(100), &NO_LIMIT).await;
    assert!(tally.unwrap_err().to_string().contains("mode = \"expected\""));
    assert!(given.is_empty() && kept.is_empty() && bench.stub.posts() <= 2);
}

#[tokio::test]
async fn an_expected_grade_goes_all_the_way() {
    let bench = Bench::new("mode = \"expected\"", |_, _| {
        let top = |p: f64, text: &str| serde_json::json!({"token": text, "logprob": p.ln()});
        let place =
            serde_json::json!({"token": "7", "logprob": 0.5f64.ln(), "top_logprobs": [top(0.5, "7"), top(0.25, "9")]});
        let choice = serde_json::json!({"message": {"content": "7"}, "logprobs": {"content": [place]}});
        Act::Body(serde_json::json!({"choices": [choice]}).to_string())
    });
    let (tally, given, kept) = bench.run(pairs(2), &NO_LIMIT).await;
    // (7 * 0.5 + 9 * 0.25) / 0.75 = 5.75 / 0.75
    assert_eq!(given[0].verdict, Verdict::Grade(7.666667));
    assert_eq!((given, tally.unwrap().estimated), (kept, 2));
}

#[tokio::test]
async fn an_error_of_the_stream_waits_for_what_is_paid() {
    let bench = Bench::new("", |_, _| Act::Slow(Duration::from_millis(50), Box::new(seven())));
    let mut pairs = pairs(5);
    pairs.push(Err(Error::data("the table ends")));
    pairs.push(Ok(pair(7)));
    let (tally, given, kept) = bench.run(pairs, &NO_LIMIT).await;
    assert_eq!(tally.unwrap_err().what(), "the table ends");
    assert_eq!((given.len(), kept.len(), bench.stub.posts()), (5, 5, 5));
}

#[tokio::test]
async fn an_error_of_the_caller_ends_the_run() {
    let bench = Bench::new("concurrency = 1", |_, _| seven());
    let (mut journal, _) = Journal::open(&bench.path()).unwrap();
    let each = |_| Err(Error::data("no room"));
    let tally = ask_all(&bench.client, stream::iter(pairs(9)), &mut journal, &NO_LIMIT, each).await;
    assert_eq!(tally.unwrap_err().what(), "no room");
    drop(journal);
    assert_eq!(Journal::open(&bench.path()).unwrap().1.len(), 1, "it was kept before it was handed on");
}
