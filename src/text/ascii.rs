//! Words of ASCII text by Unicode's word boundaries (UAX #29), several times as fast as for text of any kind.
//!
//! Of the rules, those are left that ASCII can meet: letters, digits and `_` stay together (WB5, WB8 to WB10, WB13);
//! `:`, `.` and `'` between two letters (WB6, WB7), and `,`, `;`, `.` and `'` between two digits (WB11, WB12), do not
//! part them; everything else does.

/// What a byte is to the rules.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Other,
    Letter,
    Digit,
    /// `_`
    Joiner,
    /// `:`
    MidLetter,
    /// `,` and `;`
    MidDigit,
    /// `.` and `'`
    Mid,
}

const CLASSES: [Class; 256] = {
    let mut classes = [Class::Other; 256];
    let mut b = 0;
    while b < 128 {
        classes[b] = match b as u8 {
            b'a'..=b'z' | b'A'..=b'Z' => Class::Letter,
            b'0'..=b'9' => Class::Digit,
            b'_' => Class::Joiner,
            b':' => Class::MidLetter,
            b',' | b';' => Class::MidDigit,
            b'.' | b'\'' => Class::Mid,
            _ => Class::Other,
        };
        b += 1;
    }
    classes
};

fn class(byte: u8) -> Class {
    CLASSES[usize::from(byte)]
}

fn is_core(class: Class) -> bool {
    matches!(class, Class::Letter | Class::Digit | Class::Joiner)
}

/// Calls `each` with every word that holds a letter or a digit, in order.
pub(super) fn words<'a>(text: &'a str, each: &mut impl FnMut(&'a str)) {
    debug_assert!(text.is_ascii());
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(skipped) = bytes[at..].iter().position(|&b| is_core(class(b))) {
        let start = at + skipped;
        at = end(bytes, start);
        // Of the bytes that make words only `_` is neither a letter nor a digit.
        if bytes[start] != b'_' || bytes[start..at].iter().any(|&b| b != b'_') {
            each(&text[start..at]);
        }
    }
}

/// Where the word that begins at `start` ends.
fn end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(&byte) = bytes.get(at) {
        let here = class(byte);
        if !is_core(here) {
            let (before, after) = (class(bytes[at - 1]), bytes.get(at + 1).map_or(Class::Other, |&b| class(b)));
            let joins = match here {
                Class::MidLetter => before == Class::Letter && after == Class::Letter,
                Class::MidDigit => before == Class::Digit && after == Class::Digit,
                Class::Mid => before == after && matches!(after, Class::Letter | Class::Digit),
                _ => false,
            };
            if !joins {
                break;
            }
        }
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use unicode_segmentation::UnicodeSegmentation;

    fn all(text: &str) -> Vec<&str> {
        let mut all = Vec::new();
        words(text, &mut |word| all.push(word));
        all
    }

    #[test]
    fn words_by_hand() {
        assert_eq!(
            all("don't e.g. 3.14 1,000;2 a,b 10:30 a:b"),
            ["don't", "e.g", "3.14", "1,000;2", "a", "b", "10", "30", "a:b"]
        );
        assert_eq!(
            all("snake_case __init__ ___ _1 a_.b 'quoted' ends. 5.a a.5"),
            ["snake_case", "__init__", "_1", "a_", "b", "quoted", "ends", "5", "a", "a", "5"]
        );
        assert!(all("").is_empty() && all(" \r\n\t!?").is_empty());
    }

    /// Unicode's rules as the library has them for any text: its own way for ASCII is not taken after a letter of
    /// another script, which ends a paragraph of its own here.
    fn by_the_library(text: &str) -> Vec<String> {
        let text = format!("\u{436}\n{text}");
        text.unicode_words().skip(1).map(str::to_string).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_096))]

        #[test]
        fn words_are_unicodes(text in "[a-cA-C0-2_:,;.' \\r\\n!-]{0,24}") {
            prop_assert_eq!(all(&text), by_the_library(&text));
            prop_assert_eq!(all(&text), text.unicode_words().collect::<Vec<_>>());
        }

        #[test]
        fn words_of_any_ascii_are_unicodes(text in "[\\x00-\\x7f]{0,40}") {
            prop_assert_eq!(all(&text), by_the_library(&text));
        }
    }

    #[test]
    fn every_three_bytes_are_cut_as_by_unicode() {
        let bytes: Vec<char> = "aZ09_:,;.'\" \t\r\n\u{b}\u{c}\u{0}\u{7f}-!@/".chars().collect();
        for (a, b, c) in bytes.iter().flat_map(|&a| {
            bytes.iter().flat_map({
                let bytes = &bytes;
                move |&b| bytes.iter().map(move |&c| (a, b, c))
            })
        }) {
            for text in [format!("{a}{b}{c}"), format!("x{a}{b}{c}y"), format!("1{a}{b}{c}2")] {
                assert_eq!(all(&text), by_the_library(&text), "{text:?}");
            }
        }
    }
}
