//! The pieces in which o200k seeks its tokens, cut by hand where the text is ASCII, as most is.
//!
//! The pattern's alternatives, in their order, for ASCII: letters with one character before them and `'s` or the like
//! after them, in which no capital follows a small letter; up to three digits; signs with a space before and newlines
//! or slashes after them; blanks up to their last newline; blanks but for the last one before a word; blanks.

/// Where the piece that begins at `at` ends; none where a character that is not ASCII has a say in it.
pub(super) fn end(text: &[u8], at: usize) -> Option<usize> {
    let class = |i: usize| text.get(i).map_or(Some(Class::End), |&byte| Class::of(byte));
    let run = |mut i: usize, wanted: Class| {
        while class(i)? == wanted {
            i += 1;
        }
        Some(i)
    };
    let first = class(at)?;
    let letters = match first {
        Class::Newline | Class::Digit | Class::Upper | Class::Lower => at,
        _ => at + 1,
    };
    if matches!(class(letters)?, Class::Upper | Class::Lower) {
        let small = run(letters, Class::Upper)?;
        return contraction(text, run(small, Class::Lower)?);
    }
    match first {
        Class::Digit => {
            let more = |i| Some(class(i)? == Class::Digit);
            Some(if !more(at + 1)? {
                at + 1
            } else if !more(at + 2)? {
                at + 2
            } else {
                at + 3
            })
        }
        Class::Sign => signs(text, at),
        Class::Space if class(at + 1)? == Class::Sign => signs(text, at + 1),
        _ => blanks(text, at),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Class {
    Upper,
    Lower,
    Digit,
    Space,
    Newline,
    /// Other than a space or a newline.
    Blank,
    Sign,
    End,
}

impl Class {
    /// None for a byte of a character that is not ASCII.
    fn of(byte: u8) -> Option<Class> {
        CLASSES.get(usize::from(byte)).copied()
    }
}

const CLASSES: [Class; 128] = {
    let mut classes = [Class::Sign; 128];
    let mut b = 0;
    while b < 128 {
        classes[b] = match b as u8 {
            b'A'..=b'Z' => Class::Upper,
            b'a'..=b'z' => Class::Lower,
            b'0'..=b'9' => Class::Digit,
            b' ' => Class::Space,
            b'\r' | b'\n' => Class::Newline,
            b'\t' | 0x0B | 0x0C => Class::Blank,
            _ => Class::Sign,
        };
        b += 1;
    }
    classes
};

/// After letters: `'s`, `'t`, `'re`, `'ve`, `'m`, `'ll` and `'d`, in either case.
fn contraction(text: &[u8], at: usize) -> Option<usize> {
    if text.get(at) != Some(&b'\'') {
        return Some(at);
    }
    let letter = |i: usize| text.get(i).map(u8::to_ascii_lowercase);
    match (letter(at + 1), letter(at + 2)) {
        // The long s is an s in either case; other letters, too, may have such a form.
        (Some(128..), _) | (_, Some(128..)) => None,
        (Some(b's' | b't' | b'm' | b'd'), _) => Some(at + 2),
        (Some(b'r' | b'v'), Some(b'e')) | (Some(b'l'), Some(b'l')) => Some(at + 3),
        _ => Some(at),
    }
}

fn signs(text: &[u8], mut at: usize) -> Option<usize> {
    while let Some(&byte) = text.get(at) {
        if Class::of(byte)? != Class::Sign {
            break;
        }
        at += 1;
    }
    while matches!(text.get(at), Some(b'\r' | b'\n' | b'/')) {
        at += 1;
    }
    Some(at)
}

/// Blanks up to the last newline among them; without one, all but the one that stands before a word.
fn blanks(text: &[u8], at: usize) -> Option<usize> {
    let (mut end, mut newline) = (at, None);
    while let Some(&byte) = text.get(end) {
        match Class::of(byte)? {
            Class::Newline => newline = Some(end + 1),
            Class::Space | Class::Blank => {}
            _ => break,
        }
        end += 1;
    }
    Some(match newline {
        Some(after) => after,
        None if end < text.len() && end - at > 1 => end - 1,
        None => end,
    })
}
