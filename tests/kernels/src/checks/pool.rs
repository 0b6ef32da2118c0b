//! Pooling: mean and first row, of sequences of many lengths, of a row of zeros, and of no row.

use super::{Case, Device, F32_BAR, LENGTHS, Worst};
use crate::emulation::{Arguments, Schedule, Shape};
use crate::inputs::Inputs;
use crate::measure::worst_row;
use crate::reference::pool;
use half::bf16;

pub fn cases() -> Vec<Case> {
    let sizes = |name: &str, mean: bool| {
        Case::new(name, F32_BAR, move |device| {
            let mut worst = Worst::default();
            for &hidden in device.sizes(&[264, 8, 384, 1024], 2) {
                one(device, device.sizes(&LENGTHS, 3), hidden, mean, Schedule::default(), &mut worst);
            }
            worst
        })
    };
    vec![
        sizes("pool/mean", true),
        sizes("pool/first", false),
        Case::new("pool/schedules", F32_BAR, |device| {
            let mut worst = Worst::default();
            for schedule in device.schedules(true, false) {
                one(device, &[3, 1, 0, 9], 264, true, schedule, &mut worst);
                one(device, &[3, 1, 0, 9], 264, false, schedule, &mut worst);
            }
            worst
        }),
    ]
}

fn one(device: &Device, lengths: &[usize], hidden: usize, mean: bool, schedule: Schedule, worst: &mut Worst) {
    let starts = super::starts(lengths);
    let rows = starts[lengths.len()] as usize;
    let mut x = Inputs::seeded(hidden as u64).bf16s(rows * hidden, 0.1, 1.0);
    // The first sequence that has one row has no direction.
    let zeros = starts[lengths.iter().position(|&length| length == 1).unwrap_or(0)] as usize;
    x[zeros * hidden..][..hidden].fill(bf16::ZERO);

    let out = device.output::<f32>(lengths.len() * hidden);
    let (x_in, starts_in) = (device.input(&x), device.input(&starts));
    let arguments =
        Arguments::default().buffer(&out).buffer(&x_in).buffer(&starts_in).int(hidden).int(usize::from(mean));
    let shape = Shape { grid: [lengths.len() as u32, 1], block: 256, shared_bytes: 0 };
    device.launch("pool", shape, &arguments, schedule);
    let reference = pool(&x, &starts, hidden, mean);
    worst.add(&out, format!("hidden {hidden}, {schedule}"), |out| worst_row(out, &reference, hidden));
}
