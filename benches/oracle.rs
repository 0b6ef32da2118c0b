//! Checks BM25, reciprocal rank fusion and the fill against another program's lists, question by question.
//!
//! ```text
//! cargo bench --bench oracle -- LISTS.json LOCOMO.json
//! ```
//!
//! LOCOMO.json is LoCoMo's own file (`locomo10.json`). LISTS.json holds what a reference program made of its first
//! conversations:
//!
//! - `spec.sets`: named parameter sets, each with `k1`, `b` and `stem` (English stems, or none);
//! - `stores`: for each, `cid`, its place in LoCoMo's list, and `turn_ids` in the order of its sessions;
//! - `questions`: for each, `cid`, `question`, `dense128` (turns by a dense encoder, best first) and, for each set S,
//!   `bm25_S_128` with `bm25_S_score` (turns and BM25 scores, best first, cut at 128), `rrf128_S` (the two lists
//!   fused with 1/(60 + rank), whole) and, for budgets B of 2,700 and 1,350, `slate_S_B` with `slate_S_B_tokens` (the
//!   fill of the best 128). A turn is its index in `turn_ids`.
//!
//! A store also has `cost` and `session`, one value a turn, and `header_cost` by session.
//!
//! A turn's text is `speaker: text`, with ` [shares CAPTION]` after it where it has an image's caption. Scores may
//! differ by 1e-6 (they are written with nine decimals), orders not at all. Ends with 1 where anything differs. The stems
//! are those of Snowball 3.1; earlier ones differ in a few words ("evening").

use std::collections::HashMap;
use std::process::ExitCode;

use memslate::recall::bm25::Bm25;
use memslate::recall::fuse::Fusion;
use memslate::recall::lists::Hit;
use memslate::recall::{Store, StoreBuilder, Turn};
use memslate::slate::{Candidate, walk};
use memslate::system::Tokens;
use serde::Deserialize;
use serde_json::Value;

/// Where the reference cut its lists.
const DEPTH: usize = 128;
const TOLERANCE: f64 = 1e-6;

#[derive(Deserialize)]
struct Lists {
    spec: Spec,
    stores: Vec<StoreOf>,
    questions: Vec<Question>,
}

#[derive(Deserialize)]
struct Spec {
    sets: HashMap<String, Set>,
}

#[derive(Deserialize)]
struct Set {
    k1: f64,
    b: f64,
    stem: bool,
}

#[derive(Deserialize)]
struct StoreOf {
    cid: usize,
    turn_ids: Vec<String>,
    cost: Vec<i64>,
    session: Vec<i32>,
    header_cost: HashMap<i32, i64>,
}

#[derive(Deserialize)]
struct Question {
    cid: usize,
    question: String,
    dense128: Vec<usize>,
    /// The lists of the sets, by name.
    #[serde(flatten)]
    others: HashMap<String, Value>,
}

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    // Cargo adds `--bench` to what it is given.
    let paths: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let [lists, locomo] = paths.as_slice() else {
        // Run with all benches, it has nothing to check.
        eprintln!("oracle: give LISTS.json and LOCOMO.json");
        return ExitCode::SUCCESS;
    };
    match check(lists, locomo) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(faults) => {
            eprintln!("oracle: {faults} lists differ");
            ExitCode::FAILURE
        }
        Err(e) => {
            eprintln!("oracle: {e}");
            ExitCode::FAILURE
        }
    }
}

