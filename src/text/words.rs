//! The tokens that BM25 counts.
//!
//! `unicode`: NFKC, lower case, words by Unicode's word boundaries (UAX #29), Snowball stems in one language. Runs of
//! scripts without spaces give the bigrams of their characters (a run of one character gives that character), so that
//! a question finds a turn that holds its words in the middle of a sentence. No stop words: BM25 weighs them down.
//!
//! `ascii`: the lower-cased text's runs of `a-z0-9`, and English stems: what many reference programs count.
//!
//! English stems are those of Snowball 3.1. Other languages' are those of its version 3, near enough to 3.1 (Persian's
//! are not, and are left out); Ukrainian's are of an algorithm that Snowball has not released yet.

use std::borrow::Cow;

use snowball_stemmers_rs::{Algorithm, Stemmer};
use unicode_normalization::UnicodeNormalization;
use unicode_segmentation::UnicodeSegmentation;

use super::script::unspaced;
use crate::system::Tokens;

/// Cuts texts into tokens. It keeps its working space, so that a text costs no allocation but for its stems.
pub struct Tokenizer {
    tokens: Tokens,
    stems: Stems,
    folded: String,
}

/// Stems in one language, or none.
pub struct Stems(Option<Stemmer>);

/// Bytes of the longest word that is stemmed: some algorithms take time in the square of the length.
const LONGEST_STEMMED: usize = 256;

impl Stems {
    /// Never empty: a word that is all ending is its own stem.
    pub fn of<'a>(&self, word: &'a str) -> Cow<'a, str> {
        match &self.0 {
            Some(stemmer) if word.len() <= LONGEST_STEMMED => match stemmer.stem(word) {
                stem if stem.is_empty() => Cow::Borrowed(word),
                stem => stem,
            },
            _ => Cow::Borrowed(word),
        }
    }
}

impl Tokenizer {
    /// `language` is an ISO 639-1 code; a language without a Snowball algorithm, or none, has no stems.
    /// ASCII tokens are stemmed as English whatever the language.
    pub fn new(tokens: Tokens, stem: bool, language: Option<&str>) -> Self {
        let algorithm = match tokens {
            Tokens::Ascii => Some(Algorithm::English),
            Tokens::Unicode => language.and_then(algorithm),
        };
        let stems = Stems(algorithm.filter(|_| stem).map(Stemmer::create));
        Tokenizer { tokens, stems, folded: String::new() }
    }

    /// Calls `each` with every token of the text, in order, stemmed.
    pub fn tokens(&mut self, text: &str, each: &mut impl FnMut(&str)) {
        self.words(text, &mut |word, stems| each(&stems.of(word)));
    }

    /// Calls `each` with every token of the text, in order, before stemming, and with what stems it: a caller that
    /// keeps what it has seen need not stem a word twice.
    pub fn words(&mut self, text: &str, each: &mut impl FnMut(&str, &Stems)) {
        fold(text, self.tokens, &mut self.folded);
        split(&self.folded, self.tokens, &mut |word| each(word, &self.stems));
    }
}

/// The Snowball algorithm of an ISO 639-1 code, where there is one.
fn algorithm(language: &str) -> Option<Algorithm> {
    Some(match language {
        "ar" => Algorithm::Arabic,
        "ca" => Algorithm::Catalan,
        "cs" => Algorithm::Czech,
        "da" => Algorithm::Danish,
        "de" => Algorithm::German,
        "el" => Algorithm::Greek,
        "en" => Algorithm::English,
        "eo" => Algorithm::Esperanto,
        "es" => Algorithm::Spanish,
        "et" => Algorithm::Estonian,
        "eu" => Algorithm::Basque,
        "fi" => Algorithm::Finnish,
        "fr" => Algorithm::French,
        "ga" => Algorithm::Irish,
        "hi" => Algorithm::Hindi,
        "hu" => Algorithm::Hungarian,
        "hy" => Algorithm::Armenian,
        "id" => Algorithm::Indonesian,
        "it" => Algorithm::Italian,
        "lt" => Algorithm::Lithuanian,
        "ne" => Algorithm::Nepali,
        "nl" => Algorithm::Dutch,
        "no" | "nb" | "nn" => Algorithm::Norwegian,
        "pl" => Algorithm::Polish,
        "pt" => Algorithm::Portuguese,
        "ro" => Algorithm::Romanian,
        "ru" => Algorithm::Russian,
        "sr" => Algorithm::Serbian,
        "st" => Algorithm::Sesotho,
        "sv" => Algorithm::Swedish,
        "ta" => Algorithm::Tamil,
        "tr" => Algorithm::Turkish,
        "uk" => Algorithm::Ukrainian,
        "yi" => Algorithm::Yiddish,
        _ => return None,
    })
}

