//! Reads the grade that an answer says.
//!
//! A grade is a number from 0 to 10, decimals allowed: `8`, `**7.5**`, `Score: 7.`, `8/10`, `7 out of 10`, `ten`. An answer with
//! more words is read if it holds one number only and leads to it: at its start, after a word such as "grade", or on a scale
//! of ten. All else is set aside with a reason; nothing becomes a 0 but a 0.

use std::sync::LazyLock;

use regex::Regex;

/// Nothing was answered.
pub const EMPTY: &str = "empty answer";
/// The answer is a thought that was cut before it ended.
pub const UNFINISHED: &str = "thought not finished";
/// The server says that the model refused.
pub const REFUSED: &str = "refused";
/// There is no number that stands for a grade.
pub const NO_GRADE: &str = "no grade";
/// Below 0 or above 10.
pub const OUT_OF_RANGE: &str = "out of range";
/// Two numbers, a range, an inequality.
pub const AMBIGUOUS: &str = "ambiguous";
/// Of five, of a hundred, a percentage.
pub const OTHER_SCALE: &str = "another scale";

/// A grade, or why there is none.
pub fn read(answer: &str) -> Result<f64, &'static str> {
    let answer = after_thought(answer)?;
    // Marks of emphasis and quotes say nothing; tags neither.
    let shown: String = TAG.replace_all(answer, " ").chars().filter(|c| !"*_`\"'“”‘’$\\".contains(*c)).collect();
    if shown.trim().is_empty() {
        return Err(EMPTY);
    }
    let shown = SCALE_ITSELF.replace_all(&shown, " ");
    if !shown.contains(|c: char| c.is_numeric()) {
        return in_words(&shown);
    }
    in_digits(&shown)
}

/// What follows the thought that some models put before their answer.
pub fn after_thought(answer: &str) -> Result<&str, &'static str> {
    match (answer.rfind("</think>"), answer.contains("<think>")) {
        (Some(at), _) => Ok(&answer[at + "</think>".len()..]),
        (None, true) => Err(UNFINISHED),
        (None, false) => Ok(answer),
    }
}

static TAG: LazyLock<Regex> = LazyLock::new(|| constant(r"</?[A-Za-z][A-Za-z_]{0,30}>"));
/// `(0-10)`, `from 0 to 10`, as a label of the scale.
static SCALE_ITSELF: LazyLock<Regex> = LazyLock::new(|| constant(r"\(\s*0\s*(?:-|–|to)\s*10\s*\)|\bfrom 0 to 10\b"));
/// A number and what it may stand on: `7.5`, `7/10`, `7 out of ten`, `80%`.
static NUMBER: LazyLock<Regex> = LazyLock::new(|| {
    constant(
        r"(?i)([0-9][0-9.]*)(?:\s*/\s*([0-9][0-9.]*)|\s+out\s+of\s+([0-9][0-9.]*|ten\b|[a-z]+)|\s*(%|percent\b|per cent\b))?",
    )
});
/// What leads to a grade when it stands before it.
static CUE: LazyLock<Regex> =
    LazyLock::new(|| constant(r"(?i)\b(?:grades?|graded|scores?|scored|rate[sd]?|rating|answer|give|assign|boxed)\b"));
/// An answer that begins with its grade, perhaps after a short label.
static LABEL: LazyLock<Regex> = LazyLock::new(|| constant(r"^[\s\W]*(?:[A-Za-z]+(?: [A-Za-z]+){0,3}\s*[:=])?[\s\W]*$"));

fn constant(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is constant")
}

