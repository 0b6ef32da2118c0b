//! The cross-encoder's head: counts around a block's sixteen rows, and sums that saturate tanh.

use super::{Case, Device, Worst, blocks};
use crate::emulation::{Arguments, Schedule, Shape};
use crate::inputs::Inputs;
use crate::measure::worst_value;
use crate::reference::{ScoreHead, score_head};

/// A logit sums `hidden` values of tanh, each off by a few units in the last place of f32.
const BAR: f64 = 1e-4;
const ROWS_A_BLOCK: usize = 16;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("score_head/sizes", BAR, |device| {
            let mut worst = Worst::default();
            for &(count, hidden) in device.sizes(&[(17, 72), (1, 8), (15, 264), (16, 384), (33, 264), (17, 1024)], 2) {
                one(device, count, hidden, 1.0, Schedule::default(), &mut worst);
            }
            worst
        }),
        Case::new("score_head/saturated", BAR, |device| {
            let mut worst = Worst::default();
            one(device, 5, 64, 300.0, Schedule::default(), &mut worst);
            worst
        }),
        Case::new("score_head/schedules", BAR, |device| {
            let mut worst = Worst::default();
            for schedule in device.schedules(true, false) {
                one(device, 18, 72, 1.0, schedule, &mut worst);
            }
            worst
        }),
    ]
}

fn one(device: &Device, count: usize, hidden: usize, deviation: f64, schedule: Schedule, worst: &mut Worst) {
    let mut inputs = Inputs::seeded(count as u64 * 65_537 + hidden as u64);
    let spread = 1.0 / (hidden as f64).sqrt();
    let rows = inputs.bf16s(count * hidden, 0.0, deviation);
    let dense_weight = inputs.bf16s(hidden * hidden, 0.0, spread);
    let dense_bias = inputs.floats(hidden, 0.0, 0.3);
    let projection_weight = inputs.bf16s(hidden, 0.0, 2.0 * spread);
    let projection_bias = inputs.floats(1, 0.7, 0.1);

    let out = device.output::<f32>(count);
    let rows_in = device.input(&rows);
    let (dense, projection) = (device.input(&dense_weight), device.input(&projection_weight));
    let (dense_shift, projection_shift) = (device.input(&dense_bias), device.input(&projection_bias));
    let arguments = Arguments::default()
        .buffer(&out)
        .buffer(&rows_in)
        .buffer(&dense)
        .buffer(&dense_shift)
        .buffer(&projection)
        .buffer(&projection_shift)
        .int(count)
        .int(hidden);
    let shape = Shape { grid: [blocks(count, ROWS_A_BLOCK), 1], block: 256, shared_bytes: ROWS_A_BLOCK * hidden * 2 };
    device.launch("score_head", shape, &arguments, schedule);

    let head = ScoreHead {
        dense_weight: &dense_weight,
        dense_bias: &dense_bias,
        projection_weight: &projection_weight,
        projection_bias: projection_bias[0],
    };
    let reference = score_head(&rows, &head);
    worst.add(&out, format!("{count} x {hidden}, {schedule}"), |out| worst_value(out, &reference));
}
