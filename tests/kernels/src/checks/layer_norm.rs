//! LayerNorm: with and without bias and residual, in place, and on rows that are hard for f32.

use super::{BF16_BAR, Case, Device, Worst, warp_a_row};
use crate::emulation::{Arguments, Schedule};
use crate::inputs::Inputs;
use crate::measure::worst_row;
use crate::reference::{Norm, layer_norm};

const EPSILON: f32 = 1e-5;

/// Where the result goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Out {
    Apart,
    OverX,
    OverResidual,
}

#[derive(Debug, Clone, Copy)]
struct Rows {
    rows: usize,
    hidden: usize,
    mean: f64,
    deviation: f64,
    bias: bool,
    residual: bool,
    out: Out,
}

const PLAIN: Rows =
    Rows { rows: 17, hidden: 264, mean: 0.0, deviation: 1.0, bias: false, residual: false, out: Out::Apart };

pub fn cases() -> Vec<Case> {
    let both = Rows { bias: true, residual: true, ..PLAIN };
    vec![
        sizes("layer_norm/plain", PLAIN),
        sizes("layer_norm/bias", Rows { bias: true, ..PLAIN }),
        sizes("layer_norm/residual", Rows { residual: true, ..PLAIN }),
        sizes("layer_norm/bias_and_residual", both),
        sizes("layer_norm/over_x", Rows { out: Out::OverX, ..both }),
        sizes("layer_norm/over_residual", Rows { out: Out::OverResidual, ..both }),
        // The variance as E[x^2] - E[x]^2 would lose all its digits: the mean is 500 deviations.
        sizes("layer_norm/far_from_zero", Rows { mean: 250.0, deviation: 0.5, ..PLAIN }),
        // The variance is below epsilon.
        sizes("layer_norm/tiny", Rows { deviation: 1e-3, ..PLAIN }),
        sizes("layer_norm/constant", Rows { mean: 3.0, deviation: 0.0, ..PLAIN }),
        Case::new("layer_norm/schedules", BF16_BAR, move |device| {
            let mut worst = Worst::default();
            for schedule in device.schedules(true, false) {
                one(device, both, schedule, &mut worst);
            }
            worst
        }),
    ]
}

fn sizes(name: &str, shape: Rows) -> Case {
    Case::new(name, BF16_BAR, move |device| {
        let mut worst = Worst::default();
        for &hidden in device.sizes(&[264, 8, 64, 384, 768, 1024, 1016], 2) {
            for &rows in device.sizes(&[9, 1, 7, 8, 65], 2) {
                one(device, Rows { rows, hidden, ..shape }, Schedule::default(), &mut worst);
            }
        }
        worst
    })
}

fn one(device: &Device, shape: Rows, schedule: Schedule, worst: &mut Worst) {
    let Rows { rows, hidden, .. } = shape;
    let mut inputs = Inputs::seeded(rows as u64 * 104_729 + hidden as u64);
    let x = inputs.bf16s(rows * hidden, shape.mean, shape.deviation);
    let bias = inputs.floats(hidden, 0.0, 0.5);
    let residual = inputs.bf16s(rows * hidden, 0.0, 1.0);
    let (gain, shift) = (inputs.floats(hidden, 1.0, 0.2), inputs.floats(hidden, 0.3, 0.2));

    let apart = device.output(rows * hidden);
    let (x_in, residual_in, bias_in) = (device.input(&x), device.input(&residual), device.input(&bias));
    let (gain_in, shift_in) = (device.input(&gain), device.input(&shift));
    let out = match shape.out {
        Out::Apart => &apart,
        Out::OverX => &x_in,
        Out::OverResidual => &residual_in,
    };
    let arguments = Arguments::default()
        .buffer(out)
        .buffer(&x_in)
        .optional(shape.bias.then_some(&bias_in))
        .optional(shape.residual.then_some(&residual_in))
        .buffer(&gain_in)
        .buffer(&shift_in)
        .int(rows)
        .int(hidden)
        .float(EPSILON);
    device.launch("layer_norm", warp_a_row(rows), &arguments, schedule);

    let norm = Norm { gain: &gain, shift: &shift, epsilon: EPSILON };
    let bias = shape.bias.then_some(bias.as_slice());
    let reference = layer_norm(&x, bias, shape.residual.then_some(residual.as_slice()), &norm);
    worst.add(out, format!("{rows} x {hidden}, {schedule}"), |out| worst_row(out, &reference, hidden));
}
