//! The cosine of a question with the mean of some turns, from vectors of 16-bit floats, in f64.
//!
//! The turns are added value by value, which has the direction of their mean. Value `i` of a sum is added in lane
//! `i % 8`, every product and every addition is rounded, and the lanes are added one after another: so the bits are the
//! same on every machine.

use half::f16;

use crate::error::{Error, Result};

/// Additions that go on side by side: part of the result's definition.
const LANES: usize = 8;

type Lanes = [f64; LANES];
/// Eight values.
type Eight = [u8; 2 * LANES];

/// Working space for one row after another.
#[derive(Default)]
pub(super) struct ContextCosine {
    /// The question of the last row, and its square: most rows ask what the row before them asked.
    question: Vec<u8>,
    square: f64,
    /// As long as the question: stands for a turn that is not there.
    zeros: Vec<u8>,
}

impl ContextCosine {
    /// None where it is no finite number. The vectors are little-endian f16; of the turns, any may be missing.
    ///
    /// # Errors
    /// Vectors of different or odd lengths: a data error.
    pub fn of(&mut self, question: &[u8], turns: [Option<&[u8]>; 3]) -> Result<Option<f32>> {
        check(question, turns)?;
        if self.question != question {
            self.question = question.to_vec();
            self.zeros = vec![0; question.len()];
            self.square = sums(question, [question, &self.zeros, &self.zeros])[1];
        }
        // To add nothing changes no sum: one that began with +0 is never -0.
        let [dot, square] = sums(question, turns.map(|turn| turn.unwrap_or(&self.zeros)));
        let cosine = (dot / (self.square.sqrt() * square.sqrt())) as f32;
        Ok(cosine.is_finite().then_some(cosine))
    }
}

fn check(question: &[u8], turns: [Option<&[u8]>; 3]) -> Result<()> {
    if !question.len().is_multiple_of(2) {
        return Err(Error::data(format!("context_cosine: a vector of {} bytes is not f16", question.len())));
    }
    match turns.into_iter().flatten().find(|turn| turn.len() != question.len()) {
        Some(turn) => Err(Error::data(format!(
            "context_cosine: the question's vector has {} bytes, the turn's {}",
            question.len(),
            turn.len()
        ))
        .next("questions and turns must be embedded by one encoder")),
        None => Ok(()),
    }
}

/// Of the turns' sum with the question, and with itself. All are of one length.
fn sums(question: &[u8], turns: [&[u8]; 3]) -> [f64; 2] {
    let (eights, rest) = question.as_chunks::<{ 2 * LANES }>();
    let turns = turns.map(|turn| turn.as_chunks::<{ 2 * LANES }>());
    let mut lanes = whole(eights, turns.map(|turn| turn.0));
    add(&mut lanes, rest, turns.map(|turn| turn.1));
    lanes.map(|lanes| lanes.iter().sum())
}

/// Of eights of values.
fn whole(question: &[Eight], turns: [&[Eight]; 3]) -> [Lanes; 2] {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx") && std::arch::is_x86_feature_detected!("f16c") {
        // SAFETY: the processor has the instructions.
        return unsafe { avx::whole(question, turns) };
    }
    portable(question, turns)
}

fn portable(question: &[Eight], [a, b, c]: [&[Eight]; 3]) -> [Lanes; 2] {
    let mut lanes = [[0.0; LANES]; 2];
    for (((question, a), b), c) in question.iter().zip(a).zip(b).zip(c) {
        add(&mut lanes, question, [a, b, c]);
    }
    lanes
}

/// The definition, for up to eight values.
fn add([dots, squares]: &mut [Lanes; 2], question: &[u8], turns: [&[u8]; 3]) {
    let value = |bytes: &[u8], i: usize| f64::from(f16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]));
    for i in 0..question.len() / 2 {
        let sum = turns.iter().fold(0.0, |sum, turn| sum + value(turn, i));
        dots[i] += value(question, i) * sum;
        squares[i] += sum * sum;
    }
}

#[cfg(target_arch = "x86_64")]
mod avx {
    use std::arch::x86_64::*;

    use super::{Eight, LANES, Lanes};

