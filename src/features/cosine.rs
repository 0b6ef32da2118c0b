//! The cosine of a question with the mean of some turns, from vectors of 16-bit floats, in f64.

use crate::device::cpu::halves::decode;
use crate::error::{Error, Result};

/// Additions that go on side by side, value `i` in lane `i % LANES`: part of the result's definition.
const LANES: usize = 8;

/// Working space for one row after another.
#[derive(Default)]
pub(super) struct ContextCosine {
    question: Vec<f32>,
    turn: Vec<f32>,
    /// Of the turns: it has the direction of their mean.
    sum: Vec<f64>,
}

impl ContextCosine {
    /// None where it is no finite number. The vectors are little-endian f16.
    ///
    /// # Errors
    /// Vectors of different or odd lengths: a data error.
    pub fn of<'a>(&mut self, question: &[u8], turns: impl Iterator<Item = &'a [u8]>) -> Result<Option<f32>> {
        if !question.len().is_multiple_of(2) {
            return Err(Error::data(format!("context_cosine: a vector of {} bytes is not f16", question.len())));
        }
        self.question.clear();
        decode(question, &mut self.question);
        self.sum.clear();
        self.sum.resize(self.question.len(), 0.0);
        for turn in turns {
            if turn.len() != question.len() {
                return Err(Error::data(format!(
                    "context_cosine: the question's vector has {} bytes, the turn's {}",
                    question.len(),
                    turn.len()
                ))
                .next("questions and turns must be embedded by one encoder"));
            }
            self.turn.clear();
            decode(turn, &mut self.turn);
            self.sum.iter_mut().zip(&self.turn).for_each(|(s, v)| *s += f64::from(*v));
        }
        let [dot, norm_question, norm_turns] = sums(&self.question, &self.sum);
        let cosine = (dot / (norm_question.sqrt() * norm_turns.sqrt())) as f32;
        Ok(cosine.is_finite().then_some(cosine))
    }
}

/// Of `a * b`, `a * a` and `b * b`.
fn sums(a: &[f32], b: &[f64]) -> [f64; 3] {
    let mut lanes = [[0f64; LANES]; 3];
    let mut add = |i: usize, a: f32, b: f64| {
        let a = f64::from(a);
        lanes[0][i] += a * b;
        lanes[1][i] += a * a;
        lanes[2][i] += b * b;
    };
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        for i in 0..LANES {
            add(i, a[i], b[i]);
        }
    }
    for (i, (a, b)) in a_rest.iter().zip(b_rest).enumerate() {
        add(i, *a, *b);
    }
    lanes.map(|lanes| lanes.iter().sum())
}
