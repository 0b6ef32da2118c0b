//! Attention: lengths around the edges of tiles, packed batches, causal, other queries than keys, hard scores, and a
//! sequence's bits in other company.

use super::{ATTENTION_BAR, Case, Device, EXACT, LENGTHS, Worst, starts};
use crate::emulation::{Arguments, Matrix, Schedule, Shape};
use crate::inputs::Inputs;
use crate::measure::{same_bits, worst_row};
use crate::memory::Buffer;
use crate::reference::{Attention, Heads, attention};
use half::bf16;

/// Keys that a block takes at a time.
const KEYS: usize = 64;

/// Elements between rows, beyond those that are used: strides need not be the width.
const PADDING: usize = 8;

const MIX: [usize; 5] = [7, 65, 64, 1, 130];

/// Packed sequences, and how their values are drawn.
#[derive(Debug, Clone)]
struct Batch {
    lengths: Vec<usize>,
    /// Queries of each sequence: as many as keys, where not given.
    queries: Option<Vec<usize>>,
    heads: usize,
    causal: bool,
    /// Mean and standard deviation.
    q: (f64, f64),
    k: (f64, f64),
    /// A sequence whose values are not finite, which must not spoil its neighbours.
    spoiled: Option<usize>,
}

impl Batch {
    fn of(lengths: &[usize]) -> Self {
        let unit = (0.0, 1.0);
        Batch { lengths: lengths.to_vec(), queries: None, heads: 2, causal: false, q: unit, k: unit, spoiled: None }
    }

    /// The first two sequences, of one head.
    fn small(&self) -> Self {
        let first = |all: &Vec<usize>| all.iter().copied().take(2).collect();
        Batch { lengths: first(&self.lengths), queries: self.queries.as_ref().map(first), heads: 1, ..self.clone() }
    }

    fn queries(&self) -> &[usize] {
        self.queries.as_ref().unwrap_or(&self.lengths)
    }
}

pub fn cases(kernel: &str) -> Result<Vec<Case>, String> {
    let (dim, hopper) = match kernel {
        "attention_32" => (32, false),
        "attention_64" => (64, false),
        "attention90_64" => (64, true),
        _ => return Err(format!("{kernel}: no such kernel of attention")),
    };
    let kernel = Kernel { name: kernel.to_owned(), dim, hopper };
    let case = |what: &str, batches: Vec<Batch>| {
        let kernel = kernel.clone();
        Case::new(format!("{}/{what}", kernel.name), ATTENTION_BAR, move |device| {
            let mut worst = Worst::default();
            for batch in device.sizes(&batches, 2) {
                let batch = if device.small { batch.small() } else { batch.clone() };
                kernel.check(device, &batch, Schedule::default(), &mut worst);
            }
            worst
        })
    };
    let alone = |causal| {
        let one = |length: &usize| Batch { heads: 1, causal, ..Batch::of(&[*length]) };
        LENGTHS.iter().map(one).collect::<Vec<_>>()
    };
    let mix = || Batch::of(&MIX);
    let scaled = |q, k| Batch { q, k, ..Batch::of(&[65, 7, 130]) };
    let of_queries = |queries: &[usize]| Batch { queries: Some(queries.to_vec()), ..mix() };
    let (schedules, bits) = (kernel.clone(), kernel.clone());
    Ok(vec![
        case("lengths", alone(false)),
        case("causal_lengths", alone(true)),
        case("mix", vec![mix(), Batch { heads: 3, ..mix() }]),
        case("causal_mix", vec![Batch { causal: true, ..mix() }]),
        // The last layer asks for the first row of each sequence alone.
        case("one_query", vec![of_queries(&[1; 5])]),
        case("other_queries", vec![of_queries(&[2, 70, 0, 64, 129])]),
        case("no_keys", vec![Batch { queries: Some(vec![7, 65, 2]), ..Batch::of(&[7, 0, 64]) }]),
        // Peaked: one key has nearly all the weight, and the largest score changes from tile to tile.
        case("peaked", vec![scaled((0.0, 8.0), (0.0, 4.0))]),
        // All scores are far below 0, and far above.
        case("negative", vec![scaled((3.0, 1.0), (-3.0, 1.0))]),
        case("positive", vec![scaled((3.0, 1.0), (3.0, 1.0))]),
        case("spoiled_neighbour", vec![Batch { spoiled: Some(1), ..mix() }]),
        // All keys weigh alike.
        case("flat", vec![scaled((0.0, 0.0), (0.0, 1.0))]),
        Case::new(format!("{}/schedules", kernel.name), ATTENTION_BAR, move |device| {
            let mut worst = Worst::default();
            // On Hopper as many tiles of keys as wrap around in the rings of four, and not a number behind the first's end.
            let lengths: &[usize] = match (schedules.hopper, device.small) {
                (false, false) => &[3, 64, 129, 200],
                (true, false) => &[129, 3, 420],
                (false, true) => &[3, 150],
                (true, true) => &[3, 330],
            };
            let spoiled = (schedules.hopper && !device.small).then_some(1);
            for schedule in device.schedules(true, schedules.hopper) {
                for causal in [false, true] {
                    let batch = Batch { heads: 1, causal, spoiled, ..Batch::of(lengths) };
                    schedules.check(device, &batch, schedule, &mut worst);
                }
            }
            worst
        }),
        Case::new(format!("{}/same_bits", kernel.name), EXACT, move |device| bits.same_bits(device)),
    ])
}

