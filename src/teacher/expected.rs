//! The expected grade: the mean of the grades 0 to 10, weighted with the probabilities that the server gives each of them.
//!
//! They are read where the answer's grade begins: its first token that is the grade, after a thought, blanks and emphasis.
//! The answer itself must read as a grade ([`super::grade`]). Its whole number alone counts there: "7.5" is read at the "7".
//!
//! 10 is two tokens, "1" and "0", where digits are tokens one by one, and one token elsewhere. If the answer's own token is
//! "1", the mass of "1" is split by the alternatives of the token after it: the part of "0" is 10's, the part of the other
//! digits is no grade, the rest is 1's. If it is another, nothing is known of what would have followed "1", and its
//! mass counts as 1's; likewise where the server says nothing of the token after. "10" as one token is 10's as it is.
//!
//! The weights are normalised over the grades. If less than half of the mass is theirs, the answer is set aside.

use super::answer::Token;
use super::grade;

/// Less than half of the mass is on grades.
pub const LITTLE_MASS: &str = "less than half of the mass on grades";
/// No token of the answer is its grade.
pub const NO_TOKEN: &str = "no token is the grade";

/// Decimals of an expected grade: more than a server repeats, and few enough that JSON gives it back to the bit.
const DECIMALS: f64 = 1e6;

/// An expected grade, or why there is none. None at all where the server names no alternatives of the grade's token.
pub fn read(answer: &str, tokens: &[Token]) -> Option<Result<f64, &'static str>> {
    let said = match grade::read(answer) {
        Ok(grade) => grade,
        Err(reason) => return Some(Err(reason)),
    };
    let Some(at) = place(tokens, said.trunc() as usize) else { return Some(Err(NO_TOKEN)) };
    if tokens[at].alternatives.is_empty() {
        return None;
    }
    let mut mass = [0.0; 11];
    for (text, probability) in distribution(&tokens[at]) {
        if let Some(grade) = whole(text) {
            mass[grade] += probability;
        }
    }
    if whole(&tokens[at].text) == Some(1)
        && let Some(next) = tokens.get(at + 1)
    {
        split_one(&mut mass, next);
    }
    let total: f64 = mass.iter().sum();
    if total < 0.5 {
        return Some(Err(LITTLE_MASS));
    }
    let mean = mass.iter().enumerate().map(|(grade, m)| grade as f64 * m).sum::<f64>() / total;
    Some(Ok(((mean * DECIMALS).round() / DECIMALS).clamp(0.0, 10.0)))
}

/// Where the whole number of the answer's grade begins.
fn place(tokens: &[Token], said: usize) -> Option<usize> {
    let start = tokens.iter().rposition(|t| t.text.trim() == "</think>").map_or(0, |at| at + 1);
    let is_said = |at: usize| match whole(&tokens[at].text) {
        Some(1) if said == 10 => tokens.get(at + 1).is_some_and(|next| digits(&next.text) == "0"),
        Some(grade) => grade == said,
        None => false,
    };
    (start..tokens.len()).find(|&at| is_said(at))
}

/// The token's alternatives and itself, each once, with probabilities.
fn distribution(token: &Token) -> impl Iterator<Item = (&str, f64)> {
    let own = (!token.alternatives.iter().any(|(text, _)| *text == token.text)).then_some((&token.text, token.logprob));
    let all = token.alternatives.iter().map(|(text, logprob)| (text, *logprob)).chain(own);
    all.map(|(text, logprob)| (text.as_str(), if logprob.is_nan() { 0.0 } else { logprob.min(0.0).exp() }))
}

fn split_one(mass: &mut [f64; 11], next: &Token) {
    let (mut zero, mut other) = (0.0, 0.0);
    for (text, probability) in distribution(next) {
        match digits(text) {
            "" => {}
            "0" => zero += probability,
            _ => other += probability,
        }
    }
    // Servers round: the parts may add up to a little more than the whole.
    let scale = f64::max(1.0, zero + other);
    let one = mass[1];
    mass[10] += one * zero / scale;
    mass[1] = one * (1.0 - (zero + other) / scale).max(0.0);
}

/// The grade that a token is: blanks and emphasis around it aside.
fn whole(token: &str) -> Option<usize> {
    let bare = token.trim_matches(|c: char| c.is_whitespace() || "*_`\"▁Ġ".contains(c));
    let plain = bare == "0" || !bare.starts_with('0');
    let grade = if plain && bare.bytes().all(|b| b.is_ascii_digit()) { bare.parse().ok() } else { None };
    grade.filter(|g| *g <= 10)
}

