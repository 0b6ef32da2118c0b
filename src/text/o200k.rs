//! Counts of o200k tokens: the unit of every budget.
//!
//! The counts are tiktoken's, whose tokens never reach beyond a piece of its pattern. So a text is cut into these pieces
//! here ([`super::pieces`], and the pattern itself where a piece is not ASCII), and the count of a piece, which is most
//! often a word that was seen before, is remembered.
//!
//! One kind of piece is beyond the library's matcher, whose lookahead for blanks keeps a mark for each character and
//! gives up at a million of them: a very long run of blanks is counted here.

use std::cell::RefCell;
use std::collections::{BinaryHeap, HashMap};
use std::sync::LazyLock;

use datafusion::common::HashMap as FastMap;
use regex::Regex;

use super::pieces;

/// Blanks in a row that are left to the library.
const LONG_BLANKS: usize = 10_000;
/// Pieces that a thread remembers, and the longest of them in bytes.
const REMEMBERED: usize = 1 << 16;
const LONGEST_REMEMBERED: usize = 32;

/// The number of o200k tokens of a text. Names of special tokens in it are text like any other.
///
/// Takes time in proportion to the text (times a logarithm for a word without end), whatever it holds.
pub fn count_tokens(text: &str) -> usize {
    KNOWN.with_borrow_mut(|known| pieces_of(text).map(|piece| count_known(piece, known)).sum())
}

thread_local! {
    static KNOWN: RefCell<FastMap<Box<str>, u32>> = RefCell::default();
}

fn count_known(piece: &str, known: &mut FastMap<Box<str>, u32>) -> usize {
    if piece.len() > LONGEST_REMEMBERED {
        return count_piece(piece);
    }
    if let Some(&tokens) = known.get(piece) {
        return tokens as usize;
    }
    let tokens = count_piece(piece);
    if known.len() == REMEMBERED {
        known.clear();
    }
    known.insert(piece.into(), tokens as u32);
    tokens
}

fn count_piece(piece: &str) -> usize {
    if piece.len() >= LONG_BLANKS && piece.chars().all(char::is_whitespace) {
        return count_merges(piece.as_bytes());
    }
    tiktoken_rs::o200k_base_singleton().count_ordinary(piece)
}

/// o200k's pattern without its lookahead `\s+(?!\S)`, which [`pieces`] does by hand.
static PIECE: LazyLock<Regex> = LazyLock::new(|| {
    let upper = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}";
    let lower = r"\p{Ll}\p{Lm}\p{Lo}\p{M}";
    let lead = r"[^\r\n\p{L}\p{N}]?";
    let ends = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?";
    let pattern = format!(
        r"{lead}[{upper}]*[{lower}]+{ends}|{lead}[{upper}]+[{lower}]*{ends}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|(\s+)"
    );
    Regex::new(&pattern).expect("the pattern is constant")
});

/// The pieces in which tokens are sought: o200k's own.
fn pieces_of(text: &str) -> impl Iterator<Item = &str> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at;
        if start == text.len() {
            return None;
        }
        at = pieces::end(text.as_bytes(), start).unwrap_or_else(|| by_pattern(text, start));
        Some(&text[start..at])
    })
}

/// Where the piece that begins at `at` ends. Every character begins some piece.
fn by_pattern(text: &str, at: usize) -> usize {
    let found = PIECE.captures_at(text, at).expect("some alternative takes any character");
    let whole = found.get(0).expect("group 0 is the match");
    // Blanks before a word leave it their last one.
    if found.get(1).is_some() && whole.end() < text.len() {
        let last = whole.as_str().chars().next_back().map_or(0, char::len_utf8);
        if last < whole.len() {
            return whole.end() - last;
        }
    }
    whole.end()
}

/// Every token that stands for blanks or a part of one, with its rank.
static BLANKS: LazyLock<HashMap<Vec<u8>, u32>> = LazyLock::new(|| {
    let library = tiktoken_rs::o200k_base_singleton();
    let used: Vec<u8> = (0..=0x3000u32)
        .filter_map(char::from_u32)
        .filter(|c| c.is_whitespace())
        .flat_map(|c| c.to_string().into_bytes())
        .collect();
    (0..200_000u32)
        .filter_map(|rank| Some((library.decode_bytes(&[rank]).ok()?, rank)))
        .filter(|(bytes, _)| bytes.iter().all(|b| used.contains(b)))
        .collect()
});

