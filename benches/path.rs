//! The whole selection path without the encoder on one core, for a store and for each of its requests.
//!
//! `make bench` runs it beside `peers/reference.py`, on the same texts and vectors, and prints the ratios and how many
//! slates are the same.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

mod support;
use support::cpu_time;
use support::data::{self, Data};
use support::path::{Chosen, Times, ranker, run};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// MiniLM's, as in `jobs/systems/lite.toml`.
const DIM: usize = 384;

fn main() {
    // Loaded before the clock runs: o200k's table is read on first use.
    memslate::text::count_tokens("hello");
    let data = Data::open(DIM);
    data.export();
    let ranker = ranker();
    let requests = data.texts.questions.len();
    write(&run(&data, &ranker, requests, &mut Times::default()));
    let mut criterion = cpu_time::criterion(10, 5);
    let mut group = criterion.benchmark_group("path");
    // What one more request costs is the difference, shared by the others.
    for requests in [1, requests] {
        group.bench_function(format!("requests_{requests}"), |b| {
            b.iter(|| black_box(run(&data, &ranker, requests, &mut Times::default())))
        });
    }
    group.finish();
    criterion.final_summary();
    println!("\nby stage, milliseconds of CPU time, the least of 5: with one request, with {requests}");
    let (one, all) = (stages(&data, &ranker, 1), stages(&data, &ranker, requests));
    for (stage, time) in &one {
        println!("  {stage:<18}{:10.3}{:10.3}", time.as_secs_f64() * 1e3, all[stage].as_secs_f64() * 1e3);
    }
    let start = cpu_time::now();
    let known = data.texts.turns.iter().filter(|t| memslate::text::detect_language(&t.content).is_some()).count();
    let took = (cpu_time::now() - start).as_secs_f64() * 1e3;
    println!("  besides, where the input has no language: {took:.0} to detect it ({known} turns)");
}

fn stages(data: &Data, ranker: &memslate::ranker::Ranker, requests: usize) -> BTreeMap<&'static str, Duration> {
    let mut least: BTreeMap<&'static str, Duration> = BTreeMap::new();
    for _ in 0..5 {
        let mut times = Times::default();
        run(data, ranker, requests, &mut times);
        for (stage, time) in times.0 {
            let known = least.entry(stage).or_insert(time);
            *known = time.min(*known);
        }
    }
    least
}

/// For the peer, which says how many of its pools and slates are the same.
fn write(chosen: &[Chosen]) {
    let Some(folder) = data::folder() else { return };
    let rows: Vec<_> = chosen
        .iter()
        .map(|c| serde_json::json!({"pool": c.pool, "turns": c.turns, "tokens": c.tokens, "text": c.text}))
        .collect();
    let path = folder.join("slates.json");
    std::fs::write(&path, serde_json::Value::from(rows).to_string()).expect("slates.json can be written");
}