/// The digits that a token goes on with; a blank before them ends the number.
fn digits(token: &str) -> &str {
    let end = token.find(|c: char| !c.is_ascii_digit()).unwrap_or(token.len());
    &token[..end]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A token and its alternatives, by probabilities.
    fn token(text: &str, alternatives: &[(&str, f64)]) -> Token {
        let own = alternatives.iter().find(|(t, _)| *t == text).map_or(1.0, |(_, p)| *p);
        let alternatives = alternatives.iter().map(|(t, p)| (t.to_string(), p.ln())).collect();
        Token { text: text.into(), logprob: own.ln(), alternatives }
    }

    fn mean(answer: &str, tokens: &[Token]) -> Result<f64, &'static str> {
        read(answer, tokens).expect("alternatives are named")
    }

    #[test]
    fn the_mean_is_over_grades_alone() {
        // (7 * 0.5 + 8 * 0.25) / 0.75 = 5.5 / 0.75 = 7.333333
        let tokens = [token("7", &[("7", 0.5), ("8", 0.25), ("The", 0.25)])];
        assert_eq!(mean("7", &tokens), Ok(7.333333));
        // With and without a blank: 0.3 + 0.3 on 6, 0.4 on 0: 6 * 0.6 = 3.6.
        assert_eq!(mean("6", &[token("6", &[("6", 0.3), (" 6", 0.3), ("0", 0.4)])]), Ok(3.6));
        // The answer's own token counts where the alternatives leave it out: 0.5 on 2 by itself, 0.5 on 4.
        let own = Token { text: "2".into(), logprob: 0.5f64.ln(), alternatives: vec![("4".into(), 0.5f64.ln())] };
        assert_eq!(mean("2", &[own]), Ok(3.0));
    }

    #[test]
    fn ten_as_one_token() {
        // 10 * 0.6 + 9 * 0.2 + 1 * 0.2 = 8
        assert_eq!(mean("10", &[token("10", &[("10", 0.6), ("9", 0.2), ("1", 0.2)])]), Ok(8.0));
    }

    #[test]
    fn ten_as_two_tokens() {
        let one = || token("1", &[("1", 0.8), ("9", 0.2)]);
        // 0.8 * 0.75 = 0.6 on 10, 0.8 * 0.25 = 0.2 on 1, 0.2 on 9: 6 + 0.2 + 1.8 = 8
        assert_eq!(mean("10", &[one(), token("0", &[("0", 0.75), ("<|im_end|>", 0.25)])]), Ok(8.0));
        // The same alternatives where the answer went the other way.
        assert_eq!(mean("1", &[one(), token("", &[("0", 0.75), ("", 0.25)])]), Ok(8.0));
        // 11 to 19 are no grades: 10 has 0.8 * 0.5 = 0.4, 1 has 0.8 * 0.25 = 0.2, 9 has 0.2: (4 + 0.2 + 1.8) / 0.8 = 7.5
        assert_eq!(mean("10", &[one(), token("0", &[("0", 0.5), ("2", 0.25), ("", 0.25)])]), Ok(7.5));
        // Nothing is known of what follows: 1 * 0.8 + 9 * 0.2 = 2.6
        assert_eq!(mean("1", &[one()]), Ok(2.6));
        // The answer's own token is another: "1" counts as 1, whatever follows. 9 * 0.7 + 1 * 0.3 = 6.6
        let nine = token("9", &[("9", 0.7), ("1", 0.3)]);
        assert_eq!(mean("9", &[nine, token("0", &[("0", 1.0)])]), Ok(6.6));
    }

    #[test]
    fn the_grade_is_sought_where_it_begins() {
        let seven = || token("7", &[("7", 0.5), ("5", 0.5)]);
        let other = |text: &str| token(text, &[(text, 1.0)]);
        assert_eq!(mean(" **7**", &[other(" "), other("**"), seven(), other("**")]), Ok(6.0));
        let thought = [other("<think>"), other("\n\n"), other("</think>"), other("\n\n"), seven()];
        assert_eq!(mean("<think>\n\n</think>\n\n7", &thought), Ok(6.0));
        // A server that cuts the thought off the answer still names its tokens.
        let long = [other("<think>"), other("7"), other("?"), other("</think>"), seven()];
        assert_eq!(mean("7", &long), Ok(6.0));
        assert_eq!(mean("Score: 7", &[other("Score"), other(":"), seven()]), Ok(6.0));
        assert_eq!(mean("7.5", &[seven(), other("."), other("5")]), Ok(6.0));
        assert_eq!(mean("seven", &[other("seven")]), Err(NO_TOKEN));
    }

    #[test]
    fn what_is_set_aside_has_its_reason() {
        assert_eq!(mean("7", &[token("7", &[("7", 0.4), ("The", 0.6)])]), Err(LITTLE_MASS));
        assert_eq!(mean("7", &[token("7", &[("7", 0.5), ("The", 0.5)])]), Ok(7.0));
        assert_eq!(mean("12", &[token("12", &[("12", 1.0)])]), Err(grade::OUT_OF_RANGE));
        assert_eq!(mean("", &[]), Err(grade::EMPTY));
        assert_eq!(mean("I cannot", &[token("I", &[("I", 0.4), ("8", 0.6)])]), Err(grade::NO_GRADE));
        assert!(read("7", &[token("7", &[])]).is_none());
    }

    proptest! {
        #[test]
        fn any_tokens_are_a_grade_in_range_or_a_reason(
            answer in "[0-9]{1,2}", texts in proptest::collection::vec(("[0-9 *]{0,2}", any::<f64>()), 0..12), cut in 0usize..12,
        ) {
            let named: Vec<_> = texts.iter().map(|(t, l)| (t.clone(), *l)).collect();
            let token = |(text, logprob): &(String, f64)| Token {
                text: text.clone(), logprob: *logprob, alternatives: named[..cut.min(named.len())].to_vec(),
            };
            let mut tokens = vec![Token { text: answer.clone(), logprob: 0.0, alternatives: named.clone() }];
            tokens.extend(texts.iter().map(token));
            if let Some(Ok(grade)) = read(&answer, &tokens) {
                prop_assert!((0.0..=10.0).contains(&grade));
                prop_assert_eq!(grade, (grade * 1e6).round() / 1e6);
            }
        }
    }
}
