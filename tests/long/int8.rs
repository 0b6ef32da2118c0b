//! What 8-bit integers cost a trained model: each text of the demo, in both precisions.

use std::collections::BTreeSet;
use std::path::Path;

use memslate::config::Precision;
use memslate::device::{Batcher, open};
use memslate::model::{default_models_dir, resolve};
use memslate::score::{Encoder, Purpose};
use serde_json::Value;

/// What turns say and requests ask.
fn texts() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/demo");
    let mut texts = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "jsonl") {
            for line in std::fs::read_to_string(path).unwrap().lines() {
                gather(&serde_json::from_str(line).unwrap(), &mut texts);
            }
        }
    }
    texts
}

fn gather(value: &Value, texts: &mut BTreeSet<String>) {
    match value {
        Value::Array(values) => values.iter().for_each(|v| gather(v, texts)),
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(text) if key == "content" || key == "question" => _ = texts.insert(text.clone()),
                    value => gather(value, texts),
                }
            }
        }
        _ => (),
    }
}

#[test]
fn in_int8_every_vector_of_the_demo_points_where_it_does_in_f32() {
    let folder = resolve("minilm", &default_models_dir())
        .unwrap_or_else(|e| panic!("this test needs the small model, which `make model` fetches: {e}"));
    let batcher = Batcher::new(open("cpu").unwrap()).unwrap();
    let texts = texts();
    assert!(texts.len() > 1000, "{} texts", texts.len());
    let texts: Vec<Option<&str>> = texts.iter().map(|t| Some(t.as_str())).collect();
    let embed = |precision| {
        let encoder = Encoder::load(&folder.clone().in_precision(precision), &batcher).unwrap();
        encoder.embed(&texts, Purpose::Passage).unwrap()
    };
    let (exact, small) = (embed(Precision::F32), embed(Precision::Int8));
    let mut cosines: Vec<f32> = Vec::new();
    for (text, (a, b)) in texts.iter().zip(exact.iter().zip(&small)) {
        let (a, b) = (a.vector.as_ref().unwrap(), b.vector.as_ref().unwrap());
        let cosine: f32 = a.iter().zip(b).map(|(x, y)| x * y).sum();
        assert!(a.is_empty() || cosine >= 0.99, "{cosine}: {text:?}");
        cosines.push(cosine);
    }
    cosines.sort_by(f32::total_cmp);
    println!("{} texts: cosine at least {}, median {}", cosines.len(), cosines[0], cosines[cosines.len() / 2]);
}
