//! Vectors that are missing, of another model, or of a wrong length; texts that have none.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, RecordBatch};
use futures::stream;
use memslate::engine::{self, Functions, Models, Settings};
use memslate::lake::{Lake, Outcome, Unit};
use memslate::schema::{EMBEDDINGS, Table};

use super::support::{Night, Turn, copy, history, model, turn};

fn night() -> Night {
    let night = Night::new();
    let names = ["a", "b", "c", "d"];
    let said = |store: &str, t: Turn| Turn { content: t.content.map(|c| format!("{c}, says {store}")), ..t };
    let turns: Vec<Turn> = names.iter().flat_map(|s| history(s, 30).into_iter().map(move |t| said(s, t))).collect();
    let requests: Vec<_> = names.iter().map(|s| (*s, "q", "the kettle", None)).collect();
    night.turns(&turns).requests(&requests);
    night
}

/// Replaces the vectors of the lake by what `change` makes of the n-th.
fn damage(night: &Night, change: impl Fn(usize, &[u8]) -> Option<Vec<u8>>) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let lake = Lake::open(&night.lake().display().to_string()).await.unwrap();
        let mut snapshot = lake.table(&EMBEDDINGS).await.unwrap();
        let context = engine::session(&Settings::default(), &Functions::new(Models::default())).unwrap();
        engine::register(&context, &lake, &EMBEDDINGS, &[]).await.unwrap();
        let mut n = 0;
        for partition in snapshot.partitions().unwrap() {
            let columns: Vec<_> = EMBEDDINGS.columns.iter().map(|c| c.name).collect();
            let sql = format!("SELECT {} FROM embeddings WHERE shard = {}", columns.join(", "), partition[0]);
            let batches = engine::collect(&context, &sql, &[]).await.unwrap();
            let changed: Vec<RecordBatch> =
                batches.iter().map(|b| with_vectors(b, &EMBEDDINGS, &mut n, &change)).collect();
            let unit = Unit { id: format!("damage/{}", partition[0]), fingerprint: 1, partition };
            let pending = snapshot.write(unit, stream::iter(changed.into_iter().map(Ok))).await.unwrap();
            let Outcome::Committed(now) = snapshot.commit(&[pending], &[]).await.unwrap() else { panic!("lost") };
            snapshot = now;
        }
    });
}

fn with_vectors(
    batch: &RecordBatch,
    table: &Table,
    n: &mut usize,
    change: &impl Fn(usize, &[u8]) -> Option<Vec<u8>>,
) -> RecordBatch {
    let at = table.columns.iter().position(|c| c.name == "vector").unwrap();
    let old = batch.column(at).as_binary::<i32>();
    let new: BinaryArray = (0..old.len())
        .map(|row| {
            *n += 1;
            change(*n, old.value(row))
        })
        .collect();
    let mut columns: Vec<ArrayRef> = batch.columns().to_vec();
    columns[at] = Arc::new(new);
    RecordBatch::try_new(table.file_schema(), columns).unwrap()
}

#[test]
fn missing_vectors_are_made_again() {
    let night = night();
    night.run(&[]).ends_with(0);
    let whole = night.contents();
    // 9%: the n-th of each eleven.
    damage(&night, |n, v| (n % 11 != 0).then(|| v.to_vec()));
    let missing: u64 = night.column("SELECT count(*) FROM embeddings WHERE vector IS NULL")[0].parse().unwrap();
    assert_eq!(missing, 4 * 31 / 11);
    let ran = night.run(&[]).ends_with(0);
    assert_eq!(ran.table("embeddings", "rows_computed"), missing);
    assert_eq!(night.contents(), whole);
    // Slates were made with vectors that are the same as before.
    assert_eq!(ran.table("slates", "stores_computed"), 0);
    assert_eq!(night.run(&[]).ends_with(0).table("embeddings", "rows_computed"), 0);
}

#[test]
fn vectors_of_a_wrong_length_are_refused_by_name() {
    let night = night();
    night.run(&["--until", "embeddings"]).ends_with(0);
    damage(&night, |n, v| Some(if n == 40 { v[..10].to_vec() } else { v.to_vec() }));
    let ran = night.run(&[]).ends_with(1);
    assert!(ran.stderr.contains("pools, shard") && ran.stderr.contains("10"), "{}", ran.stderr);
    assert_eq!(night.column("SELECT count(*) FROM slates"), ["0"]);
}

