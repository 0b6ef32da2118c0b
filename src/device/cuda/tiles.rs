//! Which kernel multiplies: by chip and by the layer's shape, never by the number of rows, so that a row's bits do not
//! depend on its batch. Which kernel attends to a sequence: by chip and by the sequence's length. The choices are a committed
//! table, `kernels/tiles.toml`.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::runtime::{Chip, Runtime};

/// A kernel for matrix products and what a launch of it needs; the numbers are those of the kernel's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    /// As the table and the kernel's name have it: `mma 128x128`.
    pub name: &'static str,
    pub module: &'static str,
    /// What the kernel's name begins with, and how it ends.
    pub prefix: &'static str,
    pub rows: u32,
    pub columns: u32,
    pub block: u32,
    pub shared_bytes: u32,
    /// Operands come through the copy engine's descriptors, in boxes of so many rows.
    pub boxes: Option<Boxes>,
    /// The oldest compute capability that has the instructions, and the newest major version.
    pub oldest: (u32, u32),
    pub newest_major: u32,
}

/// Rows of a box of either operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boxes {
    pub a: u32,
    pub w: u32,
}

const fn mma(name: &'static str, rows: u32, columns: u32, block: u32, shared_bytes: u32) -> Tile {
    Tile {
        name,
        module: "gemm",
        prefix: "gemm",
        rows,
        columns,
        block,
        shared_bytes,
        boxes: None,
        oldest: (8, 0),
        newest_major: u32::MAX,
    }
}

const fn wgmma(name: &'static str, columns: u32, shared_bytes: u32) -> Tile {
    Tile {
        name,
        module: "gemm_sm90",
        prefix: "gemm90",
        rows: 128,
        columns,
        block: 384,
        shared_bytes,
        boxes: Some(Boxes { a: 128, w: columns }),
        oldest: (9, 0),
        newest_major: 9,
    }
}

/// cublasLt in place of a kernel of ours, where its library is ([`super::lt`]).
pub const LIBRARY: Tile = Tile {
    name: "cublaslt",
    module: "cublaslt",
    prefix: "",
    rows: 1,
    columns: 1,
    block: 0,
    shared_bytes: 0,
    boxes: None,
    oldest: (8, 0),
    newest_major: u32::MAX,
};

/// All our kernels for matrix products.
pub const TILES: &[Tile] = &[
    wgmma("wgmma 128x128", 128, 197_728),
    wgmma("wgmma 128x256", 256, 197_696),
    mma("mma 128x128", 128, 128, 128, 49_152),
    mma("mma 128x256", 128, 256, 256, 98_304),
    mma("mma 64x64", 64, 64, 128, 65_536),
];

/// What the kernel for attention of long sequences runs on, and the values of a head that it takes.
const LONG_ATTENTION_CHIP: (u32, u32) = (9, 0);
const LONG_ATTENTION_DIM: usize = 64;

/// The table.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    pub chip: Vec<ChipTiles>,
}

/// What one kind of chip uses.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ChipTiles {
    /// Compute capability.
    pub capability: (u32, u32),
    /// The tile of every layer that is not named.
    pub tile: String,
    /// Sequences of at least so many tokens have their attention in `kernels/attention_sm90.cu`, where heads fit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention_long_tokens: Option<usize>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layer: Vec<LayerTile>,
}

/// The tile of layers of one shape.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LayerTile {
    pub columns: usize,
    pub depth: usize,
    pub tile: String,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/tiles.toml"));
    toml::from_str(text).expect("kernels/tiles.toml is checked by a test")
});

/// The committed table.
pub fn table() -> &'static Table {
    &TABLE
}

/// The tile of this name.
pub fn named(name: &str) -> Option<Tile> {
    TILES.iter().chain([&LIBRARY]).find(|t| t.name == name).copied()
}

/// What a runtime has for products over so many values: our kernels for its chip, and the library.
pub fn available(runtime: &dyn Runtime, depth: usize) -> impl Iterator<Item = Tile> {
    let library = runtime.library().map(|_| LIBRARY);
    let ours = TILES.iter().filter(|t| t.runs_on(runtime.chip())).copied();
    ours.chain(library).filter(move |t| t.takes(depth))
}

