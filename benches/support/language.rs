//! A made-up English: real words at the frequent end, inflected ones in the middle, invented names at the rare end.
//!
//! A word's frequency falls with its rank, as `1 / rank`. Every store speaks the same language.

use super::store::Random;

/// Words of the language.
const WORDS: usize = 16_000;

/// By falling frequency: the words that hold sentences together, and the contractions that tokenisers stumble over.
const FUNCTION: &str = "i the to a and of you it in that is my for was on with have but this we me be at so are your \
    not as do it's just like if i'm they can or what about from up all would there how an out had will get been when \
    some one don't more time no know has were her she he really good them which think by also want could too our than \
    go make need then their that's did now his because into other i've any over much should only who these way could \
    even well something very where can't most after see let us before why things here first him doesn't am still \
    never always maybe didn't sure thanks okay yes you're";

/// Stems of the middle ranks.
const STEMS: &str = "work day week friend family talk plan help feel start love look year week place home try visit \
    play read book movie music game run walk travel trip cook recipe dinner lunch coffee garden plant dog cat school \
    class teach learn study paint draw photo camera phone call message email write story idea project team meet office \
    job boss client report budget price buy sell shop store gift birthday party wedding child parent mother father \
    sister brother doctor health sleep dream tired stress relax exercise yoga gym bike hike camp beach mountain river \
    lake forest city street house room kitchen table chair window door light dark color green blue red white warm cold \
    weather rain snow summer winter spring flight hotel ticket train car drive road map guide local culture language \
    practice improve change move grow build create design share support answer question problem solve detail list \
    step option choice compare choose decide prefer suggest recommend consider check test measure track record save \
    open close begin finish complete develop manage organize prepare provide include require allow offer receive send \
    return keep leave stay wait watch listen hear speak explain describe mention remember forget notice wonder hope \
    enjoy hate miss worry care trust believe agree accept refuse protect control reduce increase add remove mix stir \
    bake boil chop slice serve taste flavor spice sugar butter cheese bread rice chicken fish vegetable fruit apple \
    lemon garlic onion tomato pepper water milk tea wine glass bottle plate bowl knife machine computer software \
    program code data file network server system model method result effect reason cause example number average rate \
    percent value cost money bank loan invest market stock company product brand customer service review rating \
    history museum art artist band song concert dance theater actor director character novel author poem magazine \
    article news journal research science biology physics chemistry math energy power battery solar engine metal wood \
    stone glass paper fabric cotton shirt dress shoe jacket fashion style size fit clean wash fix repair break tool \
    paint brush canvas clay pottery craft hobby sport soccer tennis basketball coach train match score win lose race \
    medal goal challenge progress success fail mistake lesson advice habit routine morning evening night weekend month \
    season holiday memory moment event community volunteer charity animal bird horse nature ocean island sunset view";

/// What a middle word may end in; the rare ones are inventions.
const ENDINGS: [&str; 12] = ["", "s", "ing", "ed", "er", "ly", "ment", "ness", "able", "ful", "ation", "'s"];
const ONSETS: [&str; 20] =
    ["b", "br", "c", "d", "dr", "f", "g", "gr", "h", "k", "l", "m", "n", "p", "r", "s", "st", "t", "v", "w"];
const RHYMES: [&str; 16] = ["a", "an", "ar", "e", "el", "en", "er", "i", "in", "is", "o", "on", "or", "u", "um", "y"];
/// What is no ASCII, or no word: every so often one of these stands in a sentence.
const ODD: [&str; 16] = [
    "café",
    "naïve",
    "don’t",
    "we’ll",
    "“yes”",
    "—",
    "😀",
    "jalapeño",
    "3",
    "42",
    "2023",
    "10:30",
    "$45",
    "3.5",
    "e.g.",
    "https://example.org/a_b?c=1",
];

pub struct Language {
    words: Vec<String>,
}

impl Language {
    pub fn new() -> Self {
        let mut random = Random::new(1);
        let stems: Vec<&str> = STEMS.split_whitespace().collect();
        let mut words: Vec<String> = FUNCTION.split_whitespace().map(str::to_string).collect();
        // Plain stems first, then each ending in turn.
        words.extend(ENDINGS.iter().flat_map(|ending| stems.iter().map(move |stem| inflected(stem, ending))));
        while words.len() < WORDS {
            let syllables = 2 + random.below(2);
            let word: String =
                (0..syllables).map(|_| random.one_of(&ONSETS).to_string() + random.one_of(&RHYMES)).collect();
            words.push(inflected(&word, random.one_of(&ENDINGS[..8])));
        }
        Language { words }
    }

    /// All words, by falling frequency.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(String::as_str)
    }

    /// A word by its frequency: the logarithm of its rank is uniform.
    pub fn word(&self, random: &mut Random) -> &str {
        &self.words[(WORDS as f64).powf(random.uniform()) as usize - 1]
    }

    /// A word that says what a text is about: none of those that hold sentences together.
    pub fn topic(&self, random: &mut Random) -> &str {
        let first = FUNCTION.split_whitespace().count() as f64;
        &self.words[(first * (WORDS as f64 / first).powf(random.uniform())) as usize]
    }

    pub fn odd(&self, random: &mut Random) -> &'static str {
        random.one_of(&ODD)
    }
}

/// A final e gives way to an ending that begins with a vowel.
fn inflected(stem: &str, ending: &str) -> String {
    let stem = if ending.starts_with(['i', 'e', 'a']) { stem.trim_end_matches('e') } else { stem };
    format!("{stem}{ending}")
}
