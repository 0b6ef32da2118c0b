//! The functions in SQL, on the small seeded models.

use std::path::Path;

use arrow::array::{Array, LargeStringArray, RecordBatch, StringViewArray};
use arrow::datatypes::Float32Type;
use datafusion::prelude::SessionContext;
use half::f16;
use serde::Deserialize;

use super::*;
use crate::config::Precision;
use crate::error::Class;
use crate::model::weights::{Tensor, fixture, write_safetensors};
use crate::model::{ModelFolder, Weights, resolve};
use crate::score::Scored;
use crate::score::testing::{batcher, folder};

fn encoder(name: &str) -> Arc<Encoder> {
    Encoder::load(&folder(name), &batcher()).unwrap()
}

fn scorer(name: &str) -> Arc<CrossEncoder> {
    CrossEncoder::load(&folder(name), &batcher()).unwrap()
}

/// Runs a query on a fresh session with these functions.
async fn query(functions: &[ScalarUDF], sql: &str) -> Result<Vec<RecordBatch>> {
    let session = SessionContext::new();
    functions.iter().for_each(|f| session.register_udf(f.clone()));
    Ok(session.sql(sql).await?.collect().await?)
}

/// A row of a fixture's `expected.json` with texts.
#[derive(Deserialize)]
struct Expected {
    text: Option<String>,
    question: Option<String>,
    content: Option<String>,
    output: Vec<f32>,
}

fn expected(name: &str) -> Vec<Expected> {
    serde_json::from_slice(&std::fs::read(fixture(name).join("expected.json")).unwrap()).unwrap()
}

#[test]
fn texts_get_the_vectors_of_transformers() {
    for name in ["bert_encoder", "xlmr_encoder"] {
        let encoder = encoder(name);
        let rows: Vec<Expected> = expected(name).into_iter().filter(|r| r.text.is_some()).collect();
        let texts: Vec<Option<&str>> = rows.iter().map(|r| r.text.as_deref()).collect();
        let got = encoder.embed(&texts, Purpose::Passage).unwrap();
        for (row, embedded) in rows.iter().zip(&got) {
            let vector = embedded.vector.as_ref().unwrap();
            let off = row.output.iter().zip(vector).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(vector.len() == encoder.dim() && off <= 1e-5, "{name}, {:?}: off by {off:e}", row.text);
            // The last text repeats a sentence until it is too long.
            assert_eq!(embedded.truncated, row.text.as_ref().unwrap().len() > 300);
        }
    }
}

#[test]
fn pairs_get_the_logits_of_transformers() {
    for name in ["bert_scorer", "xlmr_scorer"] {
        let scorer = scorer(name);
        let rows: Vec<Expected> = expected(name).into_iter().filter(|r| r.question.is_some()).collect();
        let pairs: Vec<_> = rows.iter().map(|r| (r.question.as_deref(), r.content.as_deref())).collect();
        let got = scorer.score(&pairs).unwrap();
        for (row, scored) in rows.iter().zip(&got) {
            assert!((scored.logit.unwrap() - row.output[0]).abs() <= 1e-5, "{name}: {scored:?}");
            assert_eq!(scored.truncated, row.content.as_ref().unwrap().len() > 300);
        }
    }
}

#[test]
fn a_pair_has_the_same_bits_alone_and_among_thousands_in_another_order() {
    let scorer = scorer("xlmr_scorer");
    let words =
        ["dog", "cat", "book", "train", "bread", "garden", "yesterday", "shop", "violin", "sister", "red", "tea"];
    let text = |i: usize| (0..i % 40 + 1).map(|j| words[(i * 7 + j * j) % 12]).collect::<Vec<_>>().join(" ");
    let texts: Vec<(String, String)> = (0..3000).map(|i| (text(i % 50), text(i * 31 + 1))).collect();
    let pairs: Vec<_> = texts.iter().map(|(q, c)| (Some(&q[..]), Some(&c[..]))).collect();
    let all = scorer.score(&pairs).unwrap();
    let backwards: Vec<_> = pairs.iter().rev().copied().collect();
    let mut again = scorer.score(&backwards).unwrap();
    again.reverse();
    assert_eq!(all, again);
    for i in (0..3000).step_by(97) {
        assert_eq!(scorer.score(&pairs[i..=i]).unwrap()[0], all[i]);
    }
}

