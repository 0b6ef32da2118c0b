//! Logits that are missing are tried again; what a model did not do whole is told.

use std::path::Path;

use arrow::array::RecordBatch;
use futures::stream;
use memslate::engine::{self, Functions, Models, Settings};
use memslate::lake::{Lake, Outcome, Unit};
use memslate::schema::SCORES;

use super::support::{Night, copy, history, model, turn};

fn night() -> Night {
    let night = Night::new();
    night.turns(&[history("a", 30), history("b", 30)].concat());
    night.requests(&[("a", "q", "the kettle", None), ("b", "q", "the violin", None)]);
    night
}

fn by_the_cross_encoder(night: &Night, scorer: &str) -> super::support::Ran {
    night.run(&["--system", "cross_encoder_order", "--set", &format!("scorer={scorer}")])
}

/// Takes every eleventh logit away.
fn damage(night: &Night) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let lake = Lake::open(&night.lake().display().to_string()).await.unwrap();
        let mut snapshot = lake.table(&SCORES).await.unwrap();
        let context = engine::session(&Settings::default(), &Functions::new(Models::default())).unwrap();
        engine::register(&context, &lake, &SCORES, &[]).await.unwrap();
        for partition in snapshot.partitions().unwrap() {
            let sql = format!(
                "SELECT question_hash, content_hash, scorer_hash,
                    CASE WHEN row_number() OVER () % 11 <> 0 THEN logit END AS logit, truncated
                 FROM scores WHERE shard = {} ORDER BY scorer_hash, question_hash, content_hash",
                partition[0]
            );
            let batches = engine::collect(&context, &sql, &[]).await.unwrap();
            let fit =
                |b: &RecordBatch| RecordBatch::try_new(SCORES.file_schema(), b.columns().to_vec()).map_err(Into::into);
            let rows: Vec<_> = batches.iter().map(fit).collect();
            let unit = Unit { id: format!("damage/{}", partition[0]), fingerprint: 1, partition };
            let pending = snapshot.write(unit, stream::iter(rows)).await.unwrap();
            let Outcome::Committed(now) = snapshot.commit(&[pending], &[]).await.unwrap() else { panic!("lost") };
            snapshot = now;
        }
    });
}

#[test]
fn missing_logits_are_made_again() {
    let night = night();
    let scorer = model("bert_scorer");
    by_the_cross_encoder(&night, &scorer).ends_with(0);
    let whole = night.contents();
    damage(&night);
    let missing: u64 = night.column("SELECT count(*) FROM scores WHERE logit IS NULL")[0].parse().unwrap();
    assert!(missing >= 4, "{missing}");
    let ran = by_the_cross_encoder(&night, &scorer).ends_with(0);
    assert_eq!(ran.table("scores", "rows_computed"), missing);
    assert_eq!(ran.table("scores", "without_value"), 0);
    assert_eq!(night.contents(), whole);
    // Slates were made with logits that are the same as before.
    assert_eq!(ran.table("slates", "stores_computed"), 0);
    assert_eq!(by_the_cross_encoder(&night, &scorer).ends_with(0).table("scores", "rows_computed"), 0);
}

/// The seeded cross-encoder with a weight that is NaN: no pair has a score, every run says so and tries again.
#[test]
fn what_a_model_did_not_do_whole_is_told() {
    let night = night();
    let long = turn("a", "a-s0", "a-long", "2024-03-01T10:30:00Z", &"the kettle and the tea ".repeat(30));
    night.turns(&[history("a", 30), vec![long], history("b", 30)].concat());
    let folder = night.path().join("failing");
    copy(Path::new(&model("bert_scorer")), &folder);
    let file = folder.join("model.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let bias = header["classifier.bias"]["data_offsets"][0].as_u64().unwrap() as usize;
    // NaN in binary16.
    bytes[8 + length + bias..][..2].copy_from_slice(&[0x00, 0x7e]);
    std::fs::write(&file, bytes).unwrap();
    let mut slates = Vec::new();
    for _ in 0..2 {
        let ran = by_the_cross_encoder(&night, folder.to_str().unwrap());
        assert_eq!(night.column("SELECT count(*) FROM scores WHERE logit IS NOT NULL"), ["0"]);
        let pairs: u64 = night.column("SELECT count(*) FROM scores")[0].parse().unwrap();
        assert_eq!((ran.table("scores", "without_value"), ran.table("scores", "rows_computed")), (pairs, pairs));
        // The long turn alone is above the model's 64 tokens.
        assert_eq!((ran.table("scores", "truncated"), ran.table("embeddings", "truncated")), (1, 1));
        assert_eq!(ran.table("embeddings", "without_value"), 0);
        slates.push(ran.table("slates", "stores_computed"));
    }
    assert_eq!(slates, [2, 0], "nothing changed for the slates in the second night");
    // The model's folder as it should be: other weights, another hash, and the slates follow.
    let ran = by_the_cross_encoder(&night, &model("bert_scorer")).ends_with(0);
    assert_eq!((ran.table("scores", "without_value"), ran.table("slates", "stores_computed")), (0, 2));

    // For a person, in words.
    let mut arguments = night.run_arguments(&["--set", &format!("scorer={}", folder.display())]);
    arguments.retain(|a| a != "--json");
    let at = arguments.iter().position(|a| a == "recall_order").unwrap();
    arguments[at] = "cross_encoder_order".into();
    let said = super::support::memslate(&arguments);
    let said = format!("{}{}", said.stdout, said.stderr);
    assert!(said.contains("scores: 1 row cut to what the model reads, ") && said.contains("without a value"), "{said}");
}
