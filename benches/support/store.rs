//! Stores made from a seed: what benches and scale tests run on where no real history may be used.
//!
//! A store is sessions of about ten turns, user and assistant by turns, in time order. A turn has about 60 o200k tokens
//! on average, from a few words to several hundred. Each session has its own topic words, and each question is about
//! one session. Equal arguments give equal stores.

use super::language::Language;

const MINUTE: i64 = 60_000_000;
/// 2023-01-01 00:00 UTC, in microseconds.
const FIRST_DAY: i64 = 1_672_531_200_000_000;

pub struct Turn {
    /// Counted from 0.
    pub session: usize,
    /// Counted from 0, within the session.
    pub position: usize,
    /// Microseconds, UTC.
    pub spoken_at: i64,
    pub role: &'static str,
    pub content: String,
}

pub struct Store {
    pub turns: Vec<Turn>,
    pub questions: Vec<String>,
    /// When the questions are asked: after the last turn. Microseconds, UTC.
    pub asked_at: i64,
}

/// One of many stores of a seed.
pub fn store(language: &Language, seed: u64, index: u64, turns: usize, questions: usize) -> Store {
    let mut random = Random::new(seed.wrapping_mul(0x9E37_79B9).wrapping_add(index + 1));
    let mut made = Store { turns: Vec::with_capacity(turns), questions: Vec::new(), asked_at: FIRST_DAY };
    let mut topics: Vec<Vec<&str>> = Vec::new();
    while made.turns.len() < turns {
        let topic: Vec<&str> = (0..8).map(|_| language.topic(&mut random)).collect();
        made.asked_at += (360 + random.below(1_440) as i64) * MINUTE;
        for position in 0..(4 + random.below(13)).min(turns - made.turns.len()) {
            made.asked_at += (1 + random.below(3) as i64) * MINUTE;
            let user = position % 2 == 0;
            let words = words_of_a_turn(user, &mut random);
            made.turns.push(Turn {
                session: topics.len(),
                position,
                spoken_at: made.asked_at,
                role: if user { "user" } else { "assistant" },
                content: text(language, &topic, words, &mut random),
            });
        }
        topics.push(topic);
    }
    made.asked_at += 1_440 * MINUTE;
    made.questions = (0..questions).map(|_| question(language, &topics, &mut random)).collect();
    made
}

/// Mostly short, with a long tail; assistants say more.
fn words_of_a_turn(user: bool, random: &mut Random) -> usize {
    let (shortest, scale) = if user { (2.0, 20.0) } else { (8.0, 44.0) };
    (shortest - scale * (1.0 - random.uniform()).ln()) as usize
}

/// Sentences of four to twenty words, a tenth of them about the topic.
fn text(language: &Language, topic: &[&str], words: usize, random: &mut Random) -> String {
    let mut text = String::new();
    let mut left = 0;
    for at in 0..words.max(1) {
        let begins = left == 0;
        if begins {
            left = 4 + random.below(17);
        }
        left -= 1;
        let word = match random.below(100) {
            0 => language.odd(random),
            1..=10 if !topic.is_empty() => topic[random.below(topic.len())],
            _ => language.word(random),
        };
        let mut letters = word.chars();
        match letters.next() {
            Some(first) if begins || word == "i" || word.starts_with("i'") => {
                text.extend(first.to_uppercase());
                text.push_str(letters.as_str());
            }
            _ => text.push_str(word),
        }
        let last = at + 1 == words.max(1);
        text.push_str(match random.below(12) {
            0 if left == 0 || last => "? ",
            1 if left == 0 || last => "!\n",
            _ if left == 0 || last => ". ",
            0 => ", ",
            _ => " ",
        });
    }
    text.trim_end().to_string()
}

/// "When did I", then words among which are three of a session's topic.
fn question(language: &Language, topics: &[Vec<&str>], random: &mut Random) -> String {
    let Some(topic) = (!topics.is_empty()).then(|| &topics[random.below(topics.len())]) else {
        return "Who am I?".into();
    };
    let first = random.one_of(&["When did I", "What was the", "Where is my", "How many", "Who said that"]);
    let mut words = vec![first];
    for _ in 0..3 {
        words.push(topic[random.below(topic.len())]);
        words.push(language.word(random));
    }
    words.join(" ") + "?"
}

/// SplitMix64.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// At least 0, below 1.
    pub fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn one_of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }

    /// A unit vector in a random direction.
    pub fn unit_vector(&mut self, dim: usize) -> Vec<f32> {
        let mut vector: Vec<f32> =
            (0..dim).map(|_| (self.uniform() + self.uniform() + self.uniform() - 1.5) as f32).collect();
        let norm = vector.iter().map(|v| v * v).sum::<f32>().sqrt();
        vector.iter_mut().for_each(|v| *v /= norm);
        vector
    }
}