fn in_digits(answer: &str) -> Result<f64, &'static str> {
    // A half, a square, digits of another script: what they change about a number is not guessed.
    if answer.contains(|c: char| c.is_numeric() && !c.is_ascii_digit()) {
        return Err(AMBIGUOUS);
    }
    let mut grade: Option<f64> = None;
    let (mut led, mut last) = (false, 0);
    for found in NUMBER.captures_iter(answer) {
        let whole = found.get(0).expect("group 0 is the match");
        let (before, after) = (&answer[..whole.start()], &answer[whole.end()..]);
        if after.starts_with(char::is_alphabetic) || before.ends_with(char::is_alphabetic) {
            // Part of a word: `3rd`, `gpt4`, `1e3`.
            return Err(if grade.is_some() { AMBIGUOUS } else { NO_GRADE });
        }
        if before.trim_end_matches([' ', '=']).ends_with(['<', '>', '≤', '≥']) {
            return Err(AMBIGUOUS);
        }
        let on_ten = match (found.get(2).or(found.get(3)), found.get(4)) {
            (_, Some(_)) => return Err(OTHER_SCALE),
            (Some(scale), _) => match scale.as_str().trim_end_matches('.').to_ascii_lowercase().as_str() {
                "10" | "10.0" | "ten" => true,
                _ => return Err(OTHER_SCALE),
            },
            (None, None) => false,
        };
        let value: f64 = found[1].trim_end_matches('.').parse().map_err(|_| AMBIGUOUS)?;
        let value = if negative(before) { -value } else { value };
        if grade.is_some_and(|g| g != value) {
            return Err(AMBIGUOUS);
        }
        grade = Some(value);
        // Each part is searched once, so that a long answer takes time in proportion.
        led |= on_ten || last == 0 && LABEL.is_match(before) || CUE.is_match(&answer[last..whole.start()]);
        last = whole.end();
    }
    let grade = grade.ok_or(NO_GRADE)?;
    if !led {
        return Err(NO_GRADE);
    }
    // -0 would be a 0 of another kind.
    if (0.0..=10.0).contains(&grade) { Ok(grade.abs()) } else { Err(OUT_OF_RANGE) }
}

/// A minus that touches the number and no number before it.
fn negative(before: &str) -> bool {
    let mut back = before.chars().rev();
    back.next().is_some_and(|c| "-−–".contains(c)) && back.next().is_none_or(|c| !c.is_alphanumeric())
}

const WORDS: [&str; 11] = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];
/// What may stand around a grade in words; "one" has too many other meanings to be sought in prose.
const AROUND: [&str; 7] = ["grade", "score", "rating", "answer", "my", "final", "is"];

