//! Chat messages in JSON lines: one conversation a line, messages as the OpenAI chat API has them.
//!
//! `{"tenant_id"?, "store_id" or "user_id", "session_id" or "id", "started_at"?, "added_at"?, "messages": [{"role",
//! "content", "name"?, "created_at"?, "added_at"?, "id"?}]}`. In a folder, files named `requests*.jsonl` hold
//! requests: `{"tenant_id"?, "store_id" or "user_id", "request_id", "question", "asked_at"?, "split"?, "evidence"?}`.
//!
//! The lines of a store may stand anywhere: a first pass notes where, a second reads one store at a time.

use std::path::Path;

use serde_json::Value;

use crate::error::Result;

use super::Options;
use super::sink::Sink;
use super::store::{Request, Source, Store, Turn};
use super::value::{self, Fault, Object};

mod index;

use index::{Index, Reader};

/// Reads a file, or every `*.jsonl` of a folder. Stores are written in the order of their ids.
pub fn read(path: &Path, options: &Options, sink: &mut Sink) -> Result<()> {
    let index = Index::of(path, options, sink)?;
    let mut reader = Reader::new(&index);
    for ((tenant_id, store_id), lines) in &index.stores {
        let mut store = Store::new(tenant_id, store_id);
        for line in &lines.conversations {
            let place = index.place(line);
            match reader.object(line)? {
                Ok(conversation) => add_conversation(&mut store, conversation, &place, options),
                Err(fault) => store.reject(Source::Turns, None, fault.at(&place)),
            }
        }
        for line in &lines.requests {
            let place = index.place(line);
            match reader.object(line)? {
                Ok(request) => add_request(&mut store, request, &place, options),
                Err(fault) => store.reject(Source::Requests, None, fault.at(&place)),
            }
        }
        sink.write(store)?;
    }
    Ok(())
}

/// What a conversation says for all its messages.
struct Context<'a> {
    started_at: Result<Option<i64>, Fault>,
    added_at: Result<Option<i64>, Fault>,
    options: &'a Options,
}

fn add_conversation(store: &mut Store, mut conversation: Object, place: &str, options: &Options) {
    let (session_id, messages) = match session(&mut conversation) {
        Ok(read) => read,
        Err(fault) => return store.reject(Source::Turns, None, fault.at(place)),
    };
    let time = |name| value::instant(&conversation, name, options.default_zone_offset_minutes);
    let context = Context { started_at: time("started_at"), added_at: time("added_at"), options };
    let session = store.session(&session_id, context.started_at.clone().ok().flatten());
    for (n, message) in (1..).zip(messages) {
        let default_id = format!("{session_id}:{n}");
        match turn(message, default_id, &context) {
            Ok(turn) => store.add_turn(session, turn),
            Err((id, fault)) => {
                store.reject(Source::Turns, Some(id), fault.at(&format!("{place}, message {n}")));
            }
        }
    }
}

fn session(conversation: &mut Object) -> Result<(String, Vec<Value>), Fault> {
    let id = match value::id(conversation, "session_id")? {
        Some(id) => id,
        None => value::id(conversation, "id")?.ok_or_else(|| Fault::missing("session_id"))?,
    };
    let messages = value::list(conversation, "messages")?.ok_or_else(|| Fault::missing("messages"))?;
    Ok((id, messages))
}

fn turn(message: Value, default_id: String, context: &Context<'_>) -> Result<Turn, (String, Fault)> {
    let mut message = value::object("the message", message).map_err(|f| (default_id.clone(), f))?;
    let turn_id = match value::id(&message, "id") {
        Ok(id) => id.unwrap_or(default_id),
        Err(fault) => return Err((default_id, fault)),
    };
    let mut read = || {
        let role = value::role(&message)?;
        let speaker = value::text(&mut message, "name")?.filter(|name| !name.trim().is_empty());
        let content = value::line(speaker.as_deref(), value::content(&mut message)?);
        let time = |name, otherwise: &Result<Option<i64>, Fault>| match value::instant(
            &message,
            name,
            context.options.default_zone_offset_minutes,
        )? {
            Some(time) => Ok(Some(time)),
            None => otherwise.clone(),
        };
        let spoken_at = time("created_at", &context.started_at)?;
        let added_at = time("added_at", &context.added_at)?;
        Ok((role, speaker, content, spoken_at, added_at))
    };
    match read() {
        Ok((role, speaker, content, spoken_at, added_at)) => {
            Ok(Turn { turn_id, spoken_at, added_at, role, speaker, content })
        }
        Err(fault) => Err((turn_id, fault)),
    }
}

fn add_request(store: &mut Store, mut object: Object, place: &str, options: &Options) {
    let request_id = match value::id(&object, "request_id") {
        Ok(Some(id)) => id,
        Ok(None) => return store.reject(Source::Requests, None, Fault::missing("request_id").at(place)),
        Err(fault) => return store.reject(Source::Requests, None, fault.at(place)),
    };
    match request(&mut object, &request_id, options) {
        Ok((mut request, given)) => {
            let mut unknown = Vec::new();
            for id in given {
                match id {
                    Ok(id) if store.has_turn(&id) => request.evidence.push(id),
                    Ok(id) => unknown.push(Fault::new(
                        "unknown evidence",
                        format!("evidence {} is no turn of the store", value::shown(&id.into())),
                    )),
                    Err(fault) => unknown.push(fault),
                }
            }
            store.add_request(request);
            for fault in unknown {
                store.reject(Source::Labels, Some(request_id.clone()), fault.at(place));
            }
        }
        Err(fault) => store.reject(Source::Requests, Some(request_id), fault.at(place)),
    }
}

/// A request without its evidence, and the ids of turns that it gives.
type Given = (Request, Vec<Result<String, Fault>>);

fn request(object: &mut Object, request_id: &str, options: &Options) -> Result<Given, Fault> {
    let evidence = value::list(object, "evidence")?.unwrap_or_default();
    let ids = evidence.iter().map(|v| value::id_of("evidence", v)?.ok_or_else(|| Fault::missing("an id in evidence")));
    let split = value::text(object, "split")?;
    if let Some(other) = split.as_deref().filter(|s| !matches!(*s, "dev" | "test")) {
        return Err(Fault::new("unknown split", format!("split {} is not dev or test", value::shown(&other.into()))));
    }
    let request = Request {
        request_id: request_id.to_owned(),
        question: value::question(object)?,
        asked_at: value::instant(object, "asked_at", options.default_zone_offset_minutes)?,
        split: split.or_else(|| options.split.clone()),
        evidence: Vec::new(),
    };
    Ok((request, ids.collect()))
}
