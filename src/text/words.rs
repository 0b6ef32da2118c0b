//! The tokens that BM25 counts.
//!
//! `unicode`: NFKC, lower case, words by Unicode's word boundaries (UAX #29), Snowball stems in one language. Runs of
//! scripts without spaces give the bigrams of their characters (a run of one character gives that character), so that
//! a question finds a turn that holds its words in the middle of a sentence. No stop words: BM25 weighs them down.
//!
//! `ascii`: the lower-cased text's runs of `a-z0-9`, and English stems: what many reference programs count.

use unicode_normalization::UnicodeNormalization;
use unicode_segmentation::UnicodeSegmentation;

use super::ascii;
use super::script::unspaced;
use super::stems::Stems;
use crate::system::Tokens;

/// Cuts texts into tokens. It keeps its working space, so that a text costs no allocation but for its stems.
pub struct Tokenizer {
    tokens: Tokens,
    stems: Stems,
    folded: String,
}

impl Tokenizer {
    /// `language` is an ISO 639-1 code; a language without a Snowball algorithm, or none, has no stems.
    /// ASCII tokens are stemmed as English whatever the language.
    pub fn new(tokens: Tokens, stem: bool, language: Option<&str>) -> Self {
        let stems = match tokens {
            _ if !stem => Stems::none(),
            Tokens::Ascii => Stems::new("en"),
            Tokens::Unicode => language.map_or_else(Stems::none, Stems::new),
        };
        Tokenizer { tokens, stems, folded: String::new() }
    }

    /// Calls `each` with every token of the text, in order, stemmed.
    pub fn tokens(&mut self, text: &str, each: &mut impl FnMut(&str)) {
        self.words(text, &mut |word, stems| each(&stems.of(word)));
    }

    /// Calls `each` with every token of the text, in order, before stemming, and with what stems it: a caller that
    /// keeps what it has seen need not stem a word twice.
    pub fn words(&mut self, text: &str, each: &mut impl FnMut(&str, &Stems)) {
        let each = &mut |word: &str| each(word, &self.stems);
        let folded = &mut self.folded;
        match self.tokens {
            Tokens::Ascii => runs_of_ascii(text, folded, each),
            Tokens::Unicode => {
                let mut rest = text;
                while !rest.is_empty() {
                    let (ascii, other, after) = stretches(rest);
                    fold_ascii(ascii, folded);
                    ascii::words(folded, each);
                    fold(other, folded);
                    split_scripts(folded, each);
                    rest = after;
                }
            }
        }
    }
}

/// Cuts a text in three: one that is ASCII, one that is not, and the rest.
///
/// A cut is where a word begins after a blank, both ASCII: nothing before such a place changes how what is after it is
/// folded or cut into words, and the other way round.
fn stretches(text: &str) -> (&str, &str, &str) {
    // Asked first, as the library reads many bytes at once.
    if text.is_ascii() {
        return (text, "", "");
    }
    let bytes = text.as_bytes();
    let blank = |byte: u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t');
    let begins = |at: usize| bytes[at].is_ascii() && !blank(bytes[at]) && blank(bytes[at - 1]);
    let first = bytes.iter().position(|b| !b.is_ascii()).unwrap_or(bytes.len());
    let start = (1..first).rev().find(|&at| begins(at)).unwrap_or(0);
    let end = (first + 1..bytes.len()).find(|&at| begins(at)).unwrap_or(bytes.len());
    (&text[..start], &text[start..end], &text[end..])
}

fn fold_ascii(text: &str, folded: &mut String) {
    folded.clear();
    folded.push_str(text);
    folded.make_ascii_lowercase();
}

/// Writes the form of `text` that is cut into words to `folded`.
fn fold(text: &str, folded: &mut String) {
    folded.clear();
    text.nfkc().for_each(|c| fold_char(c, folded));
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

/// The runs of `a-z0-9` in the lower-cased text.
fn runs_of_ascii(text: &str, folded: &mut String, each: &mut impl FnMut(&str)) {
    if text.is_ascii() {
        fold_ascii(text, folded);
    } else {
        *folded = text.to_lowercase();
    }
    let bytes = folded.as_bytes();
    let mut at = 0;
    while let Some(skipped) = bytes[at..].iter().position(u8::is_ascii_alphanumeric) {
        let start = at + skipped;
        at = bytes[start..].iter().position(|b| !b.is_ascii_alphanumeric()).map_or(bytes.len(), |n| start + n);
        each(&folded[start..at]);
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
    use crate::text::stems::LANGUAGES;
    use proptest::prelude::*;

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
        assert_eq!(stem(Some("en"), "Running generously Caroline's"), ["run", "generous", "carolin"]);
        assert_eq!(stem(Some("de"), "Aufeinander HÄUSER"), ["aufeinand", "haus"]);
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

    /// The definition: the whole text is folded, then cut.
    fn by_definition(text: &str) -> Vec<String> {
        let mut folded = String::new();
        fold(text, &mut folded);
        let mut all = Vec::new();
        split_scripts(&folded, &mut |word| all.push(word.to_string()));
        all
    }

    #[test]
    fn a_text_is_cut_in_stretches_of_ascii_and_of_all_else() {
        assert_eq!(stretches("a b"), ("a b", "", ""));
        assert_eq!(stretches("a b cé d e"), ("a b ", "cé ", "d e"));
        assert_eq!(stretches("é"), ("", "é", ""));
        assert_eq!(stretches("a é b"), ("", "a é ", "b"), "a mark would join the blank before it");
        assert_eq!(stretches("é \u{301}b c"), ("", "é \u{301}b ", "c"));
        assert_eq!(stretches("a  é  b"), ("", "a  é  ", "b"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_048))]

        #[test]
        fn stretches_are_cut_as_the_whole(
            text in "([a-bA.:,'_1 \n\t]|[é\u{301}\u{903}\u{200d}\u{1f170}Ⓜ’ж字が한א\u{2028}\u{3000}ﬁ\u{ad}\u{1f1e6}\u{feff}]){0,24}",
        ) {
            prop_assert_eq!(plain(&text), by_definition(&text));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_cut_as_the_whole(text in any::<String>(), more in "[ a-c\n.']{0,9}") {
            let text = format!("{more}{text}{more}{text}");
            prop_assert_eq!(plain(&text), by_definition(&text));
        }

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
        fn ascii_mode_is_its_definition(text in any::<String>()) {
            let lower = text.to_lowercase();
            let expected: Vec<String> =
                regex::Regex::new("[a-z0-9]+").unwrap().find_iter(&lower).map(|m| m.as_str().to_string()).collect();
            prop_assert_eq!(tokens(Tokens::Ascii, false, None, &text), expected);
        }
    }
}
