//! What stands beside a pair changes nothing of its score; what comes out broken is computed again.

use std::sync::Arc;
use std::thread;

use super::testing::{Odd, batcher, folder, long_scorer};
use super::{CrossEncoder, Encoder, Purpose};
use crate::config::Precision;
use crate::device::Batcher;
use crate::model::TextTokenizer;

const WORDS: [&str; 12] =
    ["dog", "cat", "book", "train", "river", "tea", "violin", "park", "red", "garden", "bread", "shop"];

/// Ten thousand pairs, all different.
fn many() -> Vec<(String, String)> {
    let word = |i: usize| WORDS[i % 12];
    let pair = |i: usize| (format!("what {}", word(i)), [12, 144, 1728, 20736].map(|n| word(i / n)).join(" "));
    (0..10_000).map(pair).collect()
}

fn bits(scorer: &CrossEncoder, pairs: &[&(String, String)]) -> Vec<u32> {
    let pairs: Vec<_> = pairs.iter().map(|(q, d)| (Some(q.as_str()), Some(d.as_str()))).collect();
    scorer.score(&pairs).unwrap().iter().map(|s| s.logit.unwrap().to_bits()).collect()
}

#[test]
fn a_pair_has_the_same_bits_alone_among_ten_thousand_in_any_order_and_from_several_threads() {
    let all = many();
    for (name, precision) in
        [("xlmr_scorer", Precision::F32), ("bert_scorer", Precision::Int8), ("xlmr_scorer", Precision::Int8)]
    {
        let scorer = CrossEncoder::load(&folder(name).in_precision(precision), &batcher()).unwrap();
        let together = bits(&scorer, &all.iter().collect::<Vec<_>>());
        for i in (0..all.len()).step_by(331) {
            assert_eq!(bits(&scorer, &[&all[i]]), [together[i]], "{name} {precision:?}: {:?}", all[i]);
        }
        // 7,919 is prime to 10,000: another order of all.
        let order: Vec<usize> = (0..all.len()).map(|i| i * 7919 % all.len()).collect();
        let right = |places: &[usize]| places.iter().map(|&i| together[i]).collect::<Vec<_>>();
        thread::scope(|scope| {
            for part in order.chunks(all.len() / 4) {
                let (scorer, all, right) = (&scorer, &all, &right);
                scope.spawn(move || {
                    let pairs: Vec<_> = part.iter().map(|&i| &all[i]).collect();
                    assert_eq!(bits(scorer, &pairs), right(part), "{name} {precision:?}");
                });
            }
        });
    }
}

#[test]
fn one_long_pair_runs_alone_and_the_short_ones_in_full_batches() {
    const BUDGET: usize = 1024;
    let (_dir, folder) = long_scorer();
    let device = Odd::new(BUDGET, None);
    let scorer = CrossEncoder::load(&folder, &Batcher::new(device.clone()).unwrap()).unwrap();
    // `<s> what w </s></s> ... </s>`: 2 + 4 tokens and those of the turn.
    let long = ("what dog".to_string(), vec!["river"; 7994].join(" "));
    let all = many();
    let mut pairs: Vec<_> = all[..2000].iter().collect();
    pairs.insert(700, &long);
    let scored = bits(&scorer, &pairs);
    let batches = device.batches.lock().unwrap().clone();
    let sizes: Vec<usize> = batches.iter().map(|b| b.iter().sum()).collect();
    assert_eq!(batches.iter().filter(|b| b.contains(&8000)).collect::<Vec<_>>(), [&vec![8000]]);
    assert!(sizes.iter().all(|size| *size <= BUDGET || *size == 8000), "{sizes:?}");
    // Ten tokens a pair, 102 in a batch: nothing is padded, and nothing is sent twice.
    assert_eq!(sizes.iter().sum::<usize>(), 8000 + 2000 * 10);
    assert_eq!(batches.len(), 1 + 2000usize.div_ceil(BUDGET / 10));
    assert_eq!(bits(&scorer, &[&long]), [scored[700]]);
}

/// A device that fails on one word, in 8-bit integers alone.
#[test]
fn in_int8_a_row_that_is_not_finite_is_computed_again_in_f32() {
    for name in ["bert", "xlmr"] {
        let (embed, score) = (folder(&format!("{name}_encoder")), folder(&format!("{name}_scorer")));
        let tokenizer = TextTokenizer::read(&embed.tokenizer, &embed.config, 64).unwrap();
        let poison = tokenizer.singles(&[Some("violin")]).unwrap()[0].sequence.clone().unwrap().tokens[1];
        let failing = || Batcher::new(Odd::new(8192, Some(poison))).unwrap();
        let texts = [Some("my dog"), Some("a red violin"), None, Some("violin"), Some("the tea")];
        let of = |precision, batcher: &Arc<Batcher>| {
            let encoder = Encoder::load(&embed.clone().in_precision(precision), batcher).unwrap();
            let vectors = encoder.embed(&texts, Purpose::Passage).unwrap().into_iter().map(|e| e.vector);
            (vectors.collect::<Vec<_>>(), encoder.progress().computed_again())
        };
        let ((f32, _), (int8, whole)) = (of(Precision::F32, &batcher()), of(Precision::Int8, &batcher()));
        let (got, again) = of(Precision::Int8, &failing());
        assert_eq!((whole, again), (0, 2));
        assert_eq!(got, [&int8[0], &f32[1], &int8[2], &f32[3], &int8[4]].map(Clone::clone));
        assert_ne!(f32[1], int8[1]);
        // In f32 there is nothing better: the row is marked.
        let (got, _) = of(Precision::F32, &failing());
        assert_eq!(got.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true, false, true]);

        let pairs = texts.map(|text| (Some("who was it"), text));
        let of = |precision, batcher: &Arc<Batcher>| {
            let scorer = CrossEncoder::load(&score.clone().in_precision(precision), batcher).unwrap();
            scorer.score(&pairs).unwrap().into_iter().map(|s| s.logit).collect::<Vec<_>>()
        };
        let (f32, int8) = (of(Precision::F32, &batcher()), of(Precision::Int8, &batcher()));
        assert_eq!(of(Precision::Int8, &failing()), [int8[0], f32[1], None, f32[3], int8[4]]);
        assert_eq!(of(Precision::F32, &failing()), [f32[0], None, None, None, f32[4]]);
    }
}
