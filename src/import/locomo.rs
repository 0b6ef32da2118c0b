//! LoCoMo: ten conversations between two people over many sessions, each with a list of questions.
//!
//! Adversarial questions (category 5) are dropped. Questions carry no date: they are asked at the end of the last
//! session. Evidence ids need repair: every `D<session>:<turn>` in every text counts, read as numbers, if it is a turn.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use crate::error::Result;

use super::sink::Sink;
use super::store::{Reject, Request, Source, Store, Turn};
use super::value::{self, Fault, Object};
use super::{Format, Options, json};

/// The first conversations of the list are for development, the others for the test.
const DEV_CONVERSATIONS: usize = 3;
const ADVERSARIAL: i64 = 5;

static TURN_REFERENCE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"D:?(\d+):(\d+)").expect("the pattern is fixed and valid"));

/// Reads a file of conversations, or of one.
pub fn read(path: &Path, options: &Options, sink: &mut Sink) -> Result<()> {
    let mut seen = HashSet::new();
    json::each_element(path, Format::Locomo, true, &mut |index, element| {
        let read = conversation(element, options).and_then(|(store, qa)| {
            let twice = Fault::new("occurs twice", format!("sample_id {:?} occurs twice", store.store_id));
            if seen.insert(store.store_id.clone()) { Ok((store, qa)) } else { Err((Some(store.store_id), twice)) }
        });
        match read {
            Ok((mut store, qa)) => {
                let split = if index < DEV_CONVERSATIONS { "dev" } else { "test" };
                let counts = add_requests(&mut store, qa, split);
                sink.report.dropped_questions += counts.questions;
                sink.report.dropped_evidence += counts.evidence;
                sink.write(store)
            }
            Err((id, fault)) => {
                let fault = fault.at(&format!("conversation {}", index + 1));
                sink.reject(&options.tenant_id, id.as_deref(), &Reject { source: Source::Turns, row_id: None, fault })
            }
        }
    })
}

/// The turns of a conversation, and its questions as they stand.
fn conversation(element: Value, options: &Options) -> Result<(Store, Vec<Value>), (Option<String>, Fault)> {
    let mut sample = value::object("the conversation", element).map_err(|f| (None, f))?;
    let id = value::id(&sample, "sample_id")
        .and_then(|id| id.ok_or_else(|| Fault::missing("sample_id")))
        .map_err(|f| (None, f))?;
    let mut parts = || {
        let conversation = sample.remove("conversation").ok_or_else(|| Fault::missing("conversation"))?;
        let conversation = value::object("conversation", conversation)?;
        let qa = value::list(&mut sample, "qa")?.unwrap_or_default();
        Ok((conversation, qa))
    };
    let (mut conversation, qa) = parts().map_err(|f| (Some(id.clone()), f))?;

    let mut store = Store::new(&options.tenant_id, &id);
    let speakers = ["speaker_a", "speaker_b"]
        .map(|name| conversation.get(name).and_then(Value::as_str).unwrap_or_default().to_owned());
    for number in session_numbers(&conversation) {
        add_session(&mut store, &mut conversation, number, &speakers, options);
    }
    Ok((store, qa))
}

