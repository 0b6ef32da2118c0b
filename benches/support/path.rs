//! The selection path without the encoder for one store, call by call: what the jobs' SELECTs call, in their order.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{AsArray, BinaryArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Float32Type};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};
use memslate::features::sql::context_cosine;
use memslate::ranker::Ranker;
use memslate::recall::{Pooled, Request, Store, StoreBuilder, pool};
use memslate::slate::{Costs, Item, fill};
use memslate::system;
use memslate::text::count_tokens;
use sha2::{Digest, Sha256};

use super::cpu_time;
use super::data::Data;

/// The engine's.
const BATCH_ROWS: usize = 8_192;
const BUDGET_TOKENS: i64 = 2_700;
const MICROSECONDS_A_DAY: f64 = 86_400_000_000.0;
const FEATURES: [&str; 10] = [
    "bm25_score",
    "bm25_rank",
    "dense_score",
    "dense_rank",
    "pool_position",
    "context_cosine",
    "role",
    "position",
    "age_days",
    "length_tokens",
];

/// The turns chosen for a request, best first, and what they cost.
pub struct Chosen {
    pub turns: Vec<usize>,
    pub pool: Vec<usize>,
    pub tokens: i64,
    pub text: String,
}

/// CPU time by stage, in the order of the path.
#[derive(Default)]
pub struct Times(pub Vec<(&'static str, Duration)>);

impl Times {
    fn add<T>(&mut self, stage: &'static str, work: impl FnOnce() -> T) -> T {
        let start = cpu_time::now();
        let made = work();
        self.0.push((stage, cpu_time::now() - start));
        made
    }
}

/// The shipped ranker.
pub fn ranker() -> Ranker {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/ranker/lite.txt");
    Ranker::load(&path, &FEATURES.map(str::to_string)).expect("the shipped ranker")
}

/// A turn's columns that are no texts of its own.
struct Columns {
    lengths: Vec<usize>,
    hashes: Vec<[u8; 32]>,
}

/// Slates for the first `requests` questions.
pub fn run(data: &Data, ranker: &Ranker, requests: usize, times: &mut Times) -> Vec<Chosen> {
    let turns = &data.texts.turns;
    let columns = Columns {
        lengths: times.add("token counts", || turns.iter().map(|t| count_tokens(&t.content)).collect()),
        hashes: times.add("hashes", || turns.iter().map(|t| Sha256::digest(&t.content).into()).collect()),
    };
    let store = times.add("rows", || store(data, &columns, requests));
    let pooled = times.add("recall", || pool(&store, &system::Recall::default()).expect("pools"));
    let cosines = times.add("context cosines", || cosines(data, &pooled));
    let rows = times.add("features", || rows(data, &columns, &pooled, &cosines));
    let scores = times.add("ranker", || ranker.predict(&rows, FEATURES.len()).expect("scores"));
    times.add("fill", || slates(data, &columns, &pooled, &scores))
}

fn store(data: &Data, columns: &Columns, requests: usize) -> Store {
    let mut rows = StoreBuilder::default();
    for (i, (turn, vector)) in data.texts.turns.iter().zip(data.turns.rows()).enumerate() {
        rows.push_turn(memslate::recall::Turn {
            ordinal: i as i32,
            id: &format!("t{i:05}"),
            content: Some(&turn.content),
            // Given, as a column of the input: to detect it is no part of the path, nor of the peer's.
            language: Some("en"),
            content_hash: Some(&columns.hashes[i]),
            vector: Some(vector),
            spoken_at: Some(turn.spoken_at),
        });
    }
    for (i, (question, vector)) in data.texts.questions.iter().zip(data.questions.rows()).take(requests).enumerate() {
        let reference_at = Some(data.texts.asked_at);
        rows.push_request(Request { id: &format!("q{i:05}"), question, vector: Some(vector), reference_at });
    }
    rows.finish()
}

/// Of each pooled turn, as the features' SELECT has it: vectors are joined to the rows, batch by batch.
fn cosines(data: &Data, pooled: &[Pooled]) -> Vec<f32> {
    let (turns, questions) = (data.turns.column(), data.questions.column());
    let sessions = &data.texts.turns;
    let neighbour = |turn: usize, other: usize| {
        sessions.get(other).filter(|other| other.session == sessions[turn].session).map(|_| other)
    };
    let function = context_cosine();
    let of_batch = |rows: &[Pooled]| -> Vec<f32> {
        let args = vec![
            joined(&questions, rows, |p| Some(p.request)),
            joined(&turns, rows, |p| neighbour(p.turn, p.turn.wrapping_sub(1))),
            joined(&turns, rows, |p| Some(p.turn)),
            joined(&turns, rows, |p| neighbour(p.turn, p.turn + 1)),
        ];
        let field = |name: &str, kind| Arc::new(Field::new(name, kind, true));
        let arguments = ScalarFunctionArgs {
            args,
            arg_fields: (0..4).map(|_| field("vector", DataType::Binary)).collect(),
            number_rows: rows.len(),
            return_field: field("cosine", DataType::Float32),
            config_options: Arc::new(ConfigOptions::default()),
        };
        let made = function.invoke_with_args(arguments).expect("cosines").to_array(rows.len()).expect("an array");
        made.as_primitive::<Float32Type>().iter().map(|c| c.unwrap_or(f32::NAN)).collect()
    };
    pooled.chunks(BATCH_ROWS).flat_map(of_batch).collect()
}

fn joined(vectors: &BinaryArray, rows: &[Pooled], row: impl Fn(&Pooled) -> Option<usize>) -> ColumnarValue {
    let indices: UInt32Array = rows.iter().map(|p| row(p).map(|row| row as u32)).collect();
    ColumnarValue::Array(take(vectors, &indices, None).expect("rows of the column"))
}

/// The ranker's rows: [`FEATURES`] of each pooled turn.
fn rows(data: &Data, columns: &Columns, pooled: &[Pooled], cosines: &[f32]) -> Vec<f64> {
    let row = |(p, cosine): (&Pooled, &f32)| {
        let turn = &data.texts.turns[p.turn];
        let place = |list| p.places.iter().find(|place| place.list == list);
        let score = |list| place(list).map_or(f64::NAN, |p| p.score);
        let rank = |list| place(list).map_or(f64::NAN, |p| f64::from(p.rank));
        [
            score(0),
            rank(0),
            score(1),
            rank(1),
            f64::from(p.pool_position),
            f64::from(*cosine),
            f64::from(u8::from(turn.role == "assistant")),
            turn.position as f64,
            (data.texts.asked_at - turn.spoken_at) as f64 / MICROSECONDS_A_DAY,
            columns.lengths[p.turn] as f64,
        ]
    };
    pooled.iter().zip(cosines).flat_map(row).collect()
}

fn slates(data: &Data, columns: &Columns, pooled: &[Pooled], scores: &[f64]) -> Vec<Chosen> {
    let mut started: HashMap<usize, i64> = HashMap::new();
    for turn in &data.texts.turns {
        let first = started.entry(turn.session).or_insert(turn.spoken_at);
        *first = turn.spoken_at.min(*first);
    }
    let ids: Vec<String> = (0..data.texts.turns.len()).map(|i| format!("t{i:05}")).collect();
    let (mut costs, mut at) = (Costs::default(), 0);
    let one = |pooled: &[Pooled]| {
        let scores = &scores[at..][..pooled.len()];
        at += pooled.len();
        let mut order: Vec<usize> = (0..pooled.len()).collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(pooled[a].turn.cmp(&pooled[b].turn)));
        let item = |i: usize| {
            let (index, turn) = (pooled[i].turn, &data.texts.turns[pooled[i].turn]);
            Item {
                turn_id: &ids[index],
                turn_ordinal: index as i32,
                session_ordinal: turn.session as i32,
                session_started_at: started.get(&turn.session).copied(),
                role: Some(&turn.role),
                content: Some(&turn.content),
                content_hash: Some(&columns.hashes[index]),
                score: Some(scores[i]),
            }
        };
        let items: Vec<Item> = order.iter().map(|&i| item(i)).collect();
        let filled = fill(&items, BUDGET_TOKENS, &system::Slate::default(), &mut costs);
        Chosen {
            turns: filled.chosen.iter().map(|&i| items[i].turn_ordinal as usize).collect(),
            pool: pooled.iter().map(|p| p.turn).collect(),
            tokens: filled.tokens,
            text: filled.text,
        }
    };
    pooled.chunk_by(|a, b| a.request == b.request).map(one).collect()
}