#[derive(Clone)]
struct Kernel {
    name: String,
    dim: usize,
    /// Operands come as tensor maps.
    hopper: bool,
}

/// Rows of q, and of k and v side by side; both with padding.
#[derive(Clone)]
struct Operands {
    q: Vec<bf16>,
    kv: Vec<bf16>,
}

impl Kernel {
    /// Query rows of a block.
    fn queries(&self) -> usize {
        if self.hopper { 128 } else { 64 }
    }

    fn width(&self, batch: &Batch) -> usize {
        batch.heads * self.dim
    }

    fn operands(&self, batch: &Batch) -> Operands {
        let width = self.width(batch);
        let mut inputs = Inputs::seeded((batch.lengths.iter().sum::<usize>() * 10 + batch.heads) as u64);
        let mut q = Vec::new();
        for _ in 0..batch.queries().iter().sum() {
            q.extend(inputs.bf16s(width, batch.q.0, batch.q.1));
            q.extend([bf16::NAN; PADDING]);
        }
        let mut kv = Vec::new();
        for _ in 0..batch.lengths.iter().sum() {
            kv.extend(inputs.bf16s(width, batch.k.0, batch.k.1));
            kv.extend(inputs.bf16s(width, 0.0, 1.0));
            kv.extend([bf16::NAN; PADDING]);
        }
        if let Some(sequence) = batch.spoiled {
            let (queries, keys) = (starts(batch.queries()), starts(&batch.lengths));
            spoil(&mut q, &queries, sequence, width + PADDING);
            spoil(&mut kv, &keys, sequence, 2 * width + PADDING);
        }
        Operands { q, kv }
    }

    /// The output, with rows of `width + PADDING`.
    fn launch(&self, device: &Device, batch: &Batch, operands: &Operands, schedule: Schedule) -> Buffer<bf16> {
        let (width, queries) = (self.width(batch), batch.queries());
        let (query_starts, key_starts) = (starts(queries), starts(&batch.lengths));
        let mut tiles = Vec::new();
        for (sequence, &count) in queries.iter().enumerate() {
            tiles.extend((0..count).step_by(self.queries()).flat_map(|first| [sequence as u32, first as u32]));
        }
        let out = device.output(query_starts[queries.len()] as usize * (width + PADDING));
        let (q, kv) = (device.input(&operands.q), device.input(&operands.kv));
        let (query_starts, key_starts) = (device.input(&query_starts), device.input(&key_starts));
        let tiles_in = device.input(&tiles);
        let (q_stride, kv_stride, heads) = (width + PADDING, 2 * width + PADDING, batch.heads as u32);
        let arguments = Arguments::default().buffer(&out);
        let (arguments, block, shared_bytes) = if self.hopper {
            let map = |values, first, rows, stride| {
                let matrix = Matrix { values, first, rows, columns: width, stride };
                device.emulation().tensor_map(&matrix, KEYS as u32)
            };
            let keys = batch.lengths.iter().sum();
            let (k, v) = (map(&kv, 0, keys, kv_stride), map(&kv, width, keys, kv_stride));
            let arguments = arguments.tensor_map(&map(&q, 0, queries.iter().sum(), q_stride));
            (arguments.tensor_map(&k).tensor_map(&v), 256, 83_088)
        } else {
            let arguments = arguments.buffer(&q).buffer(&kv).buffer_from(&kv, width).int(q_stride).int(kv_stride);
            (arguments, 128, 5 * KEYS * self.dim * 2)
        };
        let arguments = arguments
            .int(width + PADDING)
            .buffer(&query_starts)
            .buffer(&key_starts)
            .buffer(&tiles_in)
            .int(usize::from(batch.causal))
            .float((std::f64::consts::LOG2_E / (self.dim as f64).sqrt()) as f32);
        let shape = Shape { grid: [(tiles.len() / 2) as u32, heads], block, shared_bytes };
        device.launch(&self.name, shape, &arguments, schedule);
        out
    }

