//! The kernels as functions: each checks that its operands are as large as the kernel will read and write, and launches.

use std::sync::Arc;

use super::model::halves;
use super::runtime::{Args, Buffer, Launch, Product, Runtime, TensorMap, Tiled, View};
use super::tiles::{ChipTiles, Tile};
use crate::error::{Error, Result};

/// Bytes of a bf16 and of an f32 or u32.
pub const HALF: usize = 2;
pub const WORD: usize = 4;
/// Rows that a block of the row-wise kernels takes.
const ROWS_A_BLOCK: usize = 8;
const BLOCK: u32 = 256;

/// The widest row that the row-wise kernels take.
pub const MOST_HIDDEN: usize = 1024;

/// What follows a matrix product.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Epilogue {
    Bias,
    Gelu,
    /// Adds these rows.
    Residual(View),
}

impl Epilogue {
    fn name(self) -> &'static str {
        match self {
            Epilogue::Bias => "bias",
            Epilogue::Gelu => "gelu",
            Epilogue::Residual(_) => "residual",
        }
    }
}

/// A linear layer in a device's memory: weight (columns, depth) of bf16, bias of f32.
pub struct Linear {
    weight: Buffer,
    bias: Buffer,
    pub columns: usize,
    pub depth: usize,
    tile: Tile,
    map: Option<Box<TensorMap>>,
    /// The bias as the vendor's library takes it, where the library multiplies; GELU stays with `tile`.
    library_bias: Option<Box<Buffer>>,
}

/// Gain and shift of a layer norm, f32.
pub struct Norm {
    pub gain: Buffer,
    pub shift: Buffer,
    pub epsilon: f32,
}

/// Blocks of queries of one of the two kernels for attention: (sequence, first row in it) each.
#[derive(Debug, Clone, Copy)]
pub struct Blocks {
    pub list: View,
    pub count: usize,
}

/// The blocks of sequences that have so many queries each: of those below `long_from` tokens, and of the others. By a sequence's
/// own length alone, so that its bits do not depend on its batch.
pub fn query_blocks(lengths: impl Iterator<Item = usize> + Clone, long_from: usize) -> [Vec<u32>; 2] {
    let of = |long: bool, rows: usize| {
        let chosen = lengths.clone().enumerate().filter(move |(_, n)| (*n >= long_from) == long);
        let blocks = chosen.flat_map(move |(s, n)| (0..n).step_by(rows).map(move |row| [s as u32, row as u32]));
        blocks.flatten().collect()
    };
    [of(false, Attention::SHORT_ROWS), of(true, Attention::LONG_ROWS)]
}

/// Where attention reads and writes: strides in values between tokens.
#[derive(Debug, Clone, Copy)]
pub struct Attention {
    pub out: View,
    pub q: View,
    pub k: View,
    pub v: View,
    pub q_stride: usize,
    pub kv_stride: usize,
    pub out_stride: usize,
    /// Where each sequence's queries and keys begin.
    pub q_starts: View,
    pub starts: View,
    /// Of the short sequences, and of the long ones.
    pub short: Blocks,
    pub long: Blocks,
    pub heads: usize,
    pub dim: usize,
    pub queries: usize,
    pub keys: usize,
    pub sequences: usize,
}

/// What the embedding kernel gathers from.
pub struct Embedding {
    pub words: Buffer,
    pub positions: Buffer,
    pub types: Buffer,
    pub norm: Norm,
}

impl Linear {
    /// `weight` is (columns, depth) as PyTorch stores it.
    pub fn new(runtime: &Arc<dyn Runtime>, weight: &[u8], bias: &[f32], depth: usize) -> Result<Self> {
        let columns = bias.len();
        assert_eq!(weight.len(), columns * depth * HALF);
        let tile = ChipTiles::of(runtime.chip()).tile(columns, depth);
        Self::with_tile(runtime, weight, bias, depth, tile)
    }