impl ChipTiles {
    /// The row of a chip: its own capability, else the newest of those before it.
    pub fn of(chip: &Chip) -> &'static ChipTiles {
        let older = table().chip.iter().filter(|c| c.capability <= chip.capability && c.runs_on(chip));
        older.max_by_key(|c| c.capability).unwrap_or(&table().chip[0])
    }

    fn runs_on(&self, chip: &Chip) -> bool {
        let attends = self.attention_long_tokens.is_none() || chip.capability == LONG_ATTENTION_CHIP;
        attends && self.tiles().all(|t| t.runs_on(chip))
    }

    /// Tokens from which on a sequence is long for attention in heads of so many values; none is where there is no kernel.
    pub fn long_from(&self, dim: usize) -> usize {
        self.attention_long_tokens.filter(|_| dim == LONG_ATTENTION_DIM).unwrap_or(usize::MAX)
    }

    fn tiles(&self) -> impl Iterator<Item = Tile> {
        self.layer.iter().map(|l| &l.tile).chain([&self.tile]).filter_map(|name| named(name))
    }

    /// The tile of a layer's shape.
    pub fn tile(&self, columns: usize, depth: usize) -> Tile {
        let own = self.layer.iter().find(|l| (l.columns, l.depth) == (columns, depth));
        let tile = named(own.map_or(&self.tile, |l| &l.tile)).expect("kernels/tiles.toml is checked by a test");
        if tile.takes(depth) { tile } else { named("mma 128x128").expect("it is in the list") }
    }

    /// A kernel of ours for a layer's shape: what the library does not do is left to it.
    pub fn own_tile(chip: &Chip, depth: usize) -> Tile {
        let best = ["wgmma 128x256", "mma 128x128"].into_iter().filter_map(named);
        let mut able = best.filter(|t| t.runs_on(chip) && t.takes(depth));
        able.next().unwrap_or_else(|| named("mma 128x128").expect("it is in the list"))
    }

    /// Whether a layer may be the library's.
    pub fn names_library(&self) -> bool {
        self.tiles().any(Tile::is_library)
    }

    /// Names the arithmetic: part of a model's hash.
    pub fn plan(&self) -> String {
        let layers = self.layer.iter().map(|l| format!(",{}x{}={}", l.columns, l.depth, l.tile));
        let long = self.attention_long_tokens.map(|n| format!(",attention-from-{n}=wgmma")).unwrap_or_default();
        format!("{}{}{long}", self.tile, layers.collect::<String>()).replace(' ', "-")
    }
}

impl Tile {
    pub fn is_library(self) -> bool {
        self.name == LIBRARY.name
    }

    pub fn runs_on(&self, chip: &Chip) -> bool {
        chip.capability >= self.oldest && chip.capability.0 <= self.newest_major
    }

    /// Whether the kernel can sum over so many values.
    pub fn takes(&self, depth: usize) -> bool {
        depth.is_multiple_of(match self.boxes {
            Some(_) => 64,
            None if self.is_library() => 8,
            None => 32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chip(capability: (u32, u32)) -> Chip {
        Chip { name: "test".into(), capability, multiprocessors: 1, memory_bytes: 0 }
    }

    #[test]
    fn the_table_names_tiles_that_are_there_and_run_on_its_chips() {
        for row in &table().chip {
            for name in row.layer.iter().map(|l| &l.tile).chain([&row.tile]) {
                let tile = named(name).unwrap_or_else(|| panic!("there is no tile {name:?}"));
                assert!(tile.runs_on(&chip(row.capability)), "{name} on {:?}", row.capability);
            }
            assert!(row.layer.iter().all(|l| named(&l.tile).unwrap().takes(l.depth)), "{row:?}");
        }
    }

    #[test]
    fn every_chip_from_8_0_on_has_a_row_that_it_can_run() {
        for capability in [(8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)] {
            let row = ChipTiles::of(&chip(capability));
            assert!(row.runs_on(&chip(capability)), "{capability:?}: {row:?}");
        }
        assert_eq!(ChipTiles::of(&chip((8, 6))).capability, (8, 0));
    }

    #[test]
    fn attention_of_long_sequences_is_the_chips_choice_and_part_of_its_name() {
        let hopper = ChipTiles::of(&chip((9, 0)));
        let from = hopper.attention_long_tokens.unwrap();
        assert_eq!((hopper.long_from(64), hopper.long_from(32)), (from, usize::MAX));
        assert!(hopper.plan().ends_with(&format!(",attention-from-{from}=wgmma")), "{}", hopper.plan());
        for other in [(8, 0), (8, 9), (10, 0)] {
            let row = ChipTiles::of(&chip(other));
            assert!(row.long_from(64) == usize::MAX && !row.plan().contains("attention"), "{row:?}");
        }
    }

    #[test]
    fn a_shape_that_a_tile_cannot_take_gets_one_that_can() {
        for row in &table().chip {
            for (columns, depth) in [(1024, 1024), (96, 32), (8, 96), (4096, 1024)] {
                assert!(row.tile(columns, depth).takes(depth));
            }
        }
    }
}
