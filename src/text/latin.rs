//! The language of a text in Latin letters, as whatlang has it, in a tenth of its time.
//!
//! whatlang asks for each of the 300 frequent trigrams of each of 37 languages whether the text has it, which is 11,100
//! look-ups, however short the text. Here each trigram of the text is looked up once, and the languages that have it are
//! told. Profiles and arithmetic are whatlang's, and so is each answer.

use std::sync::LazyLock;

use datafusion::common::HashMap;
use whatlang::Lang;

/// See the head of the file.
const PROFILES: &str = include_str!("latin.tsv");

/// Trigrams of a profile, and what one that the text lacks counts.
const FREQUENT: usize = 300;
/// Trigrams of a text that are compared.
const COMPARED: usize = 600;
/// A guess is reliable above it.
const RELIABLE: f64 = 0.9;

/// Three characters of 21 bits each, in order: as numbers they compare as the characters do.
type Trigram = u64;

struct Profiles {
    languages: Vec<Lang>,
    /// The languages that have a trigram, and its place in each.
    trigrams: HashMap<Trigram, Vec<(u8, u16)>>,
    /// A bit for each language that has the letter.
    letters: HashMap<char, u64>,
}

static LATIN: LazyLock<Profiles> = LazyLock::new(|| {
    let mut latin = Profiles { languages: Vec::new(), trigrams: HashMap::new(), letters: HashMap::new() };
    for line in PROFILES.lines().filter(|line| !line.starts_with('#')) {
        let [code, letters, trigrams] = line.split('\t').collect::<Vec<_>>()[..] else {
            unreachable!("three columns");
        };
        let language = latin.languages.len() as u8;
        latin.languages.push(Lang::from_code(code).expect("a language of whatlang's"));
        letters.chars().for_each(|letter| *latin.letters.entry(letter).or_default() |= 1 << language);
        let characters: Vec<char> = trigrams.chars().collect();
        for (place, of) in characters.as_chunks::<3>().0.iter().enumerate() {
            latin.trigrams.entry(pack(*of)).or_default().push((language, place as u16));
        }
    }
    latin
});

fn pack([a, b, c]: [char; 3]) -> Trigram {
    (a as u64) << 42 | (b as u64) << 21 | c as u64
}

/// The likeliest language of a text whose letters are Latin, and whether that is reliable.
pub(super) fn guess(text: &str) -> Option<(Lang, bool)> {
    let characters: Vec<char> = text.to_lowercase().chars().map(|c| if is_stop(c) { ' ' } else { c }).collect();
    let letters = characters.iter().filter(|&&c| c != ' ').count();
    if letters == 0 {
        return None;
    }
    let trigrams = frequent(&characters);
    let (by_letter, by_trigram) = (by_letter(&characters, letters), by_trigram(&trigrams));
    // The longer the text, the more the trigrams say.
    let weight = (2.0 / 3.0 - letters as f64 / 300.0).clamp(1.0 / 3.0, 2.0 / 3.0);
    let scores = by_letter.iter().zip(&by_trigram).map(|(a, t)| a * weight + t * (1.0 - weight));
    let (mut best, mut first, mut second) = (0, f64::MIN, f64::MIN);
    for (language, score) in scores.enumerate() {
        if score > first {
            (best, second, first) = (language, first, score);
        } else {
            second = second.max(score);
        }
    }
    Some((LATIN.languages[best], confidence(first, second, trigrams.len()) > RELIABLE))
}

/// Signs and digits: what stands between words.
fn is_stop(c: char) -> bool {
    c.is_ascii() && !c.is_ascii_alphabetic() && c != '\u{7f}'
}

/// The text's different trigrams, the most frequent first, of equals the greater.
fn frequent(characters: &[char]) -> Vec<Trigram> {
    let (mut a, mut b) = (' ', characters[0]);
    let mut all: Vec<Trigram> = Vec::with_capacity(characters.len());
    for &c in characters[1..].iter().chain([&' ']) {
        if !(b == ' ' && (a == ' ' || c == ' ')) {
            all.push(pack([a, b, c]));
        }
        (a, b) = (b, c);
    }
    all.sort_unstable();
    let mut counts: Vec<(usize, Trigram)> = all.chunk_by(|a, b| a == b).map(|same| (same.len(), same[0])).collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts.truncate(COMPARED);
    counts.into_iter().map(|(_, trigram)| trigram).collect()
}

/// Of each language: its letters in the text less those that are not its own, as a share.
fn by_letter(characters: &[char], letters: usize) -> Vec<f64> {
    let mut own = vec![0; LATIN.languages.len()];
    // Most are letters of all languages.
    let (everyones, mut of_all) = ((1 << own.len()) - 1, 0);
    for c in characters.iter().filter(|&&c| c != ' ') {
        match LATIN.letters.get(c).copied().unwrap_or_default() {
            languages if languages == everyones => of_all += 1,
            languages => own.iter_mut().enumerate().for_each(|(i, own)| *own += (languages >> i & 1) as usize),
        }
    }
    own.into_iter().map(|own| (2 * (own + of_all)).saturating_sub(letters) as f64 / letters as f64).collect()
}

/// Of each language: how near the order of its trigrams is to that of the text's.
fn by_trigram(trigrams: &[Trigram]) -> Vec<f64> {
    let mut distances = vec![(FREQUENT * FREQUENT) as i64; LATIN.languages.len()];
    for (place, trigram) in trigrams.iter().enumerate() {
        for &(language, at) in LATIN.trigrams.get(trigram).into_iter().flatten() {
            distances[usize::from(language)] += (place as i64 - i64::from(at)).abs() - FREQUENT as i64;
        }
    }
    // A short text cannot have them all.
    let lacking = (FREQUENT * FREQUENT.saturating_sub(trigrams.len())) as i64;
    let most = (FREQUENT * trigrams.len()) as f64;
    let share = |distance: i64| (most - (distance - lacking).min((FREQUENT * FREQUENT) as i64) as f64) / most;
    distances.into_iter().map(share).collect()
}

/// How far the best is from the next; a text of few trigrams needs more.
fn confidence(first: f64, second: f64, trigrams: usize) -> f64 {
    if first == 0.0 || second == 0.0 {
        return first;
    }
    let far = 3.0 / trigrams as f64 + 0.015;
    let apart = (first - second) / second;
    if apart > far { 1.0 } else { apart / far }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// whatlang's own answer; of languages that are level, it may name another, and holds neither for reliable.
    fn same(text: &str) {
        if whatlang::detect_script(text) != Some(whatlang::Script::Latin) {
            return;
        }
        let expected = whatlang::detect(text).map(|info| (info.lang(), info.is_reliable()));
        let got = guess(text);
        assert_eq!(got.map(|g| g.1), expected.map(|e| e.1), "{text:?}");
        if got.is_some_and(|g| g.1) {
            assert_eq!(got, expected, "{text:?}");
        }
    }

    #[test]
    fn answers_are_whatlang_s() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("data/demo");
        let mut turns = 0;
        for file in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            for line in text.lines().filter(|line| whatlang::detect_script(line) == Some(whatlang::Script::Latin)) {
                same(line);
                same(&line.chars().rev().take(70).collect::<String>());
                turns += 1;
            }
        }
        assert!(turns > 100, "{turns}");
    }

    proptest! {
        #[test]
        fn answers_of_any_latin_text_are_whatlang_s(
            text in "[A-Za-zäöüßéèçñãõąęłšžőığşøåæ' .,!0-9]{1,200}", words in "((the|and|und|que|de|non|är|het|jeg) ){1,30}"
        ) {
            same(&text);
            same(&words);
        }
    }
}
