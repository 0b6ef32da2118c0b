//! BEAM: long chats in numbered folders, each `chat.json` (batches of turns) and `probing_questions.json`.
//!
//! A batch is a session. Some messages carry a `time_anchor`, which dates the chat from there on. Questions carry no
//! date: they are asked at the store's latest time.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use crate::error::{Context, Error, Result};

use super::sink::Sink;
use super::store::{Request, Source, Store, Turn};
use super::value::{self, Fault, Object};
use super::{Format, Options, json};

/// Chats numbered up to here are for development, the others for the test.
const LAST_DEV_CHAT: u64 = 6;

/// The generator's bullet number, which stands at the end of a message: ` ->-> 1,2`, ` ->-> 2,N/A`, ` ->-> 5,14)`.
static MARKER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\s*->->\s*[0-9]+\s*,\s*([0-9]+|N/A)\)?\s*$").expect("the pattern is fixed and valid")
});

/// Reads a folder of chats, or one chat's folder.
pub fn read(path: &Path, options: &Options, sink: &mut Sink) -> Result<()> {
    for folder in chats(path)? {
        let store_id = folder_name(&folder)?;
        let mut store = Store::new(&options.tenant_id, &store_id);
        let chat = folder.join("chat.json");
        let Value::Array(batches) = json::read(&chat, Format::Beam)? else {
            return Err(wrong_top(&chat, "a JSON array of batches"));
        };
        add_turns(&mut store, batches, options);
        let questions = questions_file(&folder)?;
        let Value::Object(categories) = json::read(&questions, Format::Beam)? else {
            return Err(wrong_top(&questions, "a JSON object of question lists"));
        };
        sink.report.dropped_evidence += add_requests(&mut store, categories);
        sink.write(store)?;
    }
    Ok(())
}

/// The chats' folders: numbers in order, then names.
fn chats(path: &Path) -> Result<Vec<PathBuf>> {
    let fail = |e: Error| e.at(path.display().to_string()).next(format!("give {}", Format::Beam.expects()));
    if !path.is_dir() {
        return Err(fail(Error::data("is a file, not a folder")));
    }
    if path.join("chat.json").is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut folders = Vec::new();
    for entry in fs::read_dir(path).or_data("cannot be listed").map_err(fail)? {
        let folder = entry.or_data("cannot be listed").map_err(fail)?.path();
        if folder.join("chat.json").is_file() {
            let name = folder_name(&folder)?;
            folders.push((name.parse::<u64>().unwrap_or(u64::MAX), name, folder));
        }
    }
    folders.sort();
    if folders.is_empty() {
        return Err(fail(Error::data("no folder in it has a chat.json")));
    }
    Ok(folders.into_iter().map(|(_, _, folder)| folder).collect())
}

/// The chat's name, of `.` and `a/..` too.
fn folder_name(folder: &Path) -> Result<String> {
    let place = || folder.display().to_string();
    let whole = folder.canonicalize().or_data("cannot be read").map_err(|e| e.at(place()))?;
    let name = whole.file_name().and_then(|n| n.to_str()).map(str::to_owned);
    name.ok_or_else(|| Error::data("the folder's name is no text, and would be the store's id").at(place()))
}

/// BEAM's own repository has the questions in a folder of that name.
fn questions_file(folder: &Path) -> Result<PathBuf> {
    let beside = folder.join("probing_questions.json");
    let below = folder.join("probing_questions").join("probing_questions.json");
    let missing = || {
        Error::data("probing_questions.json is missing")
            .at(folder.display().to_string())
            .next("put it beside chat.json; a chat without questions has {} in it")
    };
    [beside, below].into_iter().find(|p| p.is_file()).ok_or_else(missing)
}

fn wrong_top(path: &Path, wanted: &str) -> Error {
    Error::data(format!("the top of the file has to be {wanted}"))
        .at(path.display().to_string())
        .next(format!("give {}", Format::Beam.expects()))
}

/// The date that holds from the last anchor on.
type Anchor = Option<i64>;

fn add_turns(store: &mut Store, batches: Vec<Value>, options: &Options) {
    let mut anchor: Anchor = None;
    for (n, element) in (1..).zip(batches) {
        let place = format!("batch {n}");
        let (id, turns) = match batch(element, n, &mut anchor, options) {
            Ok(read) => read,
            Err(fault) => {
                store.reject(Source::Turns, None, fault.at(&place));
                continue;
            }
        };
        let session = store.session(&id, None);
        let mut messages = Vec::new();
        flatten(turns, &mut messages);
        for (n, message) in (1..).zip(messages) {
            match turn(message, &mut anchor, options) {
                Ok(turn) => store.add_turn(session, turn),
                Err((id, fault)) => store.reject(Source::Turns, id, fault.at(&format!("{place}, message {n}"))),
            }
        }
    }
}