    /// With a kernel of one's own choice, or the library where it is.
    pub fn with_tile(
        runtime: &Arc<dyn Runtime>,
        weight: &[u8],
        bias: &[f32],
        depth: usize,
        tile: Tile,
    ) -> Result<Self> {
        let columns = bias.len();
        let (tile, library_bias) = match tile.is_library() {
            false => (tile, None),
            true if runtime.library().is_none() => {
                return Err(Error::device(
                    "kernels/tiles.toml names cublasLt for this chip, and its library is not here",
                )
                .next("install cublasLt of CUDA 12 or 13, or name another tile"));
            }
            true => {
                (ChipTiles::own_tile(runtime.chip(), depth), Some(Box::new(Buffer::filled(runtime, &halves(bias))?)))
            }
        };
        let weight = Buffer::filled(runtime, weight)?;
        let bytes: Vec<u8> = bias.iter().flat_map(|b| b.to_ne_bytes()).collect();
        let matrix =
            |box_rows| Tiled { address: weight.view().address, rows: columns, columns: depth, stride: depth, box_rows };
        let map = tile.boxes.map(|boxes| runtime.tensor_map(&matrix(boxes.w))).transpose()?.map(Box::new);
        Ok(Linear { bias: Buffer::filled(runtime, &bytes)?, weight, columns, depth, tile, map, library_bias })
    }

    /// `c[rows, columns] = epilogue(a[rows, depth] weight^T + bias)`.
    pub fn apply(&self, runtime: &dyn Runtime, c: View, a: View, rows: usize, epilogue: Epilogue) -> Result<()> {
        let Linear { columns, depth, tile, .. } = *self;
        if rows == 0 {
            return Ok(());
        }
        let residual = match epilogue {
            Epilogue::Residual(view) => view.holds(rows * columns, HALF),
            _ => 0,
        };
        if let (Some(bias), Epilogue::Bias | Epilogue::Residual(_)) = (&self.library_bias, epilogue) {
            let (c, a) = (c.holds(rows * columns, HALF), a.holds(rows * depth, HALF));
            let (w, bias) = (self.weight.view().address, bias.view().holds(columns, HALF));
            let product = Product { c, a, w, bias, residual, rows, columns, depth };
            // SAFETY: the operands' sizes were checked just now; the weight's when it was put there.
            return unsafe { runtime.library_product(&product) };
        }
        let tiles = rows.div_ceil(tile.rows as usize) * columns.div_ceil(tile.columns as usize);
        let persistent = tile.boxes.map_or(u32::MAX, |_| runtime.chip().multiprocessors);
        let launch = Launch {
            module: tile.module,
            kernel: format!("{}_{}_{}x{}", tile.prefix, epilogue.name(), tile.rows, tile.columns),
            grid: [u32::try_from(tiles).expect("fewer tiles than 2^32").min(persistent), 1],
            block: tile.block,
            shared_bytes: tile.shared_bytes,
        };
        let mut args = Args::default().address(c.holds(rows * columns, HALF));
        args = match &self.map {
            None => args.address(a.holds(rows * depth, HALF)).address(self.weight.view().address),
            Some(map) => {
                let boxes = tile.boxes.expect("a tile with a map has boxes");
                let address = a.holds(rows * depth, HALF);
                let matrix = Tiled { address, rows, columns: depth, stride: depth, box_rows: boxes.a };
                args.map(&runtime.tensor_map(&matrix)?).map(map)
            }
        };
        args = args.address(self.bias.view().address).address(residual).count(rows).count(columns).count(depth);
        // SAFETY: the operands' sizes were checked above; the weight's and the bias's when they were put there.
        unsafe { runtime.launch(&launch, &mut args) }
    }

    /// Operations of a product with so many rows.
    pub fn operations(&self, rows: usize) -> f64 {
        2.0 * rows as f64 * self.columns as f64 * self.depth as f64
    }
}

