//! Counts of o200k tokens: the unit of every budget.
//!
//! The counts are tiktoken's. One kind of text is beyond its matcher, whose lookahead for blanks keeps a mark for each
//! character and gives up at a million of them: texts with a very long run of blanks are cut into pieces here.

use std::collections::{BinaryHeap, HashMap};
use std::sync::LazyLock;

use regex::Regex;

/// Blanks in a row that are left to the library.
const LONG_BLANKS: usize = 10_000;

/// The number of o200k tokens of a text. Names of special tokens in it are text like any other.
///
/// Takes time in proportion to the text (times a logarithm for a word without end), whatever it holds.
pub fn count_tokens(text: &str) -> usize {
    if has_long_blanks(text) { count_pieces(text) } else { tiktoken_rs::o200k_base_singleton().count_ordinary(text) }
}

fn has_long_blanks(text: &str) -> bool {
    if text.len() < LONG_BLANKS {
        return false;
    }
    let mut run = 0;
    text.chars().any(|c| {
        run = if c.is_whitespace() { run + 1 } else { 0 };
        run >= LONG_BLANKS
    })
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
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let found = PIECE.captures_at(text, at)?;
        let whole = found.get(0).expect("group 0 is the match");
        let mut piece = whole.as_str();
        // Blanks before a word leave it their last one.
        if found.get(1).is_some() && whole.end() < text.len() {
            let last = piece.chars().next_back().map_or(0, char::len_utf8);
            if last < piece.len() {
                piece = &piece[..piece.len() - last];
            }
        }
        at = whole.start() + piece.len();
        Some(piece)
    })
}

fn count_pieces(text: &str) -> usize {
    let library = tiktoken_rs::o200k_base_singleton();
    pieces(text)
        .map(|piece| {
            let blank = piece.len() >= LONG_BLANKS && piece.chars().all(char::is_whitespace);
            if blank { count_merges(piece.as_bytes()) } else { library.count_ordinary(piece) }
        })
        .sum()
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
                assert_eq!(count_pieces(&text), reference(&text), "{a:?} {blank:?} {b:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_counts_as_in_the_library(text in any::<String>(), blanks in "[ \t\r\n\u{3000}\u{85}]{0,40}", more in "[ a-zA-Z0-9'!/]{0,20}") {
            let text = format!("{text}{blanks}{more}{blanks}{text}");
            prop_assert_eq!(count_pieces(&text), reference(&text));
            prop_assert_eq!(count_tokens(&text), reference(&text));
        }

        #[test]
        fn merges_of_blanks_are_the_librarys(blanks in "[ \t\u{3000}\u{2003}]{1,60}") {
            // Alone, a run of blanks is one piece.
            prop_assert_eq!(count_merges(blanks.as_bytes()), reference(&blanks));
        }
    }
}
