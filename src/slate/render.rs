//! How the reader sees the chosen turns, in pieces whose costs add up.
//!
//! A slate's text is a row of pieces: a header for each session, a line for each turn. Each piece is trimmed and ends
//! in one newline. o200k ends a token at a newline that a character other than whitespace follows, with one exception:
//! slashes after a newline join it. A piece that begins with a slash is therefore set in by a space. So the tokens of
//! the text are the sum of the tokens of its pieces, whichever they are.

use chrono::DateTime;

use crate::system::Rendering;

/// Adds a piece's ends: trimmed, set in where it begins with a slash, closed by one newline.
fn piece(text: &str) -> String {
    let text = text.trim();
    let indent = if text.starts_with('/') { " " } else { "" };
    format!("{indent}{text}\n")
}

/// A session's header: `### Session 3 (2023-05-08 13:56)`, without the date where none is known.
///
/// `ordinal` counts from 0, the header from 1; `started_at` is in microseconds, UTC.
pub fn header(ordinal: i32, started_at: Option<i64>) -> String {
    let number = i64::from(ordinal) + 1;
    match started_at.and_then(DateTime::from_timestamp_micros) {
        Some(date) => piece(&format!("### Session {number} ({})", date.format("%Y-%m-%d %H:%M"))),
        None => piece(&format!("### Session {number}")),
    }
}

/// A turn's line.
pub fn line(rendering: Rendering, role: Option<&str>, content: &str) -> String {
    match (rendering, role) {
        (Rendering::Sessions, Some(role)) => piece(&format!("{}: {}", role.trim(), content.trim())),
        (Rendering::Sessions, None) | (Rendering::Dated, _) => piece(content),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::count_tokens;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn pieces_end_in_one_newline() {
        // 2023-05-08 13:56 UTC is 1,683,554,160 seconds after 1970.
        assert_eq!(header(2, Some(1_683_554_160_000_000)), "### Session 3 (2023-05-08 13:56)\n");
        assert_eq!(header(0, None), "### Session 1\n");
        assert_eq!(line(Rendering::Sessions, Some("user"), " a\n\nb \r\n"), "user: a\n\nb\n");
        assert_eq!(line(Rendering::Dated, Some("user"), "Ann: hello"), "Ann: hello\n");
        assert_eq!(line(Rendering::Dated, None, "/home is where"), " /home is where\n");
    }

    /// Pieces of text that tokenizers stumble over.
    fn shard() -> impl Strategy<Value = String> {
        let picks = [
            " ",
            "  ",
            "\n",
            "\n\n",
            "\r\n",
            "\r",
            "\t",
            "/",
            "//",
            "\u{a0}",
            "\u{3000}",
            "\u{2028}",
            "\u{200b}",
            "\u{feff}",
            "!",
            "...",
            "):",
            "#",
            "###",
            "'s",
            "'LL",
            "a",
            "Word",
            "HTTPServer",
            "é",
            "e\u{301}",
            "\u{301}",
            "1",
            "2023",
            "½",
            "今天玩成语接龙游戏",
            "こんにちは",
            "안녕",
            "สวัสดี",
            "😀",
            "👩‍👩‍👧",
            "🇩🇪",
            "<|endoftext|>",
            "https://x.y/z",
            "```",
        ];
        prop_oneof![
            6 => proptest::sample::select(picks.to_vec()).prop_map(str::to_string),
            1 => any::<char>().prop_map(String::from),
        ]
    }

    fn content() -> impl Strategy<Value = String> {
        vec(shard(), 1..12).prop_map(|all| all.concat())
    }

    fn adds(pieces: &[String]) -> bool {
        let sum: usize = pieces.iter().map(|p| count_tokens(p)).sum();
        count_tokens(&pieces.concat()) == sum
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn costs_add_up(
            dated in any::<bool>(),
            sessions in vec((0..999i32, any::<Option<i64>>(), vec(content(), 1..5)), 1..4),
        ) {
            let rendering = if dated { Rendering::Dated } else { Rendering::Sessions };
            let mut pieces = Vec::new();
            for (ordinal, date, lines) in &sessions {
                pieces.push(header(*ordinal, *date));
                pieces.extend(lines.iter().filter(|l| !l.trim().is_empty()).map(|l| line(rendering, Some("user"), l)));
            }
            prop_assert!(adds(&pieces), "{pieces:?}");
        }
    }

    #[test]
    fn a_slash_after_a_newline_would_not_add_up_as_it_is() {
        let (first, second) = ("Done!\n", "/home\n");
        assert_ne!(count_tokens(first) + count_tokens(second), count_tokens(&format!("{first}{second}")));
        assert!(adds(&[first.to_string(), piece(second)]));
    }
}
