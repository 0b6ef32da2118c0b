//! LongMemEval: each instance is a question with a history of its own, so a store is named as its question.
//!
//! A session's date is that of all its turns. A turn with `has_answer: true` is evidence; questions whose id has
//! `_abs` cannot be answered and have none.

use std::collections::HashSet;
use std::path::Path;

use serde_json::Value;

use crate::error::Result;

use super::sink::Sink;
use super::store::{Reject, Request, Source, Store, Turn};
use super::value::{self, Fault, Object};
use super::{Format, Options, json};

/// Reads a file one instance at a time.
pub fn read(path: &Path, options: &Options, sink: &mut Sink) -> Result<()> {
    let mut seen = HashSet::new();
    json::each_element(path, Format::LongMemEval, false, &mut |index, element| {
        let (id, store) = match instance(element, options) {
            Ok(store) => (Some(store.store_id.clone()), Ok(store)),
            Err((id, fault)) => (id, Err(fault)),
        };
        let store = store.and_then(|store| {
            let twice = Fault::new("occurs twice", format!("question_id {:?} occurs twice", store.store_id));
            if seen.insert(store.store_id.clone()) { Ok(store) } else { Err(twice) }
        });
        match store {
            Ok(store) => sink.write(store),
            Err(fault) => {
                let fault = fault.at(&format!("instance {}", index + 1));
                let reject = Reject { source: Source::Requests, row_id: id.clone(), fault };
                sink.reject(&options.tenant_id, id.as_deref(), &reject)
            }
        }
    })
}

/// One history with its question, or why the instance as a whole is set aside.
fn instance(element: Value, options: &Options) -> Result<Store, (Option<String>, Fault)> {
    let mut instance = value::object("the instance", element).map_err(|f| (None, f))?;
    let id = value::id(&instance, "question_id")
        .and_then(|id| id.ok_or_else(|| Fault::missing("question_id")))
        .map_err(|f| (None, f))?;
    let sessions = sessions(&mut instance).map_err(|f| (Some(id.clone()), f))?;

    let mut store = Store::new(&options.tenant_id, &id);
    let mut evidence = Vec::new();
    for session in sessions {
        add_session(&mut store, session, options, &mut evidence);
    }
    if id.contains("_abs") {
        evidence.clear();
    }
    match request(&mut instance, &id, options, evidence) {
        Ok(request) => store.add_request(request),
        Err(fault) => store.reject(Source::Requests, Some(id), fault),
    }
    Ok(store)
}

struct RawSession {
    /// Unique in its instance.
    id: String,
    date: Value,
    turns: Value,
}

/// Puts the three parallel lists together.
fn sessions(instance: &mut Object) -> Result<Vec<RawSession>, Fault> {
    let mut lists = Vec::new();
    for name in ["haystack_session_ids", "haystack_dates", "haystack_sessions"] {
        lists.push(value::list(instance, name)?.ok_or_else(|| Fault::missing(name))?);
    }
    let lengths: Vec<usize> = lists.iter().map(Vec::len).collect();
    if lengths.iter().any(|n| *n != lengths[0]) {
        let reason = format!(
            "haystack_session_ids, haystack_dates and haystack_sessions have {}, {} and {} entries",
            lengths[0], lengths[1], lengths[2]
        );
        return Err(Fault::new("wrong length", reason));
    }
    let mut columns = lists.into_iter();
    let mut next = || columns.next().unwrap_or_default();
    let ids = next().iter().enumerate().map(|(i, v)| session_id(i, v)).collect::<Result<Vec<_>, _>>()?;
    let rows = unique(ids).into_iter().zip(next()).zip(next());
    Ok(rows.map(|((id, date), turns)| RawSession { id, date, turns }).collect())
}

fn session_id(index: usize, id: &Value) -> Result<String, Fault> {
    let name = format!("haystack_session_ids, entry {},", index + 1);
    value::id_of(&name, id)?.ok_or_else(|| Fault::missing(&name))
}

/// Sessions of one id are told apart: the second `s` becomes `s#2`.
fn unique(ids: Vec<String>) -> Vec<String> {
    let given: HashSet<String> = ids.iter().cloned().collect();
    let mut used = HashSet::new();
    let mut names = Vec::with_capacity(ids.len());
    for id in ids {
        let mut name = id.clone();
        let mut n = 1;
        while used.contains(&name) || (n > 1 && given.contains(&name)) {
            n += 1;
            name = format!("{id}#{n}");
        }
        used.insert(name.clone());
        names.push(name);
    }
    names
}

fn add_session(store: &mut Store, raw: RawSession, options: &Options, evidence: &mut Vec<String>) {
    let mut dated = Object::new();
    dated.insert("haystack_date".to_owned(), raw.date);
    let date = value::instant(&dated, "haystack_date", options.default_zone_offset_minutes);
    let turns = match raw.turns {
        Value::Array(turns) => turns,
        other => return store.reject(Source::Turns, Some(raw.id), Fault::wrong_type("the session", &other, "a list")),
    };
    let session = store.session(&raw.id, date.clone().ok().flatten());
    for (n, element) in (1..).zip(turns) {
        let turn_id = format!("{}:{n}", raw.id);
        match turn(&turn_id, element, &date) {
            Ok((turn, has_answer)) => {
                store.add_turn(session, turn);
                evidence.extend(has_answer.then_some(turn_id));
            }
            Err(fault) => store.reject(Source::Turns, Some(turn_id), fault),
        }
    }
}

fn turn(turn_id: &str, element: Value, date: &Result<Option<i64>, Fault>) -> Result<(Turn, bool), Fault> {
    let mut message = value::object("the turn", element)?;
    let has_answer = message.get("has_answer").and_then(Value::as_bool).unwrap_or(false);
    let turn = Turn {
        turn_id: turn_id.to_owned(),
        spoken_at: date.clone()?,
        added_at: None,
        role: value::role(&message)?,
        speaker: None,
        content: value::content(&mut message)?,
    };
    Ok((turn, has_answer))
}

fn request(instance: &mut Object, id: &str, options: &Options, evidence: Vec<String>) -> Result<Request, Fault> {
    Ok(Request {
        request_id: id.to_owned(),
        question: value::question(instance)?,
        asked_at: value::instant(instance, "question_date", options.default_zone_offset_minutes)?,
        split: options.split.clone(),
        evidence,
    })
}