fn rowwise(kernel: &'static str, rows: usize) -> Launch {
    let grid = [rows.div_ceil(ROWS_A_BLOCK) as u32, 1];
    Launch { module: kernel, kernel: kernel.into(), grid, block: BLOCK, shared_bytes: 0 }
}

impl Embedding {
    /// `out = norm(word + position + type)`, a row a token.
    pub fn apply(&self, runtime: &dyn Runtime, out: View, ids: [View; 3], rows: usize, hidden: usize) -> Result<()> {
        let [tokens, segments, places] = ids.map(|view| view.holds(rows, WORD));
        let Norm { gain, shift, epsilon } = &self.norm;
        let mut args = Args::default()
            .address(out.holds(rows * hidden, HALF))
            .address(self.words.view().address)
            .address(self.positions.view().address)
            .address(self.types.view().address)
            .address(gain.view().holds(hidden, WORD))
            .address(shift.view().holds(hidden, WORD))
            .address(tokens)
            .address(segments)
            .address(places)
            .count(rows)
            .count(hidden)
            .float(*epsilon);
        // SAFETY: sizes are checked here, ids against their tables by the caller.
        unsafe { runtime.launch(&rowwise("embed", rows), &mut args) }
    }
}

impl Norm {
    /// `out = norm(x)`, row by row.
    pub fn apply(&self, runtime: &dyn Runtime, out: View, x: View, rows: usize, hidden: usize) -> Result<()> {
        let mut args = Args::default()
            .address(out.holds(rows * hidden, HALF))
            .address(x.holds(rows * hidden, HALF))
            .address(0)
            .address(0)
            .address(self.gain.view().holds(hidden, WORD))
            .address(self.shift.view().holds(hidden, WORD))
            .count(rows)
            .count(hidden)
            .float(self.epsilon);
        // SAFETY: sizes are checked here; bias and residual may be null.
        unsafe { runtime.launch(&rowwise("layer_norm", rows), &mut args) }
    }
}

/// `out[i] = x[rows[i]]`; `rows` are below the rows of `x`.
pub fn gather(runtime: &dyn Runtime, out: View, x: View, rows: View, count: usize, hidden: usize) -> Result<()> {
    let mut args = Args::default()
        .address(out.holds(count * hidden, HALF))
        .address(x.address)
        .address(rows.holds(count, WORD))
        .count(count)
        .count(hidden);
    // SAFETY: sizes are checked here; the indices are starts of sequences, made from the same batch.
    unsafe { runtime.launch(&rowwise("gather", count), &mut args) }
}

/// A row of unit length for each sequence: its rows' mean or its first row.
pub fn pool(runtime: &dyn Runtime, out: View, x: View, starts: View, shape: [usize; 2], mean: bool) -> Result<()> {
    let [sequences, hidden] = shape;
    let launch =
        Launch { module: "pool", kernel: "pool".into(), grid: [sequences as u32, 1], block: BLOCK, shared_bytes: 0 };
    let mut args = Args::default()
        .address(out.holds(sequences * hidden, WORD))
        .address(x.address)
        .address(starts.holds(sequences + 1, WORD))
        .count(hidden)
        .count(usize::from(mean));
    // SAFETY: sizes are checked here; the starts are of the same batch as `x`.
    unsafe { runtime.launch(&launch, &mut args) }
}

/// A cross-encoder's last step, on rows of first tokens.
pub struct ScoreHead {
    pub dense_weight: Buffer,
    pub dense_bias: Buffer,
    pub projection_weight: Buffer,
    pub projection_bias: Buffer,
}

impl ScoreHead {
    const ROWS: usize = 16;

