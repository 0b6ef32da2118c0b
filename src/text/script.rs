//! Scripts that are written without spaces between words, by code point.

/// A script whose words no space separates (Hangul is among them: its words glue particles to their stems).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unspaced {
    Han,
    Kana,
    Hangul,
    Thai,
    Lao,
    Khmer,
    Myanmar,
}

/// The unspaced script of a letter, mark or digit; None for other scripts and for punctuation.
///
/// Ranges are those of Unicode's blocks, without their punctuation.
pub fn unspaced(c: char) -> Option<Unspaced> {
    use Unspaced::*;
    // All are at or above Thai: the answer for Latin, Cyrillic, Arabic and Indic text is one comparison.
    if (c as u32) < 0x0E01 {
        return None;
    }
    Some(match c as u32 {
        0x0E01..=0x0E3A | 0x0E40..=0x0E4E | 0x0E50..=0x0E59 => Thai,
        0x0E81..=0x0EAE | 0x0EB0..=0x0EDF => Lao,
        0x1000..=0x1049 | 0x1050..=0x109F | 0xA9E0..=0xA9FE | 0xAA60..=0xAA7F => Myanmar,
        0x1780..=0x17D3 | 0x17D7 | 0x17DC..=0x17DD | 0x17E0..=0x17E9 => Khmer,
        0x1100..=0x11FF | 0x3131..=0x318E | 0xA960..=0xA97C | 0xAC00..=0xD7A3 | 0xD7B0..=0xD7FB => Hangul,
        0x3041..=0x309A | 0x309D..=0x309F | 0x30A1..=0x30FA | 0x30FC..=0x30FF | 0x31F0..=0x31FF => Kana,
        0x3005..=0x3007 | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0x20000..=0x323AF => Han,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_have_their_script_and_punctuation_has_none() {
        for (letters, script) in [
            ("成語接龙々〇", Unspaced::Han),
            ("ひらがなカタカナー", Unspaced::Kana),
            ("한국어", Unspaced::Hangul),
            ("ภาษาไทยก็", Unspaced::Thai),
            ("ພາສາລາວ", Unspaced::Lao),
            ("ភាសាខ្មែរ", Unspaced::Khmer),
            ("မြန်မာ", Unspaced::Myanmar),
        ] {
            for c in letters.chars() {
                assert_eq!(unspaced(c), Some(script), "{c}");
            }
        }
        for c in "a1é_ж。、・「」！။។๏😀".chars() {
            assert_eq!(unspaced(c), None, "{c}");
        }
    }
}
