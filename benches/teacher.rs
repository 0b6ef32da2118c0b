//! The way to a teacher at full speed, and a teacher for measuring, which knows a lake's labels.
//!
//! ```text
//! cargo bench --bench teacher                      200,000 pairs by a server that answers in 50 ms, 64 under way
//! cargo bench --bench teacher -- --pairs 20000
//! cargo bench --bench teacher -- serve LAKE        grades 9 or 10 for evidence and 0 to 6 for the rest, a tenth of them wrong
//! ```

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::AsArray;
use futures::{StreamExt, stream};
use memslate::engine::{self, Functions, Models, Settings as EngineSettings};
use memslate::lake::Lake;
use memslate::schema;
use memslate::teacher::{Client, Journal, Limits, Pair, Prompt, Settings, Teacher, ask_all};
use sha2::{Digest, Sha256};

// Tests use more of it.
#[allow(dead_code)]
#[path = "../tests/support/stub_teacher.rs"]
mod stub_teacher;

use stub_teacher::{Act, Request, Stub};

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => throughput(200_000).await,
        ["--pairs", n] => throughput(n.parse().expect("--pairs takes a number")).await,
        ["serve", lake] => serve(lake).await,
        ["answer"] => {
            let slow = |r: &Request| Act::Slow(DELAY, Box::new(Act::Answer((r.body.len() % 11).to_string())));
            let stub = Stub::start(slow);
            println!("{}", stub.url());
            std::future::pending::<()>().await;
        }
        _ => panic!("usage: [--pairs N] or serve LAKE"),
    }
}

const CONCURRENCY: usize = 64;
const DELAY: Duration = Duration::from_millis(50);

async fn throughput(pairs: usize) {
    let (mut server, url) = server();
    let text =
        format!("url = {:?}\nmodel = \"m\"\nprompt = \"prompts/grade.toml\"\nconcurrency = {CONCURRENCY}\n", url);
    let settings: Settings = toml::from_str(&text).expect("settings");
    let prompt = Prompt::parse(include_str!("../jobs/prompts/grade.toml")).expect("the prompt");
    let teacher = Arc::new(Teacher::new(settings, prompt).expect("a teacher"));
    let client = Client::new(Arc::clone(&teacher)).expect("a client");
    client.check().await.expect("the stub answers");
    let folder = tempfile::tempdir().expect("a folder");
    let (mut journal, _) = Journal::open(&folder.path().join("journal.jsonl")).expect("a journal");
    let all = stream::iter(0..pairs).map(|i| {
        let (question, content) =
            (format!("where is thing {i}"), format!("thing {i} is {}", "here and there ".repeat(20)));
        let hash = |text: &str| Sha256::digest(text).into();
        Ok(Pair { question_hash: hash(&question), content_hash: hash(&content), question, content })
    });
    let (began, mut graded) = (Instant::now(), 0u64);
    let before = memory_mib();
    let tally = ask_all(&client, all, &mut journal, &Limits::default(), |_| {
        graded += 1;
        if graded.is_multiple_of(20_000) {
            let rate = graded as f64 / began.elapsed().as_secs_f64();
            println!("{graded:>8} pairs  {rate:>7.0} a second  {:>5} MiB", memory_mib());
        }
        Ok(())
    })
    .await
    .expect("grades");
    let seconds = began.elapsed().as_secs_f64();
    server.kill().expect("it is there");
    let limit = CONCURRENCY as f64 / DELAY.as_secs_f64();
    println!(
        "{} graded in {seconds:.1} s: {:.0} pairs a second, the limit is {limit:.0}; {before} MiB before",
        tally.graded,
        tally.graded as f64 / seconds
    );
}

/// The stub in a process of its own, so that the memory that is told is the client's; and its address.
fn server() -> (Child, String) {
    let own = std::env::current_exe().expect("this program");
    let mut child = Command::new(own).arg("answer").stdout(Stdio::piped()).spawn().expect("it starts again");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("an address");
    (child, line.trim().to_string())
}

/// Resident memory, as Linux tells it.
fn memory_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().split(' ').next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// Serves until it is stopped.
async fn serve(lake: &str) {
    let evidence = evidence(lake).await;
    println!("{} pairs are evidence", evidence.len());
    let stub = Stub::start(move |request: &Request| {
        let prompt = prompt(&request.body);
        let (question, turn) = (fenced(&prompt, "question"), fenced(&prompt, "turn"));
        let known = evidence.contains(&(question.to_string(), turn.to_string()));
        Act::Answer(noisy(known, question, turn).to_string())
    });
    println!("--set 'teacher.url={:?}' --set teacher.model=m", stub.url());
    std::future::pending::<()>().await;
}

fn prompt(body: &str) -> String {
    let body: serde_json::Value = serde_json::from_str(body).expect("a body of JSON");
    let messages = body["messages"].as_array().expect("messages");
    messages.last().and_then(|m| m["content"].as_str()).expect("a prompt").to_string()
}

fn fenced<'a>(prompt: &'a str, name: &str) -> &'a str {
    let begin = prompt.find(&format!("<{name}-")).expect("an opening mark");
    let inside = &prompt[begin..];
    let inside = &inside[inside.find(">\n").expect("its end") + 2..];
    &inside[..inside.find(&format!("\n</{name}-")).expect("a closing mark")]
}

/// 9 or 10 for evidence, 0 to 6 for the rest; for a tenth of the pairs, by their hash, the other way round.
fn noisy(evidence: bool, question: &str, turn: &str) -> u64 {
    let digest = Sha256::digest(format!("{question}\n{turn}"));
    let [a, b, c, ..] = digest[..] else { return 0 };
    let wrong = u64::from(a) * 256 + u64::from(b) < 6554;
    if evidence != wrong { 9 + u64::from(c) % 2 } else { u64::from(c) % 7 }
}

/// Question and content of each pair that is labelled.
async fn evidence(lake: &str) -> HashSet<(String, String)> {
    let lake = Lake::open(lake).await.expect("a lake");
    let context = engine::session(&EngineSettings::default(), &Functions::new(Models::default())).expect("a session");
    for table in [&schema::TURNS, &schema::REQUESTS, &schema::LABELS] {
        engine::register(&context, &lake, table, &[]).await.expect("a table");
    }
    let sql = "SELECT r.question, t.content FROM labels AS l
        JOIN requests AS r ON r.tenant_id = l.tenant_id AND r.store_id = l.store_id AND r.request_id = l.request_id
        JOIN turns AS t ON t.tenant_id = l.tenant_id AND t.store_id = l.store_id AND t.turn_id = l.turn_id
        WHERE l.relevance > 0 AND t.content IS NOT NULL";
    let mut all = HashSet::new();
    for batch in engine::collect(&context, sql, &[]).await.expect("labels") {
        let (questions, contents) = (batch.column(0).as_string::<i32>(), batch.column(1).as_string::<i32>());
        all.extend(questions.iter().flatten().zip(contents.iter().flatten()).map(|(q, c)| (q.into(), c.into())));
    }
    all
}
