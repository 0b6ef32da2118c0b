//! The matrix products: sizes around the edges of tiles, long sums, many tiles, and a row's bits in other company.

use super::tiles::Tile;
use super::{BF16_BAR, Case, Device, EXACT, Worst};
use crate::emulation::{Arguments, Matrix, Schedule};
use crate::inputs::Inputs;
use crate::measure::{same_bits, worst_row};
use crate::memory::Buffer;
use crate::reference::{Epilogue, Product, gemm};
use half::bf16;

#[derive(Debug, Clone, Copy)]
struct Size {
    rows: usize,
    columns: usize,
    /// In steps of the least depth.
    steps: usize,
}

const fn size(rows: usize, columns: usize, steps: usize) -> Size {
    Size { rows, columns, steps }
}

/// Those of [`super::LENGTHS`] as rows, with columns and depths that end within tiles, at their edges, and behind them.
const SIZES: [Size; 10] = [
    size(65, 72, 3),
    size(1, 8, 1),
    size(7, 24, 2),
    size(63, 64, 4),
    size(64, 136, 1),
    size(129, 128, 5),
    size(300, 200, 2),
    size(513, 8, 1),
    size(5, 264, 7),
    size(1, 520, 6),
];

pub fn cases(kernel: &str) -> Result<Vec<Case>, String> {
    let tile = Tile::of(kernel)?;
    let case = |what: &str, bar, run: fn(&Device, &Gemm) -> Worst| {
        let gemm = Gemm { kernel: kernel.to_owned(), tile };
        Case::new(format!("{kernel}/{what}"), bar, move |device| run(device, &gemm))
    };
    let mut cases = vec![
        case("sizes", BF16_BAR, |device, gemm| {
            let mut worst = Worst::default();
            for size in device.sizes(&SIZES, 2) {
                gemm.check(device, *size, Schedule::default(), &mut worst);
            }
            worst
        }),
        case("deep", BF16_BAR, |device, gemm| {
            let mut worst = Worst::default();
            gemm.check(device, size(9, 40, if device.small { 9 } else { 65 }), Schedule::default(), &mut worst);
            worst
        }),
        case("schedules", BF16_BAR, |device, gemm| {
            let mut worst = Worst::default();
            let size = if device.small { size(65, 72, 9) } else { size(gemm.tile.rows + 1, gemm.tile.columns + 8, 9) };
            for schedule in device.schedules(true, gemm.tile.hopper) {
                gemm.check(device, size, schedule, &mut worst);
            }
            worst
        }),
        case("same_bits", EXACT, |device, gemm| gemm.same_bits(device)),
    ];
    if tile.epilogue == Epilogue::Bias {
        // More tiles than one group of the order in which blocks take them.
        cases.push(case("many_tiles", BF16_BAR, |device, gemm| {
            let mut worst = Worst::default();
            let down = if device.small { 2 } else { 17 };
            let size = size(down * gemm.tile.rows + 5, gemm.tile.columns + 8, 1);
            gemm.check(device, size, Schedule { seed: 1, ..Schedule::default() }, &mut worst);
            worst
        }));
    }
    if tile.epilogue == Epilogue::Gelu {
        // Where the form with tanh is off by a twentieth, and 1 + erf cancels.
        cases.push(case("left_tail", BF16_BAR, |device, gemm| {
            let mut worst = Worst::default();
            for mean in [-2.7, -4.0, -5.5] {
                let mut operands = gemm.operands(size(9, 72, 1));
                operands.a.iter_mut().for_each(|value| *value *= bf16::from_f64(0.125));
                operands.bias = Inputs::seeded(1).floats(operands.bias.len(), mean, 0.1);
                let c = device.output(operands.rows * operands.bias.len());
                gemm.launch(device, &operands, &c, None, Schedule::default());
                let reference = gemm.reference(&operands);
                worst.add(&c, format!("around {mean}"), |c| worst_row(c, &reference, operands.bias.len()));
            }
            worst
        }));
    }
    if tile.epilogue == Epilogue::Residual {
        cases.push(case("over_residual", BF16_BAR, |device, gemm| {
            let mut worst = Worst::default();
            for size in device.sizes(&SIZES, 2) {
                let operands = gemm.operands(*size);
                let c = device.input(&operands.residual);
                gemm.launch(device, &operands, &c, None, Schedule::default());
                worst.add(&c, format!("{size:?}"), |c| worst_row(c, &gemm.reference(&operands), size.columns));
            }
            worst
        }));
    }
    if tile.hopper {
        cases.push(case("any_grid", BF16_BAR, |device, gemm| {
            let mut worst = Worst::default();
            let operands = gemm.operands(size(2 * gemm.tile.rows + 5, gemm.tile.columns + 8, 3));
            let reference = gemm.reference(&operands);
            for &blocks in device.sizes(&[2, 1, 3, 4, 7], 2) {
                let c = device.output(reference.len());
                let schedule = Schedule { seed: blocks as u64, late_copies: true, late_mma: true };
                gemm.launch(device, &operands, &c, Some(blocks), schedule);
                worst.add(&c, format!("{blocks} blocks"), |c| worst_row(c, &reference, operands.bias.len()));
            }
            worst
        }));
    }
    Ok(cases)
}