    fn check(&self, device: &Device, batch: &Batch, schedule: Schedule, worst: &mut Worst) {
        let width = self.width(batch);
        let operands = self.operands(batch);
        let out = self.launch(device, batch, &operands, schedule);
        let (query_starts, key_starts) = (starts(batch.queries()), starts(&batch.lengths));
        let inputs = Attention {
            q: &operands.q,
            k: &operands.kv,
            v: &operands.kv[width..],
            q_stride: width + PADDING,
            kv_stride: 2 * width + PADDING,
            query_starts: &query_starts,
            starts: &key_starts,
            causal: batch.causal,
        };
        let reference = attention(&inputs, Heads { count: batch.heads, dim: self.dim });
        let place = format!("lengths {:?}, queries {:?}, {schedule}", batch.lengths, batch.queries());
        worst.add(&out, place, |out| {
            let Some(rows) = unpadded(out, width) else { return f64::INFINITY };
            let error = |s: usize| {
                let range = query_starts[s] as usize * width..query_starts[s + 1] as usize * width;
                worst_row(&rows[range.clone()], &reference[range.clone()], range.len())
            };
            let sequences = (0..batch.lengths.len()).filter(|s| batch.queries()[*s] > 0 && batch.spoiled != Some(*s));
            sequences.map(error).fold(0.0, f64::max)
        });
    }

    /// A sequence alone, among others, and among others in reverse order.
    fn same_bits(&self, device: &Device) -> Worst {
        let mut worst = Worst::default();
        for causal in [false, true] {
            let batch = Batch { causal, ..Batch::of(if device.small { &[3, 70, 9] } else { &[3, 65, 200, 1, 64] }) };
            let width = self.width(&batch);
            let operands = self.operands(&batch);
            let begins = starts(&batch.lengths);
            let pick = |values: &[bf16], stride: usize, sequences: &[usize]| {
                let one = |&s: &usize| &values[begins[s] as usize * stride..begins[s + 1] as usize * stride];
                sequences.iter().flat_map(one).copied().collect::<Vec<bf16>>()
            };
            let run = |sequences: &[usize]| {
                let some = Batch { lengths: sequences.iter().map(|&s| batch.lengths[s]).collect(), ..batch.clone() };
                let q = pick(&operands.q, width + PADDING, sequences);
                let kv = pick(&operands.kv, 2 * width + PADDING, sequences);
                self.launch(device, &some, &Operands { q, kv }, Schedule::default())
            };
            let all: Vec<usize> = (0..batch.lengths.len()).collect();
            let among_all = run(&all).values();
            let mut orders: Vec<Vec<usize>> = all.iter().map(|&s| vec![s]).collect();
            orders.push(all.into_iter().rev().collect());
            for order in orders {
                let expected = pick(&among_all, width + PADDING, &order);
                worst.add(&run(&order), format!("sequences {order:?}"), |out| same_bits(out, &expected));
            }
        }
        worst
    }
}

/// Makes a sequence's rows not a number.
fn spoil(values: &mut [bf16], starts: &[u32], sequence: usize, stride: usize) {
    values[starts[sequence] as usize * stride..starts[sequence + 1] as usize * stride].fill(bf16::NAN);
}

/// The rows without their padding, which nothing may have written.
fn unpadded(out: &[bf16], width: usize) -> Option<Vec<bf16>> {
    let rows = out.chunks(width + PADDING);
    let untouched = rows.clone().all(|row| row[width..].iter().all(|v| v.is_nan()));
    untouched.then(|| rows.flat_map(|row| &row[..width]).copied().collect())
}
