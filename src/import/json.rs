//! JSON files, whole or one element of a long array at a time: a benchmark's file may be larger than the memory.

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::error::Category;

use crate::error::{Context, Error, Result};

use super::Format;

/// Calls `each` with every element of the array at the top of a file, in order, holding one at a time. Where
/// `alone` is set, one object at the top is an array of one.
pub fn each_element(
    path: &Path,
    format: Format,
    alone: bool,
    each: &mut dyn FnMut(usize, Value) -> Result<()>,
) -> Result<()> {
    let mut reader = open(path, format)?;
    match first_byte(&mut reader).or_data("cannot be read").map_err(|e| at(e, path))? {
        Some(b'[') => {}
        Some(b'{') if alone => return each(0, value(reader, path)?),
        found => return Err(at(wrong_top(found), path).next(format!("give {}", format.expects()))),
    }
    let mut failed = None;
    let mut deserializer = serde_json::Deserializer::from_reader(reader);
    let read = deserializer.deserialize_seq(Each { each, failed: &mut failed }).and_then(|()| deserializer.end());
    match (failed, read) {
        (Some(e), _) => Err(e),
        (None, Err(e)) => Err(broken(e, path)),
        (None, Ok(())) => Ok(()),
    }
}

/// Reads a file as one value.
pub fn read(path: &Path, format: Format) -> Result<Value> {
    let mut reader = open(path, format)?;
    first_byte(&mut reader).or_data("cannot be read").map_err(|e| at(e, path))?;
    value(reader, path)
}

/// Opens a file.
fn open(path: &Path, format: Format) -> Result<BufReader<File>> {
    let expects = || format!("give {}", format.expects());
    if path.is_dir() {
        return Err(at(Error::data("is a folder, not a file"), path).next(expects()));
    }
    let file = File::open(path).or_data("cannot be opened").map_err(|e| at(e, path).next(expects()))?;
    Ok(BufReader::with_capacity(1 << 20, file))
}

fn value(reader: impl BufRead, path: &Path) -> Result<Value> {
    serde_json::from_reader(reader).map_err(|e| broken(e, path))
}

/// The first byte that is not white space or a byte order mark; it stays in the reader.
fn first_byte(reader: &mut BufReader<File>) -> std::io::Result<Option<u8>> {
    loop {
        match reader.fill_buf()?.first().copied() {
            Some(b) if b.is_ascii_whitespace() || [0xEF, 0xBB, 0xBF].contains(&b) => reader.consume(1),
            other => return Ok(other),
        }
    }
}

fn wrong_top(found: Option<u8>) -> Error {
    let found = match found {
        None => "nothing: the file is empty",
        Some(b'{') => "an object",
        Some(_) => "something else",
    };
    Error::data(format!("the top of the file has to be a JSON array, and is {found}"))
}

fn broken(e: serde_json::Error, path: &Path) -> Error {
    let next = match flaw(&e) {
        Flaw::Cut => "get the file again: it may have been cut off",
        Flaw::Syntax => "the line and column say where: get the file again, or mend it there",
        Flaw::NotUtf8 => "save the file as UTF-8",
        Flaw::HalfCharacter => "a \\u escape from D800 to DFFF must be one of two: mend it where line and column say",
        Flaw::TooDeep => "no layout that can be read nests so deep: look where line and column say",
        Flaw::Unreadable => "look after the disk that the file is on",
    };
    at(Error::data(flaw(&e).says()).source(e), path).next(next)
}

/// Why a text is no JSON that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    Cut,
    Syntax,
    NotUtf8,
    /// A surrogate without its other half.
    HalfCharacter,
    TooDeep,
    Unreadable,
}

/// The parser tells its errors apart by their words alone.
pub fn flaw(e: &serde_json::Error) -> Flaw {
    let says = |what: &str| e.to_string().starts_with(what);
    match e.classify() {
        Category::Io => Flaw::Unreadable,
        Category::Eof => Flaw::Cut,
        _ if says("invalid unicode code point") => Flaw::NotUtf8,
        _ if says("lone leading surrogate") || says("unexpected end of hex escape") => Flaw::HalfCharacter,
        _ if says("recursion limit exceeded") => Flaw::TooDeep,
        _ => Flaw::Syntax,
    }
}

impl Flaw {
    pub fn says(self) -> &'static str {
        match self {
            Flaw::Cut => "is not whole JSON",
            Flaw::Syntax => "is not JSON",
            Flaw::NotUtf8 => "is not UTF-8",
            Flaw::HalfCharacter => "holds half a character",
            Flaw::TooDeep => "is nested deeper than 127 levels",
            Flaw::Unreadable => "cannot be read",
        }
    }
}

fn at(e: Error, path: &Path) -> Error {
    e.at(path.display().to_string())
}

struct Each<'a> {
    each: &'a mut dyn FnMut(usize, Value) -> Result<()>,
    failed: &'a mut Option<Error>,
}

impl<'de> Visitor<'de> for Each<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> std::result::Result<(), A::Error> {
        let mut index = 0;
        while let Some(element) = elements.next_element()? {
            if let Err(e) = (self.each)(index, element) {
                *self.failed = Some(e);
                return Err(A::Error::custom("stopped"));
            }
            index += 1;
        }
        Ok(())
    }
}
