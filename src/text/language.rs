//! The language of a text.

use whatlang::{Lang, Script};

use super::latin;
use super::script::{Unspaced, unspaced};

/// Letters that a text needs before its language is guessed from statistics.
const MIN_LETTERS: usize = 20;

/// Characters that are looked at: more do not change the answer, and a long turn must not cost more than a short one.
const LOOKED_AT: usize = 1_000;

/// Characters of many texts together that are looked at: the first of them may be greetings and names.
const LOOKED_AT_TOGETHER: usize = 16_000;

/// Letters of many texts together that make the likeliest language the answer, however near the next is: short lines
/// repeat their words, so that a measure made for prose doubts them.
const ENOUGH_LETTERS: usize = 400;

/// The ISO 639-1 code of the text's language; None where it is too short, mixed or not known.
///
/// Scripts that one language uses settle it at any length (Han is Chinese, kana Japanese, Hangul Korean, Thai Thai);
/// languages that share a script are told apart by their trigrams.
pub fn detect(text: &str) -> Option<&'static str> {
    of_whole(first(text, LOOKED_AT), usize::MAX)
}

/// The language of texts that are too short to show theirs alone, from the first of them together.
pub fn detect_together<'a>(texts: impl IntoIterator<Item = &'a str>) -> Option<&'static str> {
    let (mut together, mut left) = (String::new(), LOOKED_AT_TOGETHER);
    for text in texts {
        let text = first(text, left);
        together.push_str(text);
        together.push('\n');
        left = left.saturating_sub(text.chars().count() + 1);
        if left == 0 {
            break;
        }
    }
    of_whole(&together, ENOUGH_LETTERS)
}

fn first(text: &str, characters: usize) -> &str {
    let end = text.char_indices().nth(characters).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

/// The language of all of the text; a guess that is not reliable counts from `enough` letters on.
fn of_whole(text: &str, enough: usize) -> Option<&'static str> {
    let (mut letters, mut han, mut kana, mut hangul, mut thai) = (0, 0, 0, 0, 0);
    for c in text.chars().filter(|c| c.is_alphabetic()) {
        letters += 1;
        match unspaced(c) {
            Some(Unspaced::Han) => han += 1,
            Some(Unspaced::Kana) => kana += 1,
            Some(Unspaced::Hangul) => hangul += 1,
            Some(Unspaced::Thai) => thai += 1,
            _ => {}
        }
    }
    let most = |n: usize| n * 2 > letters;
    if most(han + kana) {
        // Japanese has a kana in ten letters even in a headline; Chinese has one in a quoted name.
        return Some(if kana * 10 >= han + kana { "ja" } else { "zh" });
    }
    if most(hangul) {
        return Some("ko");
    }
    if most(thai) {
        return Some("th");
    }
    let script = whatlang::detect_script(text)?;
    let alone = script.langs().len() == 1;
    if !alone && letters < MIN_LETTERS.min(enough) {
        return None;
    }
    let (language, reliable) = match script {
        Script::Latin => latin::guess(text)?,
        _ => whatlang::detect(text).map(|guess| (guess.lang(), guess.is_reliable()))?,
    };
    (alone || letters >= enough || reliable).then(|| code(language))
}