#[test]
fn blank_texts_have_no_vector_and_are_counted_but_never_sent() {
    let encoder = encoder("bert_encoder");
    let got = encoder.embed(&[None, Some(" \n"), Some("dog"), Some("")], Purpose::Query).unwrap();
    let lengths: Vec<_> = got.iter().map(|e| e.vector.as_ref().map(Vec::len)).collect();
    assert_eq!(lengths, [Some(0), Some(0), Some(encoder.dim()), Some(0)]);
    // Four rows, and the tokens of one: [CLS] dog [SEP].
    assert_eq!((encoder.progress().rows(), encoder.progress().tokens()), (4, 3));
    assert!(encoder.embed(&[], Purpose::Query).unwrap().is_empty());
    let scorer = scorer("bert_scorer");
    let got = scorer.score(&[(Some("who"), None), (Some("who"), Some("dog")), (Some(" "), Some("dog"))]).unwrap();
    assert_eq!(got.iter().map(|s| s.logit.is_some()).collect::<Vec<_>>(), [false, true, false]);
}

/// A model one of whose tensors is replaced, in a folder of its own.
fn broken(name: &str, tensor: &str, value: f32) -> (tempfile::TempDir, ModelFolder) {
    let dir = tempfile::tempdir().unwrap();
    for f in ["config.json", "tokenizer.json"] {
        std::fs::copy(fixture(name).join(f), dir.path().join(f)).unwrap();
    }
    let mut weights = Weights::read(&folder(name)).unwrap();
    let old = weights.tensors()[tensor].clone();
    weights.set(tensor, Tensor { values: vec![value; old.values.len()].into(), ..old });
    write_safetensors(&dir.path().join("model.safetensors"), weights.tensors().iter());
    let folder = resolve(dir.path().to_str().unwrap(), Path::new("")).unwrap();
    (dir, folder)
}

#[test]
fn a_value_that_is_not_finite_is_marked_by_a_null() {
    let values = [f32::NAN, f32::INFINITY];
    for (value, precision) in values.iter().flat_map(|v| [(*v, Precision::F32), (*v, Precision::Int8)]) {
        let (_dir, folder) = broken("bert_scorer", "classifier.bias", value);
        let folder = folder.in_precision(precision);
        let scorer = CrossEncoder::load(&folder, &batcher()).unwrap();
        assert_eq!(scorer.score(&[(Some("who"), Some("dog"))]).unwrap(), [Scored { logit: None, truncated: false }]);
        let (_dir, folder) = broken("bert_encoder", "encoder.layer.1.output.LayerNorm.bias", value);
        let folder = folder.in_precision(precision);
        let encoder = Encoder::load(&folder, &batcher()).unwrap();
        assert_eq!(encoder.embed(&[Some("dog")], Purpose::Query).unwrap()[0].vector, None);
    }
}

#[tokio::test]
async fn embed_gives_bytes_of_f16_and_accepts_every_kind_of_text() {
    let encoder = encoder("bert_encoder");
    let vector = encoder.embed(&[Some("red book")], Purpose::Passage).unwrap()[0].vector.clone().unwrap();
    let sql = "SELECT embed(arrow_cast(t, 'Utf8'), 'passage') AS a, embed(arrow_cast(t, 'LargeUtf8'), 'query') AS b, \
               embed(arrow_cast(t, 'Utf8View'), p) AS c, embed(NULL, 'query') AS d \
               FROM (VALUES ('red book', 'query'), ('dog', 'passage'), ('', 'query')) AS v(t, p)";
    let batches = query(&[embed_function(encoder)], sql).await.unwrap();
    let batch = &batches[0];
    assert_eq!(batch.schema().field(0).data_type(), &embed_type());
    let bytes = |column: usize| batch.column(column).as_struct().column(0).as_binary::<i32>().clone();
    let (a, b, c, d) = (bytes(0), bytes(1), bytes(2), bytes(3));
    assert_eq!((&a, &a), (&b, &c));
    assert!(!a.value(1).is_empty() && a.value(2).is_empty() && (0..3).all(|row| d.value(row).is_empty()));
    assert_eq!(a.null_count() + d.null_count(), 0);
    assert_eq!(a.value(0).len(), 64);
    for (two, x) in a.value(0).chunks(2).zip(&vector) {
        // Within half of the last of f16's 11 bits.
        assert!((f16::from_le_bytes([two[0], two[1]]).to_f32() - x).abs() <= x.abs() / 2048.0 + 1e-7);
    }
}

