//! The named cases. A case is one property of one kernel (`attention_64/causal`), with the error that it may reach.

mod attention;
mod embed;
mod gather;
mod gemm;
mod layer_norm;
mod pool;
mod score_head;
mod tiles;
mod top_k;

use crate::emulation::{Arguments, Emulation, Schedule, Shape};
use crate::measure::Error;
use crate::memory::{Bounds, Buffer, Plain};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::Display;

/// Lengths that end before, at and behind the edges of tiles of 64 and 128.
pub const LENGTHS: [usize; 8] = [7, 65, 1, 63, 64, 129, 300, 513];

/// bf16 has 8 bits of mantissa: rounding the result alone costs up to 2e-3 of a value.
pub const BF16_BAR: Error = 4e-3;
/// The softmax's weights are rounded to bf16 too.
pub const ATTENTION_BAR: Error = 6e-3;
/// Where inputs are bf16 but everything else is f32.
pub const F32_BAR: Error = 1e-5;
/// No error at all: copies, and bits that must be equal.
pub const EXACT: Error = 0.0;

pub struct Case {
    pub name: String,
    pub bar: Error,
    pub run: Box<dyn Fn(&Device) -> Worst>,
}

impl Case {
    fn new(name: impl Into<String>, bar: Error, run: impl Fn(&Device) -> Worst + 'static) -> Self {
        Case { name: name.into(), bar, run: Box::new(run) }
    }
}

/// All cases of these kernels. A kernel without a case is an error: nothing would show that it is right.
pub fn cases(kernels: &[String]) -> Result<Vec<Case>, String> {
    let mut all = Vec::new();
    for kernel in kernels {
        let cases = match kernel.as_str() {
            "embed" => embed::cases(),
            "layer_norm" => layer_norm::cases(),
            "gather" => gather::cases(),
            "pool" => pool::cases(),
            "score_head" => score_head::cases(),
            "top_k" => top_k::cases(),
            _ if kernel.starts_with("gemm") => gemm::cases(kernel)?,
            _ if kernel.starts_with("attention") => attention::cases(kernel)?,
            _ => return Err(format!("kernel {kernel} has no case")),
        };
        all.extend(cases);
    }
    Ok(all)
}

/// What a case runs on.
pub struct Device<'a> {
    emulation: &'a Emulation,
    /// Sizes fit for sanitizers, and buffers of exact size, so that they see the first byte outside.
    pub small: bool,
    launched: RefCell<BTreeSet<String>>,
}

impl<'a> Device<'a> {
    pub fn new(emulation: &'a Emulation, small: bool) -> Self {
        Device { emulation, small, launched: RefCell::default() }
    }

    fn bounds(&self) -> Bounds {
        if self.small { Bounds::Exact } else { Bounds::Guarded }
    }

    pub fn input<T: Plain>(&self, values: &[T]) -> Buffer<T> {
        Buffer::of(values, self.bounds())
    }

    pub fn output<T: Plain>(&self, len: usize) -> Buffer<T> {
        Buffer::poisoned(len, self.bounds())
    }

    pub fn launch(&self, kernel: &str, shape: Shape, arguments: &Arguments, schedule: Schedule) {
        self.launched.borrow_mut().insert(kernel.to_owned());
        self.emulation.launch(kernel, shape, arguments, schedule);
    }

    pub fn emulation(&self) -> &Emulation {
        self.emulation
    }

    /// Kernels launched so far.
    pub fn launched(&self) -> BTreeSet<String> {
        self.launched.borrow().clone()
    }

    /// The full list, or its first values where sizes are small.
    pub fn sizes<'s, T>(&self, all: &'s [T], small: usize) -> &'s [T] {
        if self.small { &all[..small.min(all.len())] } else { all }
    }

    pub fn seeds(&self) -> Vec<u64> {
        (0..if self.small { 2 } else { 5 }).collect()
    }

    /// Every seed, with what is asynchronous at its earliest and at its latest.
    pub fn schedules(&self, copies: bool, mma: bool) -> Vec<Schedule> {
        let mut schedules = Vec::new();
        for late_copies in [false, true].into_iter().take(1 + usize::from(copies)) {
            for late_mma in [false, true].into_iter().take(1 + usize::from(mma)) {
                schedules.extend(self.seeds().into_iter().map(|seed| Schedule { seed, late_copies, late_mma }));
            }
        }
        schedules
    }
}

/// What a kernel wrote, or nothing where it wrote outside its output as well.
pub fn written<T: Plain>(out: &Buffer<T>) -> Option<Vec<T>> {
    (!out.overrun()).then(|| out.values())
}

/// The largest error of a case so far, and where it was.
#[derive(Debug, Clone, Default)]
pub struct Worst {
    pub error: Error,
    pub place: String,
}

impl Worst {
    /// Counts an output's error, which is infinite where the kernel wrote outside.
    pub fn add<T: Plain>(&mut self, out: &Buffer<T>, place: impl Display, error: impl FnOnce(&[T]) -> Error) {
        match written(out) {
            Some(values) => self.add_error(error(&values), place),
            None => self.add_error(Error::INFINITY, format!("{place}, written outside the output")),
        }
    }

    pub fn add_error(&mut self, error: Error, place: impl Display) {
        if self.place.is_empty() || error > self.error {
            *self = Worst { error, place: place.to_string() };
        }
    }
}

/// Blocks of `size` that hold `count`.
pub fn blocks(count: usize, size: usize) -> u32 {
    count.div_ceil(size) as u32
}

/// Where sequences of these lengths begin, and at last where they end.
pub fn starts(lengths: &[usize]) -> Vec<u32> {
    let mut starts = vec![0];
    for length in lengths {
        starts.push(starts[starts.len() - 1] + *length as u32);
    }
    starts
}

/// The launch of kernels with one warp a row, eight rows a block.
pub fn warp_a_row(rows: usize) -> Shape {
    Shape { grid: [blocks(rows, 8), 1], block: 256, shared_bytes: 0 }
}