/// ISO 639-1 of a language that whatlang knows.
fn code(lang: Lang) -> &'static str {
    match lang {
        Lang::Epo => "eo",
        Lang::Eng => "en",
        Lang::Rus => "ru",
        Lang::Cmn => "zh",
        Lang::Spa => "es",
        Lang::Por => "pt",
        Lang::Ita => "it",
        Lang::Ben => "bn",
        Lang::Fra => "fr",
        Lang::Deu => "de",
        Lang::Ukr => "uk",
        Lang::Kat => "ka",
        Lang::Ara => "ar",
        Lang::Hin => "hi",
        Lang::Jpn => "ja",
        Lang::Heb => "he",
        Lang::Yid => "yi",
        Lang::Pol => "pl",
        Lang::Amh => "am",
        Lang::Jav => "jv",
        Lang::Kor => "ko",
        Lang::Nob => "nb",
        Lang::Dan => "da",
        Lang::Swe => "sv",
        Lang::Fin => "fi",
        Lang::Tur => "tr",
        Lang::Nld => "nl",
        Lang::Hun => "hu",
        Lang::Ces => "cs",
        Lang::Ell => "el",
        Lang::Bul => "bg",
        Lang::Bel => "be",
        Lang::Mar => "mr",
        Lang::Kan => "kn",
        Lang::Ron => "ro",
        Lang::Slv => "sl",
        Lang::Hrv => "hr",
        Lang::Srp => "sr",
        Lang::Mkd => "mk",
        Lang::Lit => "lt",
        Lang::Lav => "lv",
        Lang::Est => "et",
        Lang::Tam => "ta",
        Lang::Vie => "vi",
        Lang::Urd => "ur",
        Lang::Tha => "th",
        Lang::Guj => "gu",
        Lang::Uzb => "uz",
        Lang::Pan => "pa",
        Lang::Aze => "az",
        Lang::Ind => "id",
        Lang::Tel => "te",
        Lang::Pes => "fa",
        Lang::Mal => "ml",
        Lang::Ori => "or",
        Lang::Mya => "my",
        Lang::Nep => "ne",
        Lang::Sin => "si",
        Lang::Khm => "km",
        Lang::Tuk => "tk",
        Lang::Aka => "ak",
        Lang::Zul => "zu",
        Lang::Sna => "sn",
        Lang::Afr => "af",
        Lang::Lat => "la",
        Lang::Slk => "sk",
        Lang::Cat => "ca",
        Lang::Tgl => "tl",
        Lang::Hye => "hy",
        Lang::Cym => "cy",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn scripts_settle_the_language_at_any_length() {
        for (text, language) in [
            ("今天玩成语接龙游戏", "zh"),
            ("猫", "zh"),
            ("今日は天気がいいですね", "ja"),
            ("ありがとう", "ja"),
            ("안녕하세요", "ko"),
            ("สวัสดีครับ", "th"),
            ("καλημέρα", "el"),
        ] {
            assert_eq!(detect(text), Some(language), "{text}");
        }
    }

    #[test]
    fn sentences_are_told_apart() {
        for (text, language) in [
            ("I went to the market yesterday and bought some fresh vegetables for the whole family.", "en"),
            ("Gestern bin ich mit meiner Schwester ins Kino gegangen, und der Film war wirklich schön.", "de"),
            ("Hier je suis allée au cinéma avec ma sœur, et nous avons beaucoup aimé le film.", "fr"),
            (
                "Вчера мы с сестрой ходили в кино, и фильм нам очень понравился, хотя он был довольно длинный и грустный.",
                "ru",
            ),
        ] {
            assert_eq!(detect(text), Some(language), "{text}");
        }
    }

    #[test]
    fn short_or_empty_texts_have_no_language() {
        for text in ["", "ok", "Hi!", "123 456", "!!! 😀", "https"] {
            assert_eq!(detect(text), None, "{text:?}");
        }
    }

    #[test]
    fn short_texts_have_a_language_together() {
        let english = ["running late", "no worries", "where are you?", "at the station", "see you there", "thanks"];
        let german = ["gut", "ja, gern", "um sechs", "wo denn?", "wie immer", "bis dann", "ich freue mich", "tschüss"];
        for (texts, language) in [(&english[..], "en"), (&german[..], "de")] {
            assert!(texts.iter().all(|t| detect(t).is_none()));
            assert_eq!(detect_together(texts.iter().copied().cycle().take(80)), Some(language));
        }
        assert_eq!(detect_together([]), None);
        assert_eq!(detect_together(["ok", "!!"]), None);
    }

    #[test]
    fn only_the_first_of_many_texts_are_read() {
        let russian = "Вчера мы с сестрой ходили в кино, и фильм нам очень понравился.";
        assert_eq!(detect_together([russian]), None, "one sentence is not enough");
        let many = std::iter::repeat_n(russian, 300).chain(std::iter::once_with(|| unreachable!("16,000 are enough")));
        assert_eq!(detect_together(many), Some("ru"));
    }

    proptest! {
        #[test]
        fn no_text_fails(text in any::<String>()) {
            if let Some(code) = detect(&text) {
                prop_assert_eq!(code.len(), 2);
            }
        }
    }
}