/// Writes the form of `text` that is cut into words to `folded`.
fn fold(text: &str, tokens: Tokens, folded: &mut String) {
    folded.clear();
    if text.is_ascii() {
        folded.push_str(text);
        folded.make_ascii_lowercase();
        return;
    }
    match tokens {
        Tokens::Ascii => folded.push_str(&text.to_lowercase()),
        Tokens::Unicode => text.nfkc().for_each(|c| fold_char(c, folded)),
    }
}

fn fold_char(c: char, folded: &mut String) {
    match c {
        // A typographic apostrophe is an apostrophe: "don’t" is "don't".
        '\u{2019}' => folded.push('\''),
        // Both lower-case sigmas are one letter; a dotted capital I is an i, without a dot left over.
        'ς' => folded.push('σ'),
        'İ' => folded.push('i'),
        // A soft hyphen, a word joiner and a byte order mark stand inside words and are not seen.
        '\u{00AD}' | '\u{2060}' | '\u{FEFF}' => {}
        c => folded.extend(c.to_lowercase()),
    }
}

fn split(folded: &str, tokens: Tokens, each: &mut impl FnMut(&str)) {
    match tokens {
        Tokens::Ascii => {
            folded.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).for_each(each)
        }
        Tokens::Unicode if folded.is_ascii() => folded.unicode_words().for_each(each),
        Tokens::Unicode => split_scripts(folded, each),
    }
}

/// Words of spaced scripts, bigrams of the others, in the order of the text.
fn split_scripts(folded: &str, each: &mut impl FnMut(&str)) {
    let mut rest = folded;
    while let Some(first) = rest.chars().next() {
        let glued = unspaced(first).is_some();
        let end = rest.find(|c| unspaced(c).is_some() != glued).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        if glued {
            bigrams(run, each)
        } else {
            run.unicode_words().for_each(&mut *each)
        }
        rest = after;
    }
}