/// Byte-pair merges of one piece of blanks: the pair of the lowest rank first, the leftmost of equals.
fn count_merges(piece: &[u8]) -> usize {
    let n = piece.len();
    // A part begins at each `i` with `next[i] > i`; 0 marks a byte that was merged away.
    let mut next: Vec<usize> = (1..=n).collect();
    let mut previous: Vec<usize> = (0..n).map(|i| i.wrapping_sub(1)).collect();
    let rank = |from: usize, to: usize| BLANKS.get(&piece[from..to]).copied();
    let mut heap = BinaryHeap::with_capacity(n);
    let offer = |heap: &mut BinaryHeap<_>, next: &[usize], left: usize| {
        let middle = next[left];
        if middle < n
            && let Some(rank) = rank(left, next[middle])
        {
            heap.push(std::cmp::Reverse((rank, left, middle, next[middle])));
        }
    };
    (0..n).for_each(|i| offer(&mut heap, &next, i));
    let mut parts = n;
    while let Some(std::cmp::Reverse((_, left, middle, end))) = heap.pop() {
        if next[left] != middle || next.get(middle) != Some(&end) {
            continue; // one of the two was merged since
        }
        next[left] = end;
        next[middle] = 0;
        parts -= 1;
        if end < n {
            previous[end] = left;
        }
        offer(&mut heap, &next, left);
        if left > 0 {
            offer(&mut heap, &next, previous[left]);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reference(text: &str) -> usize {
        tiktoken_rs::o200k_base_singleton().encode_ordinary(text).len()
    }

    #[test]
    fn counts_what_tiktoken_counts() {
        // Counts published with tiktoken and by OpenAI's tokenizer page.
        assert_eq!(count_tokens(""), 0);
        assert_eq!(count_tokens("hello world"), 2);
        assert_eq!(count_tokens("tiktoken is great!"), 6);
    }

    #[test]
    fn names_of_special_tokens_are_text() {
        assert!(count_tokens("<|endoftext|>") > 1);
    }

    #[test]
    fn a_million_characters_of_any_kind_are_counted() {
        // A matcher or a merge that takes time in the square of the text would not end here.
        for (text, least) in [
            ("a".repeat(1_000_000), 1),
            ("A".repeat(1_000_000), 1),
            // Three digits at most make a token.
            ("1".repeat(1_000_000), 333_334),
            ("字".repeat(300_000), 1),
            ("!".repeat(1_000_000), 1),
            ("\n".repeat(1_000_000), 1),
            ("Ab".repeat(500_000), 1),
            (" ".repeat(3_000_000), 1),
            (" ".repeat(3_000_000) + "x", 2),
            ("\u{3000}".repeat(1_200_000) + "x", 2),
        ] {
            let n = count_tokens(&text);
            assert!((least..=text.len()).contains(&n), "{:?}...: {n} tokens", text.chars().next());
        }
        assert_eq!(count_tokens(&"word ".repeat(50_000)), 50_001);
    }

    #[test]
    fn pieces_of_long_blanks_count_as_in_the_library() {
        for (a, b) in [("", ""), ("x", "y"), ("x\n", " y"), ("!", "!"), ("3", "\n4")] {
            for blank in [" ", "\t", "\n", " \n", "\u{3000}", "\u{a0} \t", "\r\n"] {
                let text = format!("{a}{}{b}", blank.repeat(30_000));
                assert_eq!(count_tokens(&text), reference(&text), "{a:?} {blank:?} {b:?}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_048))]

        #[test]
        fn any_text_counts_as_in_the_library(text in any::<String>(), blanks in "[ \t\r\n\u{3000}\u{85}]{0,40}", more in "[ a-zA-Z0-9'!/]{0,20}") {
            let text = format!("{text}{blanks}{more}{blanks}{text}");
            prop_assert_eq!(count_tokens(&text), reference(&text));
        }

        #[test]
        fn pieces_cut_by_hand_are_the_patterns(
            text in "([a-bA-B'stmdrvleSTMDRVLE ./!0-9\\t\\r\\n\\x0b\\x1c_]|[éÉ字ſʼ😀\u{301}\u{a0}\u{85}²ªǅ’]){0,30}",
        ) {
            let mut at = 0;
            while at < text.len() {
                let end = by_pattern(&text, at);
                if let Some(by_hand) = pieces::end(text.as_bytes(), at) {
                    prop_assert_eq!(by_hand, end, "{:?} at {}", text, at);
                }
                at = end;
            }
            prop_assert_eq!(count_tokens(&text), reference(&text));
        }

        #[test]
        fn any_ascii_counts_as_in_the_library(text in "[\\x00-\\x7f]{0,60}") {
            prop_assert!((0..text.len()).all(|at| pieces::end(text.as_bytes(), at).is_some_and(|end| end > at)));
            prop_assert_eq!(count_tokens(&text), reference(&text));
        }

        #[test]
        fn merges_of_blanks_are_the_librarys(blanks in "[ \t\u{3000}\u{2003}]{1,60}") {
            // Alone, a run of blanks is one piece.
            prop_assert_eq!(count_merges(blanks.as_bytes()), reference(&blanks));
        }
    }
}