/// The number of lists that differ.
fn check(lists: &str, locomo: &str) -> Result<usize, Failure> {
    let lists: Lists = serde_json::from_str(&std::fs::read_to_string(lists)?)?;
    let locomo: Value = serde_json::from_str(&std::fs::read_to_string(locomo)?)?;
    let stores: HashMap<usize, Store> =
        lists.stores.iter().map(|s| Ok((s.cid, store(s, &locomo[s.cid])?))).collect::<Result<_, Failure>>()?;
    let mut faults = 0;
    let mut sets: Vec<_> = lists.spec.sets.iter().collect();
    sets.sort_by_key(|(name, _)| name.as_str());
    for (name, set) in sets {
        let mut indexes: HashMap<usize, Bm25> = stores
            .iter()
            .map(|(&cid, store)| (cid, Bm25::new(store, set.k1, set.b, set.stem, Tokens::Ascii)))
            .collect();
        let (mut worst, mut wrong_bm25, mut wrong_rrf, mut wrong_slates) = (0f64, 0, 0, 0);
        for question in &lists.questions {
            let store = &stores[&question.cid];
            let index = indexes.get_mut(&question.cid).expect("each store has its index");
            let hits = index.best(&question.question, &store.eligible(None), DEPTH);
            match difference(&hits, question, name)? {
                Some(difference) => worst = worst.max(difference),
                None => {
                    println!("{name}: another BM25 order for {:?}", question.question);
                    wrong_bm25 += 1;
                }
            }
            let fused = fused(&hits, question, store);
            if fused != turns(question, &format!("rrf128_{name}"))? {
                wrong_rrf += 1;
            }
            let of = lists.stores.iter().find(|s| s.cid == question.cid).expect("each question has its store");
            for budget in [2700, 1350] {
                let wanted = (
                    turns(question, &format!("slate_{name}_{budget}"))?,
                    field(question, &format!("slate_{name}_{budget}_tokens"))?,
                );
                wrong_slates += usize::from(filled(&fused, of, budget) != wanted);
            }
        }
        let n = lists.questions.len();
        println!("{name}: k1 {} b {} stem {}", set.k1, set.b, set.stem);
        println!("  BM25 orders: {} of {n} equal; largest difference of a score {worst:.3e}", n - wrong_bm25);
        println!("  RRF orders:  {} of {n} equal", n - wrong_rrf);
        println!("  slates:      {} of {} equal", 2 * n - wrong_slates, 2 * n);
        faults += wrong_bm25 + wrong_rrf + wrong_slates + usize::from(worst > TOLERANCE);
    }
    Ok(faults)
}

/// The largest difference between two scores; None where the lists hold different turns.
fn difference(hits: &[Hit], question: &Question, set: &str) -> Result<Option<f64>, Failure> {
    let scores: Vec<f64> = field(question, &format!("bm25_{set}_score"))?;
    if !hits.iter().map(|h| h.turn).eq(turns(question, &format!("bm25_{set}_128"))?) || scores.len() != hits.len() {
        return Ok(None);
    }
    Ok(Some(hits.iter().zip(scores).map(|(hit, score)| (hit.score - score).abs()).fold(0.0, f64::max)))
}

/// The turns in the fused order of our BM25 list and the reference's dense list.
fn fused(bm25: &[Hit], question: &Question, store: &Store) -> Vec<usize> {
    let dense: Vec<Hit> = question.dense128.iter().map(|&turn| Hit { turn, score: 0.0 }).collect();
    let mut fusion = Fusion::new([1.0, 1.0], 60.0, store.turn_count());
    fusion.best(&[bm25.to_vec(), dense], usize::MAX).iter().map(|f| f.turn).collect()
}

/// The fill of the best 128 turns, with the reference's costs.
fn filled(fused: &[usize], store: &StoreOf, budget_tokens: i64) -> (Vec<usize>, i64) {
    let identities: Vec<[u8; 8]> = fused.iter().map(|turn| turn.to_le_bytes()).collect();
    let pool = fused.iter().zip(&identities).take(DEPTH);
    let pool = pool.map(|(&index, identity)| Candidate { index, session: store.session[index], identity });
    walk(budget_tokens, pool, |turn, first| {
        store.cost[turn] + if first { store.header_cost[&store.session[turn]] } else { 0 }
    })
}

fn turns(question: &Question, name: &str) -> Result<Vec<usize>, Failure> {
    field(question, name)
}

fn field<T: serde::de::DeserializeOwned>(question: &Question, name: &str) -> Result<T, Failure> {
    let value = question.others.get(name).ok_or_else(|| format!("a question has no {name}"))?;
    Ok(serde_json::from_value(value.clone())?)
}

/// The turns of one of LoCoMo's conversations.
fn store(lists: &StoreOf, sample: &Value) -> Result<Store, Failure> {
    let conversation = sample["conversation"].as_object().ok_or("LoCoMo's sample has no conversation")?;
    let mut texts = HashMap::new();
    for turn in conversation.values().filter_map(Value::as_array).flatten() {
        let of = |key: &str| turn[key].as_str().unwrap_or_default();
        let caption = match of("blip_caption") {
            "" => String::new(),
            caption => format!(" [shares {caption}]"),
        };
        texts.insert(of("dia_id"), format!("{}: {}{caption}", of("speaker"), of("text")));
    }
    let mut rows = StoreBuilder::default();
    for (ordinal, id) in lists.turn_ids.iter().enumerate() {
        let text = texts.get(id.as_str()).ok_or_else(|| format!("LoCoMo has no turn {id}"))?;
        rows.push_turn(Turn { ordinal: i32::try_from(ordinal)?, id, content: Some(text), ..Default::default() });
    }
    Ok(rows.finish())
}
