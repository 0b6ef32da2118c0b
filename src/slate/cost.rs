//! What a piece of a slate costs: o200k tokens, counted once a piece.

use datafusion::common::HashMap;

use super::render;
use crate::text::count_tokens;

/// Text that is remembered with its count, in bytes, before the memory is cleared.
const REMEMBERED_BYTES: usize = 16 << 20;

/// Counts tokens and remembers them: the requests of a store share most of their turns and all of their sessions.
#[derive(Debug, Default)]
pub struct Costs {
    lines: HashMap<String, i64>,
    headers: HashMap<Heading, Header>,
    bytes: usize,
}

/// What a session's header says: the arguments of [`render::header`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Heading {
    pub ordinal: i32,
    pub started_at: Option<i64>,
    pub zone_minutes: i32,
}

/// A session's header.
#[derive(Debug)]
pub struct Header {
    pub text: String,
    pub tokens: i64,
}

impl Costs {
    /// o200k tokens of the text.
    pub fn tokens(&mut self, text: &str) -> i64 {
        if let Some(tokens) = self.lines.get(text) {
            return *tokens;
        }
        let tokens = count_tokens(text) as i64;
        self.make_room(text.len());
        self.lines.insert(text.to_string(), tokens);
        tokens
    }

    /// The header, rendered and counted.
    pub fn header(&mut self, heading: Heading) -> &Header {
        if !self.headers.contains_key(&heading) {
            self.make_room(size_of::<(Heading, Header)>());
        }
        self.headers.entry(heading).or_insert_with(|| {
            let text = render::header(heading.ordinal, heading.started_at, heading.zone_minutes);
            Header { tokens: count_tokens(&text) as i64, text }
        })
    }

    fn make_room(&mut self, bytes: usize) {
        if self.bytes + bytes > REMEMBERED_BYTES {
            *self = Costs::default();
        }
        self.bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_what_was_counted() {
        let mut costs = Costs::default();
        let long = "word ".repeat(REMEMBERED_BYTES / 10);
        for text in ["hello world", &long, &long, "hello world", "", "hello world"] {
            assert_eq!(costs.tokens(text), count_tokens(text) as i64);
        }
        // "hello world" is two tokens: a word, and a word with its space.
        assert_eq!(costs.tokens("hello world"), 2);
    }

    #[test]
    fn headers_of_equal_sessions_of_different_stores_or_zones_are_apart() {
        let mut costs = Costs::default();
        let headings = [(0, None, 0), (0, Some(0), 0), (0, Some(0), 540), (1, None, 0)];
        let texts = ["### Session 1\n", "### Session 1 (1970-01-01 00:00)\n", "### Session 1 (1970-01-01 09:00)\n"];
        for _ in 0..2 {
            for ((ordinal, started_at, zone_minutes), text) in
                headings.into_iter().zip(texts.into_iter().chain(["### Session 2\n"]))
            {
                let header = costs.header(Heading { ordinal, started_at, zone_minutes });
                assert_eq!((header.text.as_str(), header.tokens), (text, count_tokens(text) as i64));
            }
        }
    }
}