    /// A logit a row.
    pub fn apply(&self, runtime: &dyn Runtime, logits: View, rows: View, count: usize, hidden: usize) -> Result<()> {
        let launch = Launch {
            module: "score_head",
            kernel: "score_head".into(),
            grid: [count.div_ceil(Self::ROWS) as u32, 1],
            block: BLOCK,
            shared_bytes: (Self::ROWS * hidden * HALF) as u32,
        };
        let mut args = Args::default()
            .address(logits.holds(count, WORD))
            .address(rows.holds(count * hidden, HALF))
            .address(self.dense_weight.view().holds(hidden * hidden, HALF))
            .address(self.dense_bias.view().holds(hidden, WORD))
            .address(self.projection_weight.view().holds(hidden, HALF))
            .address(self.projection_bias.view().holds(1, WORD))
            .count(count)
            .count(hidden);
        // SAFETY: all sizes are checked here.
        unsafe { runtime.launch(&launch, &mut args) }
    }
}

impl Attention {
    /// Query rows of a block: of `kernels/attention.cu`, and of `kernels/attention_sm90.cu`.
    const SHORT_ROWS: usize = 64;
    const LONG_ROWS: usize = 128;
    /// Rows of a box of the latter: of queries, keys or values.
    const BOX_ROWS: u32 = 64;

    /// Short sequences and long ones, a launch each, where there are any.
    pub fn apply(&self, runtime: &dyn Runtime) -> Result<()> {
        let Attention { dim, q_stride, kv_stride, .. } = *self;
        if self.short.count > 0 {
            let launch = Launch {
                module: "attention",
                kernel: format!("attention_{dim}"),
                grid: self.grid(self.short),
                block: 128,
                shared_bytes: (5 * Self::SHORT_ROWS * dim * HALF) as u32,
            };
            let args = self.out().address(self.holds(self.q, self.queries, q_stride));
            let args = args.address(self.holds(self.k, self.keys, kv_stride));
            let args = args.address(self.holds(self.v, self.keys, kv_stride)).count(q_stride).count(kv_stride);
            // SAFETY: all sizes are checked; the starts are of the batch whose rows these are.
            unsafe { runtime.launch(&launch, &mut self.sequences(args, self.short))? };
        }
        if self.long.count > 0 {
            let launch = Launch {
                module: "attention_sm90",
                kernel: format!("attention90_{dim}"),
                grid: self.grid(self.long),
                block: 256,
                shared_bytes: 83_088,
            };
            let map = |view: View, rows, stride| {
                let (address, columns) = (self.holds(view, rows, stride), self.heads * dim);
                runtime.tensor_map(&Tiled { address, rows, columns, stride, box_rows: Self::BOX_ROWS })
            };
            let args = self.out().map(&map(self.q, self.queries, q_stride)?);
            let args = args.map(&map(self.k, self.keys, kv_stride)?).map(&map(self.v, self.keys, kv_stride)?);
            // SAFETY: as above.
            unsafe { runtime.launch(&launch, &mut self.sequences(args, self.long))? };
        }
        Ok(())
    }

    fn grid(&self, blocks: Blocks) -> [u32; 2] {
        [u32::try_from(blocks.count).expect("fewer blocks than 2^32"), self.heads as u32]
    }

    /// The address of rows of all heads.
    fn holds(&self, view: View, rows: usize, stride: usize) -> u64 {
        view.holds((rows.max(1) - 1) * stride + self.heads * self.dim, HALF)
    }

    fn out(&self) -> Args {
        Args::default().address(self.holds(self.out, self.queries, self.out_stride))
    }

    /// The arguments behind the operands, which both kernels have.
    fn sequences(&self, args: Args, blocks: Blocks) -> Args {
        let scale = std::f64::consts::LOG2_E / (self.dim as f64).sqrt();
        args.count(self.out_stride)
            .address(self.q_starts.holds(self.sequences + 1, WORD))
            .address(self.starts.holds(self.sequences + 1, WORD))
            .address(blocks.list.holds(blocks.count * 2, WORD))
            .count(0)
            .float(scale as f32)
    }
}
