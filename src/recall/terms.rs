//! Numbers for the terms of a store.

use datafusion::common::HashMap;

use crate::text::Tokenizer;

/// Terms, numbered from 0 as they come. A word seen before is not stemmed again.
#[derive(Default)]
pub(super) struct Terms {
    short: HashMap<Short, u32>,
    long: HashMap<String, u32>,
    by_stem: HashMap<String, u32>,
}

impl Terms {
    /// Appends the term of each token of the text, in order.
    pub fn append(&mut self, tokenizer: &mut Tokenizer, text: &str, ids: &mut Vec<u32>) {
        let Terms { short, long, by_stem } = self;
        tokenizer.words(text, &mut |word, stems| {
            let term = || number(by_stem, &stems.of(word));
            ids.push(match Short::of(word) {
                Some(word) => *short.entry(word).or_insert_with(term),
                None => *long.entry_ref(word).or_insert_with(term),
            });
        });
    }

    pub fn len(&self) -> usize {
        self.by_stem.len()
    }

    pub fn of_stem(&self, stem: &str) -> Option<u32> {
        self.by_stem.get(stem).copied()
    }

    /// No more texts come: what is kept to append them is let go.
    pub fn close(&mut self) {
        (self.short, self.long) = Default::default();
    }
}

fn number(by_stem: &mut HashMap<String, u32>, stem: &str) -> u32 {
    let next = u32::try_from(by_stem.len()).expect("a store has fewer than 2^32 words");
    *by_stem.entry_ref(stem).or_insert(next)
}

/// A word of at most 15 bytes, as most are: its bytes, then zeros, its length in the last. To find one, no memory is
/// read but the table's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Short(u64, u64);

impl Short {
    const LONGEST: usize = 15;

    fn of(word: &str) -> Option<Self> {
        let bytes = word.as_bytes();
        if bytes.len() > Self::LONGEST {
            return None;
        }
        let (low, high) = bytes.split_at(bytes.len().min(8));
        Some(Short(little_endian(low), little_endian(high) | (bytes.len() as u64) << 56))
    }
}

/// Up to 8 bytes as a number, in two reads that may overlap (a loop over the bytes costs more than all the rest).
fn little_endian(bytes: &[u8]) -> u64 {
    let n = bytes.len();
    let byte = |at: usize| u64::from(bytes[at]) << (8 * at);
    match (bytes.first_chunk(), bytes.first_chunk(), bytes.last_chunk()) {
        (Some(&all), _, _) => u64::from_le_bytes(all),
        (_, Some(&first), Some(&last)) => {
            u64::from(u32::from_le_bytes(first)) | u64::from(u32::from_le_bytes(last)) << (8 * (n - 4))
        }
        _ if n == 0 => 0,
        _ => byte(0) | byte(n / 2) | byte(n - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Tokens;
    use proptest::prelude::*;

    #[test]
    fn short_words_are_numbers_of_their_bytes() {
        assert_eq!(Short::of(""), Some(Short(0, 0)));
        assert_eq!(Short::of("ab"), Some(Short(0x6261, 2 << 56)));
        assert_eq!(Short::of("abcdefghi"), Some(Short(0x6867_6665_6463_6261, 0x69 | 9 << 56)));
        assert_eq!(Short::of("abcdefghijklmno"), Some(Short(0x6867_6665_6463_6261, 0x0F6F_6E6D_6C6B_6A69)));
        assert_eq!(Short::of("abcdefghijklmnop"), None);
        // Zeros are bytes like others.
        assert_ne!(Short::of("a"), Short::of("a\0"));
    }

    #[test]
    fn words_of_a_stem_are_one_term() {
        let mut terms = Terms::default();
        let mut tokenizer = Tokenizer::new(Tokens::Unicode, true, Some("en"));
        let mut ids = Vec::new();
        let text = "run running congratulations runs congratulations congratulation 字";
        terms.append(&mut tokenizer, text, &mut ids);
        assert_eq!(ids, [0, 0, 1, 0, 1, 1, 2]);
        assert_eq!((terms.len(), terms.of_stem("run"), terms.of_stem("running")), (3, Some(0), None));
        terms.close();
        assert_eq!((terms.len(), terms.of_stem("字")), (3, Some(2)));
    }

    proptest! {
        #[test]
        fn short_words_hold_their_bytes(word in "[a-c\\x00é字]{0,8}") {
            let expected = (word.len() <= 15).then(|| {
                let mut bytes = [0; 16];
                bytes[..word.len()].copy_from_slice(word.as_bytes());
                bytes[15] = word.len() as u8;
                let number = u128::from_le_bytes(bytes);
                Short(number as u64, (number >> 64) as u64)
            });
            prop_assert_eq!(Short::of(&word), expected);
        }
    }
}
