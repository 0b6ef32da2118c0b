//! Files of requests and of results, in the form of OpenAI's batches, which `vllm run-batch` takes and gives as well.
//!
//! A request's `custom_id` is its key and the hashes of its question and content in hexadecimal, joined by `-`: all that
//! is needed to know the pair again, so results are read in any order and without the requests.

use std::collections::{BTreeMap, HashSet};
use std::io::BufRead;

use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{Answer, message};
use super::definition::{Subject, Teacher};
use super::judgement::{Judgement, Pair, from_hex};
use super::prompt::Messages;
use super::tally::Tally;
use crate::error::{Context, Result};
use crate::system::hex;

/// Numbers of torn lines that are named.
const NAMED: usize = 20;

/// What was read from results.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Collected {
    pub tally: Tally,
    /// Results of a pair that had one; the first counts.
    pub duplicates: u64,
    /// Results of no pair that is known.
    pub unknown: u64,
    /// Lines that are no result, such as the last of a file that was cut: how many, and the numbers of the first.
    pub torn: u64,
    pub torn_lines: Vec<u64>,
}

/// The line of a request, with its newline. `messages` are the pair's ([`Teacher::render`]).
pub fn line(teacher: &Teacher, pair: &Pair, messages: &Messages) -> String {
    let subject =
        Subject { key: teacher.key(messages), question_hash: pair.question_hash, content_hash: pair.content_hash };
    let request = json!({
        "custom_id": custom_id(&subject), "method": "POST", "url": "/v1/chat/completions", "body": teacher.body(messages),
    });
    format!("{request}\n")
}

fn custom_id(subject: &Subject) -> String {
    [subject.key, subject.question_hash, subject.content_hash].map(|h| hex(&h)).join("-")
}

fn subject(custom_id: &str) -> Option<Subject> {
    let mut hashes = custom_id.split('-').map(from_hex);
    let subject = Subject { key: hashes.next()??, question_hash: hashes.next()??, content_hash: hashes.next()?? };
    hashes.next().is_none().then_some(subject)
}

#[derive(Deserialize)]
struct ResultLine {
    custom_id: String,
    #[serde(default)]
    response: Option<Response>,
    #[serde(default)]
    error: Value,
}

#[derive(Deserialize)]
struct Response {
    #[serde(default)]
    status_code: Option<u16>,
    #[serde(default)]
    body: Value,
}

/// Reads lines of results, in any order, to judgements.
///
/// `knows` says whether a key is one of those that were asked for. A pair's first answer counts; a failure counts only
/// if no answer of the pair comes before or after it. Several files are read by several calls with the same `seen`.
pub fn collect(
    teacher: &Teacher,
    mut results: impl BufRead,
    seen: &mut Seen,
    knows: impl Fn(&[u8; 32]) -> bool,
    mut each: impl FnMut(Judgement) -> Result<()>,
) -> Result<()> {
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        if results.read_until(b'\n', &mut line).or_data("the results cannot be read")? == 0 {
            return Ok(());
        }
        number += 1;
        if line.trim_ascii().is_empty() {
            continue;
        }
        let Ok(result) = serde_json::from_slice::<ResultLine>(&line) else {
            seen.collected.torn += 1;
            if seen.collected.torn_lines.len() < NAMED {
                seen.collected.torn_lines.push(number);
            }
            continue;
        };
        let Some(subject) = subject(&result.custom_id).filter(|s| knows(&s.key)) else {
            seen.collected.unknown += 1;
            continue;
        };
        if seen.answered.contains(&subject.key) {
            seen.collected.duplicates += 1;
            continue;
        }
        match answer(result) {
            Ok(answer) => {
                let (usage, estimated) = teacher.usage(None, &answer);
                let judgement = teacher.judge(&subject, &answer, usage).map_err(|e| e.at(format!("line {number}")))?;
                seen.answered.insert(subject.key);
                seen.failed.remove(&subject.key);
                seen.collected.tally.judged(&judgement, estimated);
                seen.collected.tally.cost += teacher.cost(usage);
                seen.collected.tally.attempts += 1;
                each(judgement)?;
            }
            Err(_) if seen.failed.contains_key(&subject.key) => seen.collected.duplicates += 1,
            Err(why) => {
                seen.failed.insert(subject.key, why);
            }
        }
    }
}