/// A batch's session id and its turns, as nested as they are.
fn batch(element: Value, n: u64, anchor: &mut Anchor, options: &Options) -> Result<(String, Value), Fault> {
    let mut batch = value::object("the batch", element)?;
    let id = value::id(&batch, "batch_number")?.unwrap_or_else(|| n.to_string());
    move_anchor(&batch, anchor, options)?;
    let turns = value::list(&mut batch, "turns")?.ok_or_else(|| Fault::missing("turns"))?;
    Ok((id, Value::Array(turns)))
}

fn flatten(value: Value, messages: &mut Vec<Value>) {
    match value {
        Value::Array(list) => list.into_iter().for_each(|v| flatten(v, messages)),
        message => messages.push(message),
    }
}

/// Takes an anchor over. After one that cannot be read, turns have no date until the next: an older one would be wrong.
fn move_anchor(object: &Object, anchor: &mut Anchor, options: &Options) -> Result<(), Fault> {
    let read = value::instant(object, "time_anchor", options.default_zone_offset_minutes);
    match read {
        Ok(None) => {}
        Ok(time) => *anchor = time,
        Err(fault) => {
            *anchor = None;
            return Err(fault);
        }
    }
    Ok(())
}

fn turn(element: Value, anchor: &mut Anchor, options: &Options) -> Result<Turn, (Option<String>, Fault)> {
    let mut message = value::object("the message", element).map_err(|f| (None, f))?;
    let id = value::id(&message, "id").map_err(|f| (None, f))?;
    let mut read = || {
        move_anchor(&message, anchor, options)?;
        let turn_id = id.clone().ok_or_else(|| Fault::missing("id"))?;
        let role = value::role(&message)?;
        let content = value::content(&mut message)?.map(|text| MARKER.replace(&text, "").into_owned());
        Ok(Turn { turn_id, spoken_at: *anchor, added_at: None, role, speaker: None, content })
    };
    read().map_err(|fault| (id.clone(), fault))
}

/// Adds the questions of every category; gives how much evidence is no turn.
fn add_requests(store: &mut Store, categories: Object) -> u64 {
    let (asked_at, split) = (store.latest(), split_of(&store.store_id));
    let mut dropped = 0;
    for (category, questions) in categories {
        let Value::Array(questions) = questions else {
            store.reject(Source::Requests, Some(category), Fault::wrong_type("the category", &questions, "a list"));
            continue;
        };
        for (index, element) in questions.into_iter().enumerate() {
            let request_id = format!("{category}:{index}");
            match question(element) {
                Ok((question, given)) => {
                    let (evidence, unknown): (Vec<_>, Vec<_>) = given.into_iter().partition(|id| store.has_turn(id));
                    dropped += unknown.len() as u64;
                    let split = Some(split.to_owned());
                    store.add_request(Request { request_id, question, asked_at, split, evidence });
                }
                Err(fault) => store.reject(Source::Requests, Some(request_id), fault),
            }
        }
    }
    dropped
}

fn split_of(store_id: &str) -> &'static str {
    if store_id.parse::<u64>().is_ok_and(|n| n <= LAST_DEV_CHAT) { "dev" } else { "test" }
}

fn question(element: Value) -> Result<(String, Vec<String>), Fault> {
    let mut question = value::object("the question", element)?;
    let mut evidence = Vec::new();
    if let Some(ids) = question.get("source_chat_ids") {
        collect_ids(ids, &mut evidence);
    }
    Ok((value::question(&mut question)?, evidence))
}

/// Every whole number, however deep.
fn collect_ids(value: &Value, ids: &mut Vec<String>) {
    match value {
        Value::Number(number) if !number.is_f64() => ids.push(number.to_string()),
        Value::Array(list) => list.iter().for_each(|v| collect_ids(v, ids)),
        Value::Object(map) => map.values().for_each(|v| collect_ids(v, ids)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strips_the_marker_at_the_end_only() {
        let strip = |text: &str| MARKER.replace(text, "").into_owned();
        assert_eq!(strip("Can you help? ->-> 1,1"), "Can you help?");
        assert_eq!(strip("Can you help? ->->  3,8\n"), "Can you help?");
        assert_eq!(strip("Can you help ->-> 2,N/A"), "Can you help");
        assert_eq!(strip("Can you help ->-> 5,14)"), "Can you help");
        assert_eq!(strip("a ->-> 1,1 stays, b too ->-> x"), "a ->-> 1,1 stays, b too ->-> x");
    }
}
