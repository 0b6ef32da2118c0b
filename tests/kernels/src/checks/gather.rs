//! Gathering rows: exact, in any order, some twice.

use super::{Case, Device, EXACT, Worst, warp_a_row};
use crate::emulation::{Arguments, Schedule};
use crate::inputs::Inputs;
use crate::measure::same_bits;
use crate::reference::gather;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("gather/sizes", EXACT, |device| {
            let mut worst = Worst::default();
            for &hidden in device.sizes(&[264, 8, 384, 1024, 4096], 2) {
                for &count in device.sizes(&[9, 1, 7, 8, 65], 2) {
                    one(device, count, hidden, Schedule::default(), &mut worst);
                }
            }
            worst
        }),
        Case::new("gather/schedules", EXACT, |device| {
            let mut worst = Worst::default();
            for schedule in device.schedules(true, false) {
                one(device, 17, 264, schedule, &mut worst);
            }
            worst
        }),
    ]
}

fn one(device: &Device, count: usize, hidden: usize, schedule: Schedule, worst: &mut Worst) {
    const ROWS: usize = 12;
    let mut inputs = Inputs::seeded(count as u64 * 31 + hidden as u64);
    let x = inputs.bf16s(ROWS * hidden, 0.0, 1.0);
    let mut rows = inputs.indices(count, ROWS);
    rows[count - 1] = ROWS as u32 - 1;

    let out = device.output(count * hidden);
    let (x_in, rows_in) = (device.input(&x), device.input(&rows));
    let arguments = Arguments::default().buffer(&out).buffer(&x_in).buffer(&rows_in).int(count).int(hidden);
    device.launch("gather", warp_a_row(count), &arguments, schedule);
    let reference = gather(&x, &rows, hidden);
    worst.add(&out, format!("{count} x {hidden}, {schedule}"), |out| same_bits(out, &reference));
}