    /// No multiply-adds: each product is rounded.
    #[target_feature(enable = "avx,f16c")]
    pub fn whole(question: &[Eight], [a, b, c]: [&[Eight]; 3]) -> [Lanes; 2] {
        let mut dots = [_mm256_setzero_pd(); 2];
        let mut squares = [_mm256_setzero_pd(); 2];
        for i in 0..question.len() {
            let (question, a, b, c) = (decode(&question[i]), decode(&a[i]), decode(&b[i]), decode(&c[i]));
            for half in 0..2 {
                let sum = _mm256_add_pd(_mm256_add_pd(a[half], b[half]), c[half]);
                dots[half] = _mm256_add_pd(dots[half], _mm256_mul_pd(question[half], sum));
                squares[half] = _mm256_add_pd(squares[half], _mm256_mul_pd(sum, sum));
            }
        }
        [dots, squares].map(|[low, high]| {
            let mut lanes = [0.0; LANES];
            // SAFETY: four floats are written to each half, at any alignment.
            unsafe {
                _mm256_storeu_pd(lanes.as_mut_ptr(), low);
                _mm256_storeu_pd(lanes.as_mut_ptr().add(LANES / 2), high);
            }
            lanes
        })
    }

    #[inline]
    #[target_feature(enable = "avx,f16c")]
    fn decode(bytes: &Eight) -> [__m256d; 2] {
        // SAFETY: 16 bytes are read, at any alignment.
        let values = _mm256_cvtph_ps(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) });
        [_mm256_cvtps_pd(_mm256_castps256_ps128(values)), _mm256_cvtps_pd(_mm256_extractf128_ps(values, 1))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(seed: usize, dim: usize) -> Vec<u8> {
        let value = |i: usize| ((i * 7919 + seed * 104_729 + i / 13) % 1009) as f32 * 0.00137 - 0.6;
        (0..dim).flat_map(|i| f16::from_f32(value(i)).to_le_bytes()).collect()
    }

    /// As the head of the file has it, value by value.
    fn by_definition(question: &[u8], turns: [Option<&[u8]>; 3]) -> f32 {
        let values = |bytes: &[u8]| -> Vec<f64> {
            bytes.chunks(2).map(|b| f64::from(f16::from_le_bytes([b[0], b[1]]).to_f32())).collect()
        };
        let mut sum = vec![0.0; question.len() / 2];
        for turn in turns.into_iter().flatten() {
            sum.iter_mut().zip(values(turn)).for_each(|(s, v)| *s += v);
        }
        let dot = |a: &[f64], b: &[f64]| {
            let mut lanes = [0.0; 8];
            a.iter().zip(b).enumerate().for_each(|(i, (a, b))| lanes[i % 8] += a * b);
            lanes.iter().sum::<f64>()
        };
        let question = values(question);
        (dot(&question, &sum) / (dot(&question, &question).sqrt() * dot(&sum, &sum).sqrt())) as f32
    }

    #[test]
    fn the_bits_are_those_of_the_definition_whoever_is_missing_and_whatever_came_before() {
        let mut cosine = ContextCosine::default();
        for (n, dim) in [1, 7, 8, 37, 384, 8, 1024].into_iter().enumerate() {
            let [question, a, b, c] = [0, 1, 2, 3].map(|seed| vector(n + seed, dim));
            for question in [&question, &a, &question] {
                for missing in 0..4 {
                    let turn = |i: usize, turn| (i != missing).then_some(turn);
                    let turns = [turn(0, &a[..]), turn(1, &b), turn(2, &c)];
                    let got = cosine.of(question, turns).unwrap();
                    assert_eq!(got, Some(by_definition(question, turns)), "{dim} {missing}");
                }
            }
        }
    }

    #[test]
    fn eights_are_added_alike_with_and_without_the_processor_s_help() {
        let rows = [5, 6, 7, 8].map(|seed| vector(seed, 384));
        let [question, a, b, c] = rows.each_ref().map(|row| row.as_chunks::<16>().0);
        assert_eq!(whole(question, [a, b, c]), portable(question, [a, b, c]));
    }
}