#[tokio::test]
async fn cross_score_gives_a_column_named_logit() {
    let scorer = scorer("xlmr_scorer");
    let logit = scorer.score(&[(Some("who"), Some("dog"))]).unwrap()[0].logit.unwrap();
    let sql = "SELECT s['logit'] AS logit, s['truncated'] AS truncated FROM (SELECT cross_score('who', t) AS s FROM \
               (VALUES ('dog'), (NULL), (' ')) AS v(t))";
    let batches = query(&[cross_score_function(scorer)], sql).await.unwrap();
    let logits = batches[0].column(0).as_primitive::<Float32Type>();
    assert_eq!((logits.value(0), logits.is_null(1), logits.is_null(2)), (logit, true, true));
    assert_eq!(batches[0].column(1).as_boolean().true_count(), 0);
    let batches = query(&[cross_score_signature_only("bge-reranker-v2-m3")], "SELECT 1").await.unwrap();
    assert_eq!(batches[0].num_rows(), 1);
    assert!(matches!(cross_score_type(), DataType::Struct(f) if f.iter().all(|f| f.name() != "probability")));
}

#[tokio::test]
async fn a_wrong_purpose_is_a_usage_error_before_anything_runs() {
    let encoder = encoder("bert_encoder");
    for sql in ["SELECT embed('dog', 'turn')", "SELECT embed('dog', 1)", "SELECT embed('dog')"] {
        let e = query(&[embed_function(Arc::clone(&encoder))], sql).await.unwrap_err();
        assert_eq!(e.class, Class::Usage, "{sql}: {e}");
    }
    // A purpose from a column is seen when it is read.
    let sql = "SELECT embed(t, p) FROM (VALUES ('dog', 'query'), ('cat', NULL)) AS v(t, p)";
    let e = query(&[embed_function(Arc::clone(&encoder))], sql).await.unwrap_err();
    assert!(e.class == Class::Usage && e.to_string().contains("passage"), "{e}");
    assert_eq!(encoder.progress().rows(), 0);
}

#[tokio::test]
async fn without_a_model_a_query_can_be_planned_and_not_run() {
    let session = SessionContext::new();
    session.register_udf(embed_signature_only("minilm"));
    let frame = session.sql("SELECT embed(t, 'query') AS e FROM (VALUES ('dog')) AS v(t)").await.unwrap();
    assert_eq!(frame.schema().field(0).data_type(), &embed_type());
    frame.clone().create_physical_plan().await.unwrap();
    let e = Error::from(frame.collect().await.unwrap_err());
    assert!(e.to_string().contains("minilm"), "{e}");
}

#[test]
fn functions_compare_by_name_and_model() {
    let (a, b, c) = (encoder("bert_encoder"), encoder("bert_encoder"), encoder("xlmr_encoder"));
    assert_eq!(a.hash(), b.hash());
    assert_eq!(a.hash(), Encoder::hash_of(&folder("bert_encoder"), &batcher().describe().kernel_plan).unwrap());
    assert_eq!(embed_function(a.clone()), embed_function(b));
    assert_ne!(embed_function(a.clone()), embed_function(c));
    assert_ne!(embed_function(a), embed_signature_only("bert_encoder"));
    assert_ne!(embed_signature_only("m"), cross_score_signature_only("m"));
}

#[test]
fn large_and_view_arrays_are_read_as_text() {
    let large: ArrayRef = Arc::new(LargeStringArray::from(vec![Some("a"), None]));
    let view: ArrayRef = Arc::new(StringViewArray::from(vec![Some("a"), None]));
    assert_eq!(as_text(&large).unwrap(), as_text(&view).unwrap());
}
