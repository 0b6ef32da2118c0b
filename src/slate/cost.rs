//! What a piece of a slate costs: o200k tokens, counted once a piece.

use datafusion::common::HashMap;

use crate::text::count_tokens;

/// Text that is remembered with its count, in bytes, before the memory is cleared.
const REMEMBERED_BYTES: usize = 16 << 20;

/// Counts tokens and remembers them: the requests of a store share most of their turns.
#[derive(Debug, Default)]
pub struct Costs {
    known: HashMap<String, i64>,
    bytes: usize,
}

impl Costs {
    /// o200k tokens of the text.
    pub fn tokens(&mut self, text: &str) -> i64 {
        if let Some(tokens) = self.known.get(text) {
            return *tokens;
        }
        let tokens = count_tokens(text) as i64;
        if self.bytes + text.len() > REMEMBERED_BYTES {
            self.known.clear();
            self.bytes = 0;
        }
        self.bytes += text.len();
        self.known.insert(text.to_string(), tokens);
        tokens
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
}