/// The numbers of the keys `session_1`, `session_2` and so on, as numbers in order.
fn session_numbers(conversation: &Object) -> Vec<u32> {
    let mut numbers: Vec<u32> =
        conversation.keys().filter_map(|key| key.strip_prefix("session_")?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

fn add_session(store: &mut Store, conversation: &mut Object, number: u32, speakers: &[String; 2], options: &Options) {
    let name = format!("session_{number}");
    let date = value::instant(conversation, &format!("{name}_date_time"), options.default_zone_offset_minutes);
    let turns = match value::list(conversation, &name) {
        Ok(turns) => turns.unwrap_or_default(),
        Err(fault) => return store.reject(Source::Turns, Some(name), fault),
    };
    let session = store.session(&name, date.clone().ok().flatten());
    for (n, element) in (1..).zip(turns) {
        match turn(element, &date, speakers) {
            Ok(turn) => store.add_turn(session, turn),
            Err((id, fault)) => {
                store.reject(Source::Turns, id, fault.at(&format!("{name}, turn {n}")));
            }
        }
    }
}

fn turn(
    element: Value,
    date: &Result<Option<i64>, Fault>,
    speakers: &[String; 2],
) -> Result<Turn, (Option<String>, Fault)> {
    let mut turn = value::object("the turn", element).map_err(|f| (None, f))?;
    let id = value::id(&turn, "dia_id").map_err(|f| (None, f))?;
    let mut read = || {
        let turn_id = id.clone().ok_or_else(|| Fault::missing("dia_id"))?;
        let speaker = value::text(&mut turn, "speaker")?.ok_or_else(|| Fault::missing("speaker"))?;
        let role = match speakers.iter().position(|s| *s == speaker) {
            Some(0) => "user",
            Some(_) => "assistant",
            None => {
                let reason = format!("speaker {} is neither of the two", value::shown(&speaker.into()));
                return Err(Fault::new("unknown speaker", reason));
            }
        };
        let text = value::text(&mut turn, "text")?;
        let caption = value::text(&mut turn, "blip_caption")?;
        let content = said(&speaker, text, caption);
        Ok(Turn { turn_id, spoken_at: date.clone()?, added_at: None, role, speaker: Some(speaker), content })
    };
    read().map_err(|fault| (id.clone(), fault))
}

/// The turn's line: who said it, the text, and what the image shows.
fn said(speaker: &str, text: Option<String>, caption: Option<String>) -> Option<String> {
    match caption.filter(|c| !c.is_empty()) {
        Some(caption) => Some(format!("{speaker}: {} [shares {caption}]", text.unwrap_or_default())),
        None => value::line(Some(speaker), text),
    }
}

/// What is left out on purpose.
#[derive(Default)]
struct Dropped {
    questions: u64,
    evidence: u64,
}

fn add_requests(store: &mut Store, qa: Vec<Value>, split: &str) -> Dropped {
    let mut dropped = Dropped::default();
    let asked_at = store.latest();
    let turns = store.turn_ids().filter_map(|id| Some((references(id).next()??, id.to_owned()))).collect();
    for (index, element) in qa.into_iter().enumerate() {
        let request_id = format!("{}:q{index}", store.store_id);
        match question(element, &turns) {
            Ok(None) => dropped.questions += 1,
            Ok(Some((question, evidence, unknown))) => {
                dropped.evidence += unknown;
                let split = Some(split.to_owned());
                store.add_request(Request { request_id, question, asked_at, split, evidence });
            }
            Err(fault) => store.reject(Source::Requests, Some(request_id), fault),
        }
    }
    dropped
}

type Turns = HashMap<(u32, u32), String>;

/// A question's text, its evidence, and how much evidence is no turn; `None` for an adversarial question.
fn question(element: Value, turns: &Turns) -> Result<Option<(String, Vec<String>, u64)>, Fault> {
    let mut question = value::object("the question", element)?;
    match question.get("category").and_then(Value::as_i64) {
        Some(ADVERSARIAL) => return Ok(None),
        Some(1..=4) => {}
        _ => {
            let category = question.get("category").unwrap_or(&Value::Null);
            return Err(Fault::wrong_type("category", category, "a number from 1 to 5"));
        }
    }
    let text = value::question(&mut question)?;
    let mut evidence = Vec::new();
    let mut unknown = 0;
    for given in evidence_texts(&mut question)? {
        let before = (evidence.len(), unknown);
        for reference in references(&given) {
            match reference.and_then(|r| turns.get(&r)) {
                Some(turn_id) => evidence.push(turn_id.clone()),
                None => unknown += 1,
            }
        }
        // A text that names nothing at all is a piece of evidence too.
        unknown += u64::from(before == (evidence.len(), unknown));
    }
    Ok(Some((text, evidence, unknown)))
}

fn evidence_texts(question: &mut Object) -> Result<Vec<String>, Fault> {
    if let Some(Value::String(text)) = question.get("evidence") {
        return Ok(vec![text.clone()]);
    }
    let texts = value::list(question, "evidence")?.unwrap_or_default();
    let text = |v: Value| match v {
        Value::String(text) => Ok(text),
        other => Err(Fault::wrong_type("evidence", &other, "a list of texts")),
    };
    texts.into_iter().map(text).collect()
}

/// Every reference in a text, as (session, turn); `None` where a number is too large to be one.
fn references(text: &str) -> impl Iterator<Item = Option<(u32, u32)>> {
    TURN_REFERENCE.captures_iter(text).map(|c| Some((c[1].parse().ok()?, c[2].parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::references;

    #[test]
    fn finds_every_reference_however_it_is_written() {
        let all = |text| references(text).collect::<Vec<_>>();
        assert_eq!(all("D8:6; D9:17"), [Some((8, 6)), Some((9, 17))]);
        assert_eq!(all("D9:1 D4:4 D4:6"), [Some((9, 1)), Some((4, 4)), Some((4, 6))]);
        assert_eq!(all("D:11:26"), [Some((11, 26))]);
        assert_eq!(all("D30:05"), [Some((30, 5))]);
        assert_eq!(all("D"), []);
        assert_eq!(all("D1:99999999999"), [None]);
    }
}