fn in_words(answer: &str) -> Result<f64, &'static str> {
    let lower = answer.to_lowercase();
    let mut words: Vec<&str> = lower.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).collect();
    if words.ends_with(&["out", "of", "ten"]) {
        words.truncate(words.len() - 3);
    }
    let mut values = words.iter().filter_map(|w| WORDS.iter().position(|n| n == w));
    let (Some(value), other) = (values.next(), values.next()) else { return Err(NO_GRADE) };
    if other.is_some_and(|o| o != value) {
        return Err(AMBIGUOUS);
    }
    let alone = words.iter().all(|w| AROUND.contains(w) || *w == WORDS[value]);
    if alone { Ok(value as f64) } else { Err(NO_GRADE) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn grades_are_read() {
        let cases = [
            ("8", 8.0),
            ("8/10", 8.0),
            ("Score: 7.", 7.0),
            ("**6**", 6.0),
            ("ten", 10.0),
            ("10", 10.0),
            ("7 out of 10", 7.0),
            ("Grade: **9**/10", 9.0),
            ("0", 0.0),
            (" 3\n", 3.0),
            ("<think>\n\n</think>\n\n8", 8.0),
            ("7.5", 7.5),
            ("Zero.", 0.0),
            ("seven out of ten", 7.0),
            ("7 out of ten", 7.0),
            ("**Grade: 4**", 4.0),
            ("\"5\"", 5.0),
            ("{\"grade\": 8}", 8.0),
            ("\\boxed{8}", 8.0),
            ("I would rate this turn 7.", 7.0),
            ("I give it a 2", 2.0),
            ("Relevance (0-10): 7", 7.0),
            ("Grade from 0 to 10: 10", 10.0),
            ("<answer>8</answer>", 8.0),
            ("8.0", 8.0),
            ("8 / 10", 8.0),
            ("8/10.", 8.0),
            ("8 - it states the city.", 8.0),
            ("How helpful: 3", 3.0),
            ("10/10", 10.0),
            ("8. I grade it 8/10", 8.0),
            ("The turn is worth 6/10", 6.0),
            ("0/10", 0.0),
            ("Score - 7", 7.0),
            ("007", 7.0),
            ("<think>is it 3 or 4?</think>5", 5.0),
            ("it is 3 or 4</think>\n5", 5.0),
            ("Grade: one", 1.0),
            ("0.0", 0.0),
        ];
        for (answer, grade) in cases {
            assert_eq!(read(answer), Ok(grade), "{answer:?}");
        }
    }

    #[test]
    fn what_is_no_grade_is_set_aside_with_its_reason() {
        let cases = [
            ("11", OUT_OF_RANGE),
            ("-1", OUT_OF_RANGE),
            ("11/10", OUT_OF_RANGE),
            ("10.01", OUT_OF_RANGE),
            ("−3", OUT_OF_RANGE),
            ("100", OUT_OF_RANGE),
            ("Score: -7", OUT_OF_RANGE),
            ("99999999999999999999999999", OUT_OF_RANGE),
            ("8/5", OTHER_SCALE),
            ("4 out of 5", OTHER_SCALE),
            ("80%", OTHER_SCALE),
            ("70 percent", OTHER_SCALE),
            ("2023/05/30", OTHER_SCALE),
            ("8/10.5", OTHER_SCALE),
            ("4 out of five", OTHER_SCALE),
            ("", EMPTY),
            (" \n\t", EMPTY),
            ("**", EMPTY),
            ("<think></think>", EMPTY),
            ("<think>so 8", UNFINISHED),
            ("I cannot grade this.", NO_GRADE),
            ("I'm sorry, but I can't help with that.", NO_GRADE),
            ("grade", NO_GRADE),
            ("The turn mentions 3", NO_GRADE),
            ("3rd", NO_GRADE),
            ("gpt4", NO_GRADE),
            ("1e1", NO_GRADE),
            ("1x", NO_GRADE),
            ("This one is not helpful", NO_GRADE),
            ("No one said so", NO_GRADE),
            ("It is the one", NO_GRADE),
            ("eleven", NO_GRADE),
            ("(0-10)", NO_GRADE),
            ("between 6 and 8", AMBIGUOUS),
            ("6-8", AMBIGUOUS),
            ("6 or 7", AMBIGUOUS),
            ("between six and eight", AMBIGUOUS),
            ("7,5", AMBIGUOUS),
            ("8 because he met 3 people", AMBIGUOUS),
            ("< 3", AMBIGUOUS),
            (">=5", AMBIGUOUS),
            ("7½", AMBIGUOUS),
            ("７", AMBIGUOUS),
            ("1.2.3", AMBIGUOUS),
            ("8 (the 3rd turn)", AMBIGUOUS),
            ("1\n2", AMBIGUOUS),
        ];
        for (answer, reason) in cases {
            assert_eq!(read(answer), Err(reason), "{answer:?}");
        }
        assert_eq!(read(&"7 ".repeat(1 << 19)), Ok(7.0));
        assert_eq!(read(&format!("so {}", "7 ".repeat(1 << 19))), Err(NO_GRADE));
        assert_eq!(read("-0").map(f64::is_sign_positive), Ok(true));
    }

    proptest! {
        #[test]
        fn any_answer_is_a_grade_in_range_or_a_reason(answer in prop_oneof![
            any::<String>(), "[-0-9./% a-z*:\\n]{0,16}", "(<think>)?[^0-9]{0,9}[0-9]{0,3}(/10)?(</think>)?[0-9. ]{0,4}",
        ]) {
            match read(&answer) {
                Ok(grade) => {
                    prop_assert!((0.0..=10.0).contains(&grade) && grade.is_sign_positive());
                    let said = answer.contains(|c: char| c.is_ascii_digit())
                        || WORDS.iter().any(|w| answer.to_lowercase().contains(w));
                    prop_assert!(said, "{answer:?} says no number");
                    let zero = answer.contains('0') || answer.to_lowercase().contains("zero");
                    prop_assert!(grade != 0.0 || zero, "{answer:?} says no 0");
                }
                Err(reason) => prop_assert!(
                    [EMPTY, UNFINISHED, NO_GRADE, OUT_OF_RANGE, AMBIGUOUS, OTHER_SCALE].contains(&reason)
                ),
            }
        }

        #[test]
        fn every_grade_is_read_in_every_form(tenths in 0u32..=100) {
            let grade = f64::from(tenths) / 10.0;
            for form in ["{}", "**{}**", "Grade: {}.", "{}/10", "{} out of 10", " {}\n", "<think>\n\n</think>\n\n{}"] {
                let answer = form.replace("{}", &grade.to_string());
                prop_assert_eq!(read(&answer), Ok(grade), "{}", answer);
            }
        }
    }
}
