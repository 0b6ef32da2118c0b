//! How the reader sees the chosen turns, in pieces whose costs add up.
//!
//! A slate's text is a row of pieces: a header for each session, a line for each turn. Each piece is trimmed and ends
//! in one newline. o200k ends a token at a newline that a character other than whitespace follows, with one exception:
//! slashes after a newline join it. A piece that begins with a slash is therefore set in by a space. So the tokens of
//! the text are the sum of the tokens of its pieces, whichever they are.

use chrono::DateTime;

use crate::system::Rendering;
use crate::text::dates::format_minute;

const MICROS_PER_MINUTE: i64 = 60_000_000;

/// Appends a piece, whose parts together are trimmed: set in where it begins with a slash, closed by one newline.
fn push_piece(text: &mut String, parts: [&str; 3]) {
    if parts[0].starts_with('/') {
        text.push(' ');
    }
    parts.iter().for_each(|part| text.push_str(part));
    text.push('\n');
}

/// A session's header: `### Session 3 (2023-05-08 13:56)`, without the date where none is known.
///
/// `ordinal` counts from 0, the header from 1; `started_at` is in microseconds, UTC, and shown in the zone that is
/// `zone_minutes` east of it.
pub fn header(ordinal: i32, started_at: Option<i64>, zone_minutes: i32) -> String {
    let number = i64::from(ordinal) + 1;
    let local = started_at.and_then(|at| at.checked_add(i64::from(zone_minutes) * MICROS_PER_MINUTE));
    // What no calendar holds is not shown at all.
    match local.filter(|&at| DateTime::from_timestamp_micros(at).is_some()) {
        Some(at) => format!("### Session {number} ({})\n", format_minute(at)),
        None => format!("### Session {number}\n"),
    }
}

/// A turn's line.
pub fn line(rendering: Rendering, role: Option<&str>, content: &str) -> String {
    let mut line = String::new();
    push_line(&mut line, rendering, role, content);
    line
}

/// Appends a turn's line.
pub fn push_line(text: &mut String, rendering: Rendering, role: Option<&str>, content: &str) {
    let content = content.trim();
    match (rendering, role) {
        (Rendering::Sessions, Some(role)) => {
            let colon = if content.is_empty() { ":" } else { ": " };
            push_piece(text, [role.trim(), colon, content]);
        }
        (Rendering::Sessions, None) | (Rendering::Dated, _) => push_piece(text, [content, "", ""]),
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
        assert_eq!(header(2, Some(1_683_554_160_000_000), 0), "### Session 3 (2023-05-08 13:56)\n");
        assert_eq!(header(0, None, 0), "### Session 1\n");
        assert_eq!(header(0, Some(i64::MAX), 540), "### Session 1\n");
        assert_eq!(line(Rendering::Sessions, Some("user"), " a\n\nb \r\n"), "user: a\n\nb\n");
        assert_eq!(line(Rendering::Dated, Some("user"), "Ann: hello"), "Ann: hello\n");
        assert_eq!(line(Rendering::Dated, None, "/home is where"), " /home is where\n");
        assert_eq!(line(Rendering::Sessions, Some(" /dev "), " \n"), " /dev:\n");
        assert_eq!(line(Rendering::Sessions, Some(" "), "a"), ": a\n");
    }

    #[test]
    fn a_session_stands_under_its_local_date() {
        // 2024-03-09 is day 19,791 after 1970-01-01.
        let at = Some((19_791 * 86_400 + 15 * 3_600 + 30 * 60) * 1_000_000);
        assert_eq!(header(0, at, 0), "### Session 1 (2024-03-09 15:30)\n");
        assert_eq!(header(0, at, 540), "### Session 1 (2024-03-10 00:30)\n");
        assert_eq!(header(0, at, -1080), "### Session 1 (2024-03-08 21:30)\n");
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
            zone_minutes in -1080..=1080i32,
        ) {
            let rendering = if dated { Rendering::Dated } else { Rendering::Sessions };
            let mut pieces = Vec::new();
            for (ordinal, date, lines) in &sessions {
                pieces.push(header(*ordinal, *date, zone_minutes));
                pieces.extend(lines.iter().filter(|l| !l.trim().is_empty()).map(|l| line(rendering, Some("user"), l)));
            }
            prop_assert!(adds(&pieces), "{pieces:?}");
        }
    }

    #[test]
    fn a_slash_after_a_newline_would_not_add_up_as_it_is() {
        let (first, second) = ("Done!\n", "/home\n");
        assert_ne!(count_tokens(first) + count_tokens(second), count_tokens(&format!("{first}{second}")));
        assert!(adds(&[first.to_string(), line(Rendering::Dated, None, second)]));
    }
}
