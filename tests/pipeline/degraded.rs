//! A model that fails makes a slate worse, never a run wrong, and is told.

use std::path::Path;

use super::support::{Night, copy, history, model};

/// An encoder that gives a vector for no text: all its weights are NaN.
fn failing_encoder(night: &Night) -> String {
    let folder = night.path().join("failing");
    copy(Path::new(&model("bert_encoder")), &folder);
    let file = folder.join("model.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    // The format: the header's length in 8 bytes, the header in JSON, then the values.
    let values = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    for value in bytes[values..].chunks_exact_mut(4) {
        value.copy_from_slice(&f32::NAN.to_le_bytes());
    }
    std::fs::write(&file, bytes).unwrap();
    format!("encoder={}", folder.display())
}

/// Turns 0, 9 and 18 of each store are about the kettle.
fn night() -> Night {
    let night = Night::new();
    night.turns(&[history("a", 20), history("b", 20)].concat());
    night.requests(&[("a", "q", "kettle", None), ("b", "q", "kettle", None)]);
    night
}

const STATUSES: &str = "SELECT store_id, status FROM slates ORDER BY store_id";

/// With words alone for a night, and with vectors the night after.
fn fails_and_recovers(set: &[&str]) -> Night {
    let night = night();
    let encoder = failing_encoder(&night);
    let failing = [set, &["--set", &encoder]].concat();
    // The night after, nothing is computed and the failure is still told.
    for computed in [2, 0] {
        let ran = night.run(&failing).ends_with(3);
        assert_eq!(ran.table("slates", "stores_computed"), computed);
        assert_eq!(ran.json()["slates"], serde_json::json!({"degraded": 2}));
        assert_eq!(ran.json()["rejects"], 0);
    }
    assert_eq!(night.column("SELECT count(*) FROM embeddings WHERE vector IS NOT NULL"), ["0"]);
    assert_eq!(night.rows(STATUSES), [["a", "degraded"], ["b", "degraded"]]);
    for store in ["a", "b"] {
        let mut ids = night.column(&format!("SELECT unnest(turn_ids) FROM slates WHERE store_id = '{store}'"));
        ids.sort();
        assert_eq!(ids, [0, 18, 9].map(|i| format!("{store}-t{i}")), "the lexical list fills the slate");
    }
    assert_eq!(night.column("SELECT count(*) FROM slates WHERE text NOT LIKE '%about the kettle%'"), ["0"]);

    let ran = night.run(set).ends_with(0);
    assert_eq!(ran.json()["slates"], serde_json::json!({"ok": 2}));
    assert_eq!(night.rows(STATUSES), [["a", "ok"], ["b", "ok"]]);
    // Recall by vectors finds the other turns too.
    assert_eq!(night.column("SELECT cardinality(turn_ids) FROM slates"), ["20", "20"]);
    night
}

#[test]
fn without_vectors_the_fused_order_is_that_of_the_words() {
    fails_and_recovers(&[]);
}

#[test]
fn without_vectors_a_ranking_by_vectors_has_no_scores() {
    let night = fails_and_recovers(&["--set", "rank.column=context_cosine", "--set", "rank.descending=true"]);
    // What the failing encoder left is gone.
    assert_eq!(night.column("SELECT count(*) FROM rankings WHERE score IS NULL"), ["0"]);
}