/// What was seen of results so far.
#[derive(Debug, Default)]
pub struct Seen {
    collected: Collected,
    answered: HashSet<[u8; 32]>,
    failed: BTreeMap<[u8; 32], String>,
}

impl Seen {
    /// The counts, once all results are read.
    pub fn end(mut self) -> Collected {
        for why in self.failed.values() {
            self.collected.tally.failed(why);
            self.collected.tally.attempts += 1;
        }
        self.collected
    }
}

/// A result's answer, or why there is none.
fn answer(result: ResultLine) -> Result<Answer, String> {
    if !result.error.is_null() {
        return Err(message(result.error.to_string().as_bytes()));
    }
    let Some(response) = result.response else { return Err("the result holds neither a response nor an error".into()) };
    let body = response.body.to_string();
    match response.status_code {
        Some(status) if !(200..300).contains(&status) => Err(format!("status {status}: {}", message(body.as_bytes()))),
        _ => Answer::parse(body.as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::teacher::judgement::Verdict;
    use crate::teacher::testing::{answer as completion, pair, prompt, settings};

    fn teacher(more: &str) -> Teacher {
        Teacher::new(settings("http://h/v1", more), prompt()).unwrap()
    }

    fn request(n: usize) -> Value {
        let (teacher, pair) = (teacher(""), pair(n));
        let line = line(&teacher, &pair, &teacher.render(&pair.question, &pair.content));
        assert_eq!(line.find('\n'), Some(line.len() - 1));
        serde_json::from_str(&line).unwrap()
    }

    /// The line of a result for pair `n`.
    fn result(n: usize, content: &str) -> String {
        let body: Value = serde_json::from_str(&completion(content)).unwrap();
        let response = json!({"status_code": 200, "request_id": "r", "body": body});
        json!({"id": "b", "custom_id": request(n)["custom_id"], "response": response, "error": null}).to_string()
    }

    fn collected(lines: &[String]) -> (Collected, Vec<Judgement>) {
        let (mut seen, mut judgements) = (Seen::default(), Vec::new());
        let each = |j| {
            judgements.push(j);
            Ok(())
        };
        collect(&teacher(""), lines.join("\n").as_bytes(), &mut seen, |_| true, each).unwrap();
        (seen.end(), judgements)
    }

    #[test]
    fn a_request_is_a_line_of_a_batch() {
        let request = request(3);
        let teacher = teacher("");
        let messages = teacher.render("which?", "number 3");
        let id: Vec<_> = [teacher.key(&messages), pair(3).question_hash, pair(3).content_hash].map(|h| hex(&h)).into();
        assert_eq!(
            request,
            json!({"custom_id": id.join("-"), "method": "POST", "url": "/v1/chat/completions", "body": teacher.body(&messages)})
        );
    }

    #[test]
    fn results_are_read_in_any_order() {
        let (collected, judgements) = collected(&[result(2, "8"), result(0, "no"), result(1, "10")]);
        let said: Vec<_> = judgements.iter().map(|j| (j.content_hash, j.verdict.clone())).collect();
        let aside = Verdict::SetAside("no grade".into());
        assert_eq!(
            said,
            [
                (pair(2).content_hash, Verdict::Grade(8.0)),
                (pair(0).content_hash, aside),
                (pair(1).content_hash, Verdict::Grade(10.0))
            ]
        );
        let teacher = teacher("");
        assert_eq!(judgements[0].key, teacher.key(&teacher.render("which?", "number 2")));
        assert_eq!((collected.tally.asked, collected.tally.graded, collected.tally.usage.prompt_tokens), (3, 2, 300));
        assert_eq!((collected.duplicates, collected.unknown, collected.torn), (0, 0, 0));
    }

    #[test]
    fn duplicates_strangers_and_torn_lines_are_counted() {
        let stranger = |id: &str| result(0, "9").replace(request(0)["custom_id"].as_str().unwrap(), id);
        let torn = result(3, "9");
        let lines = [
            result(0, "1"),
            result(0, "2"),
            stranger("mine-7"),
            String::new(),
            stranger(""),
            torn[..90].into(),
            stranger(&["00".repeat(32).as_str(); 4].join("-")),
            "{\"id\": 1}".into(),
            result(1, "3"),
            torn[..torn.len() - 1].into(),
        ];
        let (collected, judgements) = collected(&lines);
        assert_eq!(
            judgements.iter().map(|j| j.verdict.clone()).collect::<Vec<_>>(),
            [Verdict::Grade(1.0), Verdict::Grade(3.0)]
        );
        assert_eq!((collected.duplicates, collected.unknown, collected.torn), (1, 3, 3));
        assert_eq!(collected.torn_lines, [6, 8, 10]);

        let (mut seen, known) = (Seen::default(), teacher("").key(&teacher("").render("which?", "number 1")));
        let text = [result(0, "1"), result(1, "2")].join("\n");
        collect(&teacher(""), text.as_bytes(), &mut seen, |key| *key == known, |_| Ok(())).unwrap();
        let collected = seen.end();
        assert_eq!((collected.tally.graded, collected.unknown), (1, 1));
    }

    #[test]
    fn failures_count_where_no_answer_comes() {
        let id = |n: usize| request(n)["custom_id"].clone();
        let lines = [
            json!({"custom_id": id(0), "response": null, "error": {"code": 1, "message": "too long"}}).to_string(),
            json!({"custom_id": id(1), "response": {"status_code": 400, "body": {"error": {"message": "bad"}}}})
                .to_string(),
            json!({"custom_id": id(2), "response": {"status_code": 200, "body": {"choices": []}}, "error": null})
                .to_string(),
            json!({"custom_id": id(3)}).to_string(),
            result(1, "4"),
            json!({"custom_id": id(0), "error": "again"}).to_string(),
        ];
        let (collected, judgements) = collected(&lines);
        assert_eq!(judgements.len(), 1);
        let failed: Vec<_> = collected.tally.failed.iter().map(|(why, n)| (why.as_str(), *n)).collect();
        assert_eq!(
            failed,
            [
                ("the result holds neither a response nor an error", 1),
                ("the server's answer holds no choices", 1),
                ("too long", 1)
            ]
        );
        assert_eq!((collected.tally.asked, collected.duplicates), (4, 1));
    }

    #[test]
    fn a_mode_that_was_not_served_is_an_error() {
        let each = |_| Ok(());
        let e =
            collect(&teacher("mode = \"expected\""), result(0, "7").as_bytes(), &mut Seen::default(), |_| true, each);
        assert!(e.unwrap_err().to_string().starts_with("line 1, teacher.mode: mode = \"expected\""));
    }

    proptest! {
        #[test]
        fn any_line_is_counted_once(lines in proptest::collection::vec(prop_oneof![
            any::<Vec<u8>>().prop_map(|b| b.into_iter().filter(|b| *b != b'\n').collect()),
            (0usize..3, "[0-9a-z]{0,3}").prop_map(|(n, text)| result(n, &text).into_bytes()),
        ], 0..8)) {
            let mut seen = Seen::default();
            let mut given = 0;
            let each = |_| { given += 1; Ok(()) };
            collect(&teacher(""), lines.join(&b'\n').as_slice(), &mut seen, |_| true, each).unwrap();
            let collected = seen.end();
            let blank = lines.iter().filter(|l| l.trim_ascii().is_empty()).count() as u64;
            prop_assert_eq!(given + collected.duplicates + collected.unknown + collected.torn + blank, lines.len() as u64);
        }
    }
}
