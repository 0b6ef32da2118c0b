//! Values out of JSON objects, as the sources have them; a value that cannot be read says why.

use serde_json::{Map, Value};

use crate::text::dates;

pub type Object = Map<String, Value>;

/// Why a row is set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The kind of reason, which is counted.
    pub kind: &'static str,
    /// The reason in full.
    pub reason: String,
}

impl Fault {
    pub fn new(kind: &'static str, reason: impl Into<String>) -> Self {
        Fault { kind, reason: reason.into() }
    }

    pub fn missing(name: &str) -> Self {
        Fault::new("missing value", format!("{name} is missing"))
    }

    pub fn wrong_type(name: &str, value: &Value, wanted: &str) -> Self {
        Fault::new("wrong type", format!("{name} is {}, not {wanted}", shown(value)))
    }

    /// Names the place of the row in the input.
    pub fn at(mut self, place: &str) -> Self {
        self.reason = format!("{place}: {}", self.reason);
        self
    }
}

/// A value as a reason quotes it: short, whatever it is.
pub fn shown(value: &Value) -> String {
    const MAX_CHARS: usize = 60;
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        other => {
            let text = other.to_string();
            match text.char_indices().nth(MAX_CHARS) {
                Some((end, _)) => format!("{}...", &text[..end]),
                None => text,
            }
        }
    }
}

/// A text; `None` where it is missing or null.
pub fn text(object: &mut Object, name: &str) -> Result<Option<String>, Fault> {
    match object.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(Fault::wrong_type(name, &other, "a text")),
    }
}

/// A question: a text that is not blank.
pub fn question(object: &mut Object) -> Result<String, Fault> {
    text(object, "question")?.filter(|q| !q.trim().is_empty()).ok_or_else(|| Fault::missing("question"))
}

/// An id: a text, or a whole number as text; `None` where it is missing, null or empty.
pub fn id(object: &Object, name: &str) -> Result<Option<String>, Fault> {
    object.get(name).map_or(Ok(None), |value| id_of(name, value))
}

/// An id out of a value.
pub fn id_of(name: &str, value: &Value) -> Result<Option<String>, Fault> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone()).filter(|t| !t.is_empty())),
        Value::Number(number) if !number.is_f64() => Ok(Some(number.to_string())),
        other => Err(Fault::wrong_type(name, other, "a text or a whole number")),
    }
}

/// A time in microseconds UTC: text of any known layout, or epoch seconds; `None` where it is missing or null.
pub fn instant(object: &Object, name: &str, default_offset_minutes: i32) -> Result<Option<i64>, Fault> {
    let Some(value) = object.get(name).filter(|v| !v.is_null()) else { return Ok(None) };
    let read = match value {
        Value::String(text) => dates::parse_instant(text, default_offset_minutes),
        Value::Number(number) => number.as_f64().and_then(dates::instant_of_epoch),
        other => return Err(Fault::wrong_type(name, other, "a time")),
    };
    read.map(Some).ok_or_else(|| unreadable_date(name, value))
}

pub fn unreadable_date(name: &str, value: &Value) -> Fault {
    Fault::new("unreadable date", format!("{name} {} cannot be read as a time", shown(value)))
}

/// The role, under one of the four names that we keep.
pub fn role(object: &Object) -> Result<&'static str, Fault> {
    match object.get("role") {
        None | Some(Value::Null) => Err(Fault::missing("role")),
        Some(Value::String(role)) => match role.as_str() {
            "user" => Ok("user"),
            "assistant" => Ok("assistant"),
            "system" | "developer" => Ok("system"),
            "tool" | "function" => Ok("tool"),
            _ => Err(Fault::new(
                "unknown role",
                format!("role {} is not user, assistant, system or tool", shown(&object["role"])),
            )),
        },
        Some(other) => Err(Fault::wrong_type("role", other, "a text")),
    }
}

/// The text of a message: a text as it is, or the texts in a list of parts, one a line. `None` where there is none,
/// as in a tool call. Images and sounds are left out.
pub fn content(object: &mut Object) -> Result<Option<String>, Fault> {
    match object.remove("content") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(Value::Array(parts)) => parts_text(parts),
        Some(other) => Err(Fault::wrong_type("content", &other, "a text, null or a list of parts")),
    }
}

fn parts_text(parts: Vec<Value>) -> Result<Option<String>, Fault> {
    let mut texts = Vec::new();
    for part in parts {
        match part {
            Value::String(text) => texts.push(text),
            Value::Object(mut part) => {
                if matches!(part.get("type").and_then(Value::as_str), Some("text" | "input_text" | "output_text")) {
                    texts.extend(text(&mut part, "text")?);
                }
            }
            other => return Err(Fault::wrong_type("a part of content", &other, "an object")),
        }
    }
    Ok((!texts.is_empty()).then(|| texts.join("\n")))
}

/// The line that is stored: the speaker's name before the text. A blank text stays blank: a name alone says nothing.
pub fn line(speaker: Option<&str>, content: Option<String>) -> Option<String> {
    match (speaker, content) {
        (Some(name), Some(text)) if !text.trim().is_empty() => Some(format!("{name}: {text}")),
        (_, content) => content,
    }
}

/// An object, or a fault that names it.
pub fn object(name: &str, value: Value) -> Result<Object, Fault> {
    match value {
        Value::Object(object) => Ok(object),
        other => Err(Fault::wrong_type(name, &other, "an object")),
    }
}

/// A list; `None` where it is missing or null.
pub fn list(object: &mut Object, name: &str) -> Result<Option<Vec<Value>>, Fault> {
    match object.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(list)) => Ok(Some(list)),
        Some(other) => Err(Fault::wrong_type(name, &other, "a list")),
    }
}