struct Gemm {
    kernel: String,
    tile: Tile,
}

#[derive(Clone)]
struct Operands {
    a: Vec<bf16>,
    w: Vec<bf16>,
    bias: Vec<f32>,
    residual: Vec<bf16>,
    rows: usize,
    depth: usize,
}

impl Gemm {
    fn operands(&self, size: Size) -> Operands {
        let Size { rows, columns, steps } = size;
        let depth = steps * self.tile.depth_step;
        let mut inputs = Inputs::seeded((rows * 1_000_000 + columns * 1000 + steps) as u64);
        Operands {
            a: inputs.bf16s(rows * depth, 0.0, 1.0),
            w: inputs.bf16s(columns * depth, 0.0, 1.0 / (depth as f64).sqrt()),
            bias: inputs.floats(columns, 0.0, 0.5),
            residual: inputs.bf16s(rows * columns, 0.0, 1.0),
            rows,
            depth,
        }
    }

    fn reference(&self, o: &Operands) -> Vec<f64> {
        let product = Product { a: &o.a, w: &o.w, bias: &o.bias, residual: &o.residual, depth: o.depth };
        gemm(&product, self.tile.epilogue)
    }

    fn check(&self, device: &Device, size: Size, schedule: Schedule, worst: &mut Worst) {
        let operands = self.operands(size);
        let c = device.output(size.rows * size.columns);
        self.launch(device, &operands, &c, None, schedule);
        let reference = self.reference(&operands);
        worst.add(&c, format!("{size:?}, {schedule}"), |c| worst_row(c, &reference, size.columns));
    }

    /// Without a number of blocks there are as many as tiles, but on Hopper at most three, which share the tiles. The
    /// residual is `c` itself where `c` holds it.
    fn launch(&self, device: &Device, o: &Operands, c: &Buffer<bf16>, blocks: Option<usize>, schedule: Schedule) {
        let (columns, tile) = (o.bias.len(), &self.tile);
        let tiles = tile.count(o.rows, columns);
        let blocks = blocks.unwrap_or(if tile.hopper { tiles.min(3) } else { tiles });
        let (a, w, bias) = (device.input(&o.a), device.input(&o.w), device.input(&o.bias));
        let residual = device.input(&o.residual);
        let in_place = tile.epilogue == Epilogue::Residual && c.values() == o.residual;
        let arguments = Arguments::default().buffer(c);
        let arguments = if tile.hopper {
            let map = |values, rows, box_rows| {
                let matrix = Matrix { values, first: 0, rows, columns: o.depth, stride: o.depth };
                device.emulation().tensor_map(&matrix, box_rows as u32)
            };
            arguments.tensor_map(&map(&a, o.rows, tile.rows)).tensor_map(&map(&w, columns, tile.columns))
        } else {
            arguments.buffer(&a).buffer(&w)
        };
        let residual = match tile.epilogue {
            Epilogue::Residual if in_place => Some(c),
            Epilogue::Residual => Some(&residual),
            _ => None,
        };
        let arguments = arguments.buffer(&bias).optional(residual).int(o.rows).int(columns).int(o.depth);
        device.launch(&self.kernel, tile.shape(blocks), &arguments, schedule);
    }

    /// A row alone, among others, and among others in reverse order.
    fn same_bits(&self, device: &Device) -> Worst {
        let size = if device.small { size(66, 24, 2) } else { size(300, 136, 3) };
        let batch = self.operands(size);
        let of_rows = |rows: &[usize]| {
            let pick = |values: &[bf16], width: usize| {
                rows.iter().flat_map(|&row| values[row * width..][..width].to_vec()).collect::<Vec<bf16>>()
            };
            Operands {
                a: pick(&batch.a, batch.depth),
                residual: pick(&batch.residual, size.columns),
                rows: rows.len(),
                ..batch.clone()
            }
        };
        let run = |rows: &[usize]| {
            let c = device.output(rows.len() * size.columns);
            self.launch(device, &of_rows(rows), &c, None, Schedule::default());
            c
        };
        let all: Vec<usize> = (0..size.rows).collect();
        let among_all = run(&all).values();
        let mut worst = Worst::default();
        let mut compare = |rows: &[usize], place: String| {
            let expected: Vec<bf16> =
                rows.iter().flat_map(|&row| among_all[row * size.columns..][..size.columns].to_vec()).collect();
            worst.add(&run(rows), place, |c| same_bits(c, &expected));
        };
        for row in device.sizes(&[65, 0, 1, 63, 64, 129, 255, 299], 1) {
            compare(&[*row], format!("row {row} alone"));
        }
        compare(&all.iter().rev().copied().collect::<Vec<_>>(), "reverse order".to_owned());
        worst
    }
}
