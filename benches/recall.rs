//! Recall on one core, stage by stage: an index, the best 128 by BM25, the best 128 by vectors.
//!
//! `make bench` runs it beside `peers/recall.py`, on the same texts and vectors, and prints the ratios.

use std::hint::black_box;

use criterion::BatchSize;
use memslate::recall::bm25::Bm25;
use memslate::recall::dense::Dense;
use memslate::recall::lists::Retriever;
use memslate::recall::{Request, Store, StoreBuilder, Turn};
use memslate::system::Tokens;

mod support;
use support::cpu_time;
use support::data::Data;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// bge-m3's.
const DIM: usize = 1_024;
const DEPTH: usize = 128;

fn main() {
    let data = Data::open(DIM);
    data.export();
    let store = store(&data);
    let mut criterion = cpu_time::criterion(15, 3);
    let mut group = criterion.benchmark_group("recall");
    let index = || Bm25::new(&store, 0.9, 0.4, true, Tokens::Unicode);
    group.bench_function("index", |b| b.iter(|| black_box(index())));
    // A question is cut into tokens here; the peer is given its tokens.
    let eligible = store.eligible(None);
    let requests = store.request_count();
    let mut bm25 = index();
    group.bench_function("bm25_128", |b| {
        b.iter(|| {
            for request in 0..requests {
                black_box(bm25.rank(request, &eligible, DEPTH).expect("hits"));
            }
        })
    });
    // Opened anew for each round, outside its time: the products of a block of requests are made once.
    let open = || Dense::new(&store).expect("vectors of one length");
    group.bench_function("dense_128", |b| {
        let all = |mut dense: Dense| {
            for request in 0..requests {
                black_box(dense.rank(request, &eligible, DEPTH).expect("hits"));
            }
        };
        b.iter_batched(open, all, BatchSize::PerIteration)
    });
    group.finish();
    criterion.final_summary();
}

fn store(data: &Data) -> Store {
    let mut rows = StoreBuilder::default();
    for (i, (turn, vector)) in data.texts.turns.iter().zip(data.turns.rows()).enumerate() {
        let turn = Turn { ordinal: i as i32, id: "t", content: Some(&turn.content), ..Default::default() };
        rows.push_turn(Turn { language: Some("en"), vector: Some(vector), ..turn });
    }
    for (question, vector) in data.texts.questions.iter().zip(data.questions.rows()) {
        rows.push_request(Request { id: "q", question, vector: Some(vector), reference_at: None });
    }
    rows.finish()
}