fn bigrams(run: &str, each: &mut impl FnMut(&str)) {
    let mut ends = run.char_indices().map(|(at, c)| at + c.len_utf8());
    let mut middle = ends.next().unwrap_or(0);
    if middle == run.len() {
        return each(run);
    }
    let mut start = 0;
    for end in ends {
        each(&run[start..end]);
        (start, middle) = (middle, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LANGUAGES: [&str; 36] = [
        "ar", "ca", "cs", "da", "de", "el", "en", "eo", "es", "et", "eu", "fi", "fr", "ga", "hi", "hu", "hy", "id",
        "it", "lt", "ne", "nl", "no", "nb", "nn", "pl", "pt", "ro", "ru", "sr", "st", "sv", "ta", "tr", "uk", "yi",
    ];

    fn tokens(kind: Tokens, stem: bool, language: Option<&str>, text: &str) -> Vec<String> {
        let mut all = Vec::new();
        Tokenizer::new(kind, stem, language).tokens(text, &mut |t| all.push(t.to_string()));
        all
    }

    fn plain(text: &str) -> Vec<String> {
        tokens(Tokens::Unicode, false, None, text)
    }

    #[test]
    fn unicode_words_are_lower_case_and_compatible() {
        assert_eq!(plain("Hello, WORLD! 3.14"), ["hello", "world", "3.14"]);
        assert_eq!(plain("Café ＦＵＬＬ ﬁsh don’t naï\u{ad}ve"), ["café", "full", "fish", "don't", "naïve"]);
        assert_eq!(plain("İstanbul ΟΔΟΣ οδος"), ["istanbul", "οδοσ", "οδοσ"]);
        // A decomposed letter is the composed one.
        assert_eq!(plain("cafe\u{301}"), plain("café"));
    }

    #[test]
    fn a_text_of_signs_has_no_tokens() {
        for kind in [Tokens::Unicode, Tokens::Ascii] {
            for text in ["", " \n\t", "!!! 😀", "…—“”", "👩‍👩‍👧"] {
                assert!(tokens(kind, true, Some("en"), text).is_empty(), "{text:?}");
            }
        }
    }

    #[test]
    fn scripts_without_spaces_give_bigrams() {
        assert_eq!(plain("成语接龙"), ["成语", "语接", "接龙"]);
        assert_eq!(plain("我用Rust写 代码。猫"), ["我用", "rust", "写", "代码", "猫"]);
        assert_eq!(plain("東京タワーへ"), ["東京", "京タ", "タワ", "ワー", "ーへ"]);
        assert_eq!(plain("한국어 말"), ["한국", "국어", "말"]);
        // Half-width kana are kana.
        assert_eq!(plain("ｶﾀｶﾅ"), ["カタ", "タカ", "カナ"]);
        assert_eq!(plain("แมว"), ["แม", "มว"]);
    }

    #[test]
    fn stems_follow_the_language() {
        let stem = |language, text| tokens(Tokens::Unicode, true, language, text);
        // From Snowball 3.1, by PyStemmer.
        assert_eq!(stem(Some("en"), "Running generously Caroline's"), ["run", "generous", "carolin"]);
        assert_eq!(stem(Some("de"), "aufeinander Häuser"), ["aufeinand", "haus"]);
        assert_eq!(stem(Some("fr"), "continuellement"), ["continuel"]);
        assert_eq!(stem(Some("nb"), "havnedistriktene"), ["havnedistrikt"]);
        assert_eq!(stem(Some("en"), "evening even added ad"), ["evening", "even", "add", "ad"]);
        assert_eq!(stem(Some("en"), "universal internal internationally"), ["universal", "internal", "internat"]);
        assert_eq!(stem(Some("nl"), "boeken naar"), ["boek", "naar"]);
        assert_eq!(stem(Some("pl"), "samochodami"), ["samochod"]);
        assert_eq!(stem(Some("cs"), "knihami"), ["knih"]);
        assert_eq!(stem(Some("id"), "pembelajaran"), ["ajar"]);
        assert_eq!(stem(Some("sr"), "књигама knjigama"), ["knjig", "knjig"]);
        assert_eq!(stem(Some("hi"), "लड़कियाँ लड़कियों"), ["लड़क", "लड़क"]);
        // All ending: Snowball leaves nothing of it.
        assert_eq!(stem(Some("tr"), "ları"), ["ları"]);
        assert_eq!(stem(Some("xx"), "running"), ["running"]);
        assert_eq!(stem(None, "running"), ["running"]);
    }

    #[test]
    fn ascii_tokens_are_runs_of_letters_and_digits() {
        let ascii = |stem, text| tokens(Tokens::Ascii, stem, Some("de"), text);
        assert_eq!(ascii(false, "Don't e-mail café_3"), ["don", "t", "e", "mail", "caf", "3"]);
        // U+212A, the Kelvin sign, is lower-cased to an ASCII k.
        assert_eq!(ascii(false, "5\u{212A}m"), ["5km"]);
        assert_eq!(ascii(true, "running Houses"), ["run", "hous"]);
    }

    #[test]
    fn a_word_of_a_million_letters_is_one_token() {
        let long = "a".repeat(1_000_000);
        for language in LANGUAGES {
            assert_eq!(tokens(Tokens::Unicode, true, Some(language), &long), [long.as_str()], "{language}");
        }
        assert_eq!(plain(&"字".repeat(100_000)).len(), 99_999);
    }

    proptest! {
        #[test]
        fn no_text_fails_and_tokens_are_not_empty(text in any::<String>(), stem in any::<bool>()) {
            for language in [None].into_iter().chain(LANGUAGES.map(Some)) {
                for kind in [Tokens::Unicode, Tokens::Ascii] {
                    let mut tokenizer = Tokenizer::new(kind, stem, language);
                    let mut words = Vec::new();
                    tokenizer.words(&text, &mut |w, _| words.push(w.to_string()));
                    prop_assert!(words.iter().all(|w| !w.is_empty()));
                    let mut tokens = 0;
                    tokenizer.tokens(&text, &mut |_| tokens += 1);
                    prop_assert_eq!(words.len(), tokens);
                }
            }
        }

        #[test]
        fn stemmers_take_any_word_of_their_script(word in "[a-zßàâçéèêëîïôûùüÿñæœäöåøăâîșțşğıα-ωά-ώа-яё\u{621}-\u{652}\u{b83}-\u{bcd}']{1,24}") {
            for language in LANGUAGES {
                prop_assert!(!Tokenizer::new(Tokens::Unicode, true, Some(language)).stems.of(&word).is_empty());
            }
        }

        #[test]
        fn ascii_mode_is_its_definition(text in any::<String>()) {
            let lower = text.to_lowercase();
            let expected: Vec<String> =
                regex::Regex::new("[a-z0-9]+").unwrap().find_iter(&lower).map(|m| m.as_str().to_string()).collect();
            prop_assert_eq!(tokens(Tokens::Ascii, false, None, &text), expected);
        }
    }
}
