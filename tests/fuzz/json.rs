//! Changes JSON so that it stays JSON: bytes changed at random are refused by the parser, and nothing behind it is tried.

use serde_json::{Map, Value};

/// Keys and values that an importer may look for; a fuzzer would not find them.
const KEYS: [&str; 30] = [
    "added_at",
    "answer_session_ids",
    "batch_number",
    "blip_caption",
    "category",
    "content",
    "conversation",
    "created_at",
    "dia_id",
    "evidence",
    "has_answer",
    "haystack_dates",
    "haystack_session_ids",
    "haystack_sessions",
    "id",
    "messages",
    "qa",
    "question",
    "question_date",
    "question_id",
    "role",
    "sample_id",
    "session_1",
    "session_1_date_time",
    "session_id",
    "source_chat_ids",
    "speaker",
    "store_id",
    "text",
    "time_anchor",
];
const TEXTS: [&str; 16] = [
    "",
    " ",
    "user",
    "tool",
    "nobody",
    "D1:1",
    "D:1:99999999999",
    "2023-05-20T10:00:00Z",
    "1:56 pm on 8 May, 2023",
    "2023/05/20 (Sat) 02:21",
    "March-15-2024",
    "\u{0}",
    "今天玩成语接龙",
    "e\u{301}\u{200d}\u{1f469}",
    "->-> 1,2",
    "x:1",
];

/// Random numbers: xorshift, so that a seed says all.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u32) -> Self {
        Dice(u64::from(seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Below `n`.
    fn roll(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n.max(1)
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.roll(all.len())]
    }
}

/// Changes one to four places of a document; nothing where it is no JSON.
pub fn changed(bytes: &[u8], seed: u32) -> Option<Vec<u8>> {
    let mut root: Value = serde_json::from_slice(bytes).ok()?;
    let mut dice = Dice::new(seed);
    for _ in 0..=dice.roll(4) {
        change(&mut root, &mut dice);
    }
    serde_json::to_vec(&root).ok()
}

/// Goes down at random, and changes what it stops at.
fn change(value: &mut Value, dice: &mut Dice) {
    let stop = dice.roll(6) == 0;
    match value {
        Value::Array(list) if !list.is_empty() && !stop => {
            let at = dice.roll(list.len());
            match dice.roll(8) {
                0 => drop(list.remove(at)),
                1 => list.insert(at, list[at].clone()),
                2 => list.swap(at, 0),
                _ => change(&mut list[at], dice),
            }
        }
        Value::Object(map) if !map.is_empty() && !stop => {
            let at = dice.roll(map.len());
            let key = map.keys().nth(at).cloned().unwrap_or_default();
            match dice.roll(8) {
                0 => drop(map.remove(&key)),
                1 => drop(map.insert(dice.of(&KEYS).into(), map[&key].clone())),
                2 => drop(map.insert(dice.of(&KEYS).into(), other(dice))),
                _ => change(&mut map[&key], dice),
            }
        }
        value => *value = other(dice),
    }
}

fn other(dice: &mut Dice) -> Value {
    match dice.roll(10) {
        0 => Value::Null,
        1 => Value::Bool(dice.roll(2) == 0),
        2 => Value::from(dice.roll(6)),
        3 => Value::from(i64::MIN),
        4 => Value::from(1.7e18),
        5 => Value::Array(vec![other(dice)]),
        6 => Value::Object(Map::from_iter([(dice.of(&KEYS).to_string(), other(dice))])),
        7 => Value::from("ab ".repeat(dice.roll(200))),
        _ => Value::from(dice.of(&TEXTS)),
    }
}

/// As a libFuzzer mutator: mostly JSON that stays JSON, sometimes any bytes. `parts` are separated as the target says.
pub fn mutate(data: &mut [u8], size: usize, max: usize, seed: u32, separator: Option<&[u8]>) -> Option<usize> {
    let mut dice = Dice::new(seed ^ 0x5EED);
    let whole = &data[..size];
    let mut parts: Vec<Vec<u8>> = match separator {
        Some(mark) => match whole.windows(mark.len()).position(|w| w == mark) {
            Some(at) => vec![whole[..at].to_vec(), whole[at + mark.len()..].to_vec()],
            None => vec![whole.to_vec()],
        },
        None => vec![whole.to_vec()],
    };
    let part = dice.roll(parts.len());
    // One document, or one line of several.
    parts[part] = match changed(&parts[part], seed) {
        Some(new) => new,
        None => {
            let mut lines: Vec<Vec<u8>> = parts[part].split(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
            let line = dice.roll(lines.len());
            lines[line] = changed(&lines[line], seed)?;
            lines.join(&b'\n')
        }
    };
    let new = parts.join(separator.unwrap_or_default());
    if new.len() > max {
        return None;
    }
    data[..new.len()].copy_from_slice(&new);
    Some(new.len())
}
