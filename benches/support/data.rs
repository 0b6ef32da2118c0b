//! The data of a bench: one store with vectors, made from a seed or read from a file, and written where the peers of
//! the bench read it.

use std::path::{Path, PathBuf};

use arrow::array::BinaryArray;
use arrow::buffer::{Buffer, OffsetBuffer};
use half::f16;
use serde::{Deserialize, Serialize};

use super::language::Language;
use super::store::{Random, store};

#[derive(Serialize, Deserialize)]
pub struct Turn {
    pub session: usize,
    pub position: usize,
    pub spoken_at: i64,
    pub role: String,
    pub content: String,
}

#[derive(Serialize, Deserialize)]
pub struct Texts {
    pub turns: Vec<Turn>,
    pub questions: Vec<String>,
    pub asked_at: i64,
}

/// Rows of little-endian f16, each a unit vector.
pub struct Vectors {
    pub dim: usize,
    pub bytes: Buffer,
}

impl Vectors {
    fn random(seed: u64, rows: usize, dim: usize) -> Self {
        let mut random = Random::new(seed);
        let row = |_| random.unit_vector(dim);
        let bytes: Vec<u8> = (0..rows).flat_map(row).flat_map(|v| f16::from_f32(v).to_le_bytes()).collect();
        Vectors { dim, bytes: bytes.into() }
    }

    pub fn rows(&self) -> std::slice::ChunksExact<'_, u8> {
        self.bytes.chunks_exact(2 * self.dim)
    }

    /// As a table has them.
    pub fn column(&self) -> BinaryArray {
        let lengths = self.rows().map(<[u8]>::len);
        BinaryArray::new(OffsetBuffer::from_lengths(lengths), self.bytes.clone(), None)
    }
}

pub struct Data {
    pub texts: Texts,
    pub turns: Vectors,
    pub questions: Vectors,
}

impl Data {
    /// A store of 4,900 turns and 100 questions of the seed 7, or, where MEMSLATE_BENCH_STORE names a file in the form
    /// of [`Texts`], its texts.
    pub fn open(dim: usize) -> Self {
        let texts = match std::env::var_os("MEMSLATE_BENCH_STORE") {
            Some(path) => {
                let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
                serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
            }
            None => made(),
        };
        let turns = Vectors::random(11, texts.turns.len(), dim);
        let questions = Vectors::random(12, texts.questions.len(), dim);
        Data { texts, turns, questions }
    }

    /// Writes `store.json`, `turns.f16` and `questions.f16` to the folder that MEMSLATE_BENCH_DATA names, if it does.
    pub fn export(&self) {
        let Some(folder) = folder() else { return };
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.join(name);
            std::fs::write(&path, bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        };
        write("store.json", serde_json::to_string(&self.texts).expect("texts are JSON").as_bytes());
        write("turns.f16", &self.turns.bytes);
        write("questions.f16", &self.questions.bytes);
    }
}

/// Where the peers read and write.
pub fn folder() -> Option<PathBuf> {
    std::env::var_os("MEMSLATE_BENCH_DATA").map(|folder| Path::new(&folder).to_path_buf())
}

fn made() -> Texts {
    let made = store(&Language::new(), 7, 0, 4_900, 100);
    let turns = made.turns.into_iter().map(|t| Turn {
        session: t.session,
        position: t.position,
        spoken_at: t.spoken_at,
        role: t.role.into(),
        content: t.content,
    });
    Texts { turns: turns.collect(), questions: made.questions, asked_at: made.asked_at }
}
