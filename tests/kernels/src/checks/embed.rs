//! Embedding: sizes around a block's eight rows, hidden sizes that fill a warp's loads and such that do not.

use super::{BF16_BAR, Case, Device, Worst, warp_a_row};
use crate::emulation::{Arguments, Schedule};
use crate::inputs::Inputs;
use crate::measure::worst_row;
use crate::reference::{Embedding, Norm, embed};
use half::bf16;

const EPSILON: f32 = 1e-5;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("embed/sizes", BF16_BAR, |device| {
            let mut worst = Worst::default();
            for &hidden in device.sizes(&[264, 8, 64, 384, 768, 1024, 1016], 2) {
                for &rows in device.sizes(&[9, 1, 7, 8, 65], 2) {
                    one(device, rows, hidden, Schedule::default(), &mut worst);
                }
            }
            worst
        }),
        Case::new("embed/schedules", BF16_BAR, |device| {
            let mut worst = Worst::default();
            for schedule in device.schedules(true, false) {
                one(device, 17, 264, schedule, &mut worst);
            }
            worst
        }),
    ]
}

fn one(device: &Device, rows: usize, hidden: usize, schedule: Schedule, worst: &mut Worst) {
    const WORDS: usize = 50;
    const POSITIONS: usize = 20;
    let mut inputs = Inputs::seeded(rows as u64 * 7919 + hidden as u64);
    let words = inputs.bf16s(WORDS * hidden, 0.0, 1.0);
    let positions = inputs.bf16s(POSITIONS * hidden, 0.0, 0.5);
    let types = inputs.bf16s(2 * hidden, 0.1, 0.5);
    let (gain, shift) = (inputs.floats(hidden, 1.0, 0.2), inputs.floats(hidden, 0.0, 0.2));
    let (mut tokens, segments) = (inputs.indices(rows, WORDS), inputs.indices(rows, 2));
    let mut places = inputs.indices(rows, POSITIONS);
    (tokens[rows - 1], places[rows - 1]) = (WORDS as u32 - 1, POSITIONS as u32 - 1);

    let out = device.output::<bf16>(rows * hidden);
    let bf16s = [&words, &positions, &types].map(|values| device.input(values));
    let norms = [&gain, &shift].map(|values| device.input(values));
    let ids = [&tokens, &segments, &places].map(|values| device.input(values));
    let arguments = Arguments::default().buffer(&out);
    let arguments = bf16s.iter().fold(arguments, |a, buffer| a.buffer(buffer));
    let arguments = norms.iter().fold(arguments, |a, buffer| a.buffer(buffer));
    let arguments = ids.iter().fold(arguments, |a, buffer| a.buffer(buffer));
    let arguments = arguments.int(rows).int(hidden).float(EPSILON);
    device.launch("embed", warp_a_row(rows), &arguments, schedule);

    let norm = Norm { gain: &gain, shift: &shift, epsilon: EPSILON };
    let tables = Embedding { words: &words, positions: &positions, types: &types, norm };
    let reference = embed(&tables, &tokens, &segments, &places);
    worst.add(&out, format!("{rows} x {hidden}, {schedule}"), |out| worst_row(out, &reference, hidden));
}