/// Of another dimension, or of the same with other weights: a vector is found by its model's hash.
#[test]
fn vectors_of_another_model_are_not_taken() {
    let (night, fresh) = (night(), self::night());
    let other = format!("encoder={}", model("xlmr_encoder"));
    night.run(&["--set", &other]).ends_with(0);
    let ran = night.run(&[]).ends_with(0);
    assert_eq!(ran.table("embeddings", "rows_computed"), 4 * 31);
    fresh.run(&[]).ends_with(0);
    let sql = "SELECT store_id, turn_id, dense_score, rank FROM features f JOIN rankings r \
               USING (store_id, turn_id) ORDER BY store_id, rank";
    assert_eq!(night.rows(sql), fresh.rows(sql));
    // Both are kept: back at the first model, nothing is embedded again.
    assert_eq!(night.run(&["--set", &other]).ends_with(0).table("embeddings", "rows_computed"), 0);
}

/// The fixture, with no finite vector for a text that says "garden".
fn encoder_without_gardens(night: &Night) -> String {
    let folder = night.path().join("partly");
    copy(Path::new(&model("bert_encoder")), &folder);
    let file = folder.join("model.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    // The format: the header's length in 8 bytes, the header in JSON, then the values.
    let values = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..values]).unwrap();
    let words =
        header.as_object().unwrap().iter().find(|(name, _)| name.ends_with("word_embeddings.weight")).unwrap().1;
    let start = values + words["data_offsets"][0].as_u64().unwrap() as usize;
    let row = 4 * words["shape"][1].as_u64().unwrap() as usize;
    let vocabulary: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.join("tokenizer.json")).unwrap()).unwrap();
    let garden = vocabulary["model"]["vocab"]["garden"].as_u64().unwrap() as usize;
    for value in bytes[start + garden * row..][..row].chunks_exact_mut(4) {
        value.copy_from_slice(&f32::NAN.to_le_bytes());
    }
    std::fs::write(&file, bytes).unwrap();
    format!("encoder={}", folder.display())
}

#[test]
fn texts_that_fail_are_tried_each_night_and_told() {
    let night = Night::new();
    night.turns(&[
        turn("a", "s", "a1", "2024-03-01T10:00:00Z", "the garden is wet"),
        turn("a", "s", "a2", "2024-03-01T10:01:00Z", "the dog is old"),
        // The same text twice in a store.
        turn("a", "s", "a3", "2024-03-01T10:02:00Z", "the garden is wet"),
        turn("b", "s", "b1", "2024-03-01T10:00:00Z", "the dog is old"),
    ]);
    night.requests(&[("a", "q", "the dog", None), ("b", "q", "the dog", None)]);
    let encoder = encoder_without_gardens(&night);
    for (embedded, stores) in [(5, 2), (1, 0), (1, 0)] {
        let ran = night.run(&["--set", "shards=2", "--set", &encoder]).ends_with(3);
        assert!(ran.table("embeddings", "rows_computed") <= embedded, "{}", ran.stdout);
        assert_eq!(ran.table("slates", "stores_computed"), stores);
        assert_eq!(
            night.rows("SELECT store_id, status FROM slates ORDER BY store_id"),
            [["a", "degraded"], ["b", "ok"]]
        );
    }
    assert_eq!(night.column("SELECT count(*) FROM embeddings WHERE vector IS NULL"), ["1"]);
}

/// Nothing is sent to a model for them, nothing fails, and they are not tried for ever.
#[test]
fn blank_turns_and_turns_without_a_token_do_no_harm() {
    let night = Night::new();
    let said = |id: &str, text: &str| turn("a", "s", id, "2024-03-01T10:00:00Z", text);
    let nothing = Turn { content: None, role: Some("tool".into()), ..said("t5", "") };
    // A zero-width space is no white space, and no token.
    let blank = ["", " \n\t", "\u{200b}", "\u{3000}"].map(|text| said(&format!("{text:?}"), text));
    night.turns(&[&blank[..], &[nothing, said("t6", "the dog is old")]].concat());
    night.requests(&[("a", "q", "the dog", None), ("a", "r", "\u{200b}", None)]);
    let ran = night.run(&[]).ends_with(0);
    assert_eq!(ran.json()["slates"], serde_json::json!({"ok": 1, "empty": 1}));
    assert_eq!(night.column("SELECT count(*) FROM embeddings WHERE vector IS NULL"), ["0"]);
    assert_eq!(night.column("SELECT DISTINCT turn_id FROM features WHERE dense_score IS NOT NULL"), ["t6"]);
    let version = ran.table("embeddings", "version");
    let again = night.run(&[]).ends_with(0);
    assert_eq!((again.table("embeddings", "rows_computed"), again.table("embeddings", "version")), (0, version));
}
