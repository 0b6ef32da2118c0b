//! Systems from their files.

use super::*;

#[test]
fn an_empty_file_is_recall_order() {
    let s = System::parse("recall_order", "").unwrap();
    assert_eq!((s.recall.pool_size, s.recall.rrf_k, s.recall.lists.len()), (128, 60.0, 2));
    assert_eq!(s.rank.column.as_deref(), Some("pool_position"));
}

#[test]
fn the_hash_is_of_choices_not_of_text() {
    let a = System::parse("x", "[recall]\npool_size = 64\n").unwrap();
    let b = System::parse("x", "# comment\n[recall]\nrrf_k = 60.0\npool_size = 64\n").unwrap();
    let c = System::parse("x", "[recall]\npool_size = 65\n").unwrap();
    assert_eq!(a.hash(), b.hash());
    assert_ne!(a.hash(), c.hash());
}

/// Hashes name partitions of lakes that exist: what is left out must not show in what is hashed.
#[test]
fn settings_left_out_are_not_hashed() {
    let plain = concat!(
        r#"{"recall":{"pool_size":128,"rrf_k":60.0,"depth":0,"deduplicate":true,"lists":["#,
        r#"{"kind":"bm25","weight":1.0,"k1":0.9,"b":0.4,"stem":true,"tokens":"unicode"},"#,
        r#"{"kind":"dense","weight":1.0}]},"score":{"method":"none"},"#,
        r#""rank":{"method":"column","ranker":null,"features":[],"column":"pool_position","descending":false},"#,
        r#""slate":{"rendering":"sessions","gap_cut":null}}"#,
    );
    let system = System::parse("recall_order", "").unwrap();
    assert_eq!(serde_json::to_string(&system).unwrap(), plain);
    assert_eq!(system.hash(), hex(&Sha256::digest(plain)));
}

#[test]
fn a_zone_is_a_choice_of_the_system() {
    let of = |minutes: i32| System::parse("s", &format!("[slate]\nzone_minutes = {minutes}")).unwrap();
    assert_eq!([-1080, 540, 1080].map(|m| of(m).slate.zone_minutes), [-1080, 540, 1080]);
    assert_eq!(of(0).hash(), System::parse("s", "").unwrap().hash());
    assert_ne!(of(540).hash(), of(0).hash());
    assert_eq!(serde_json::from_str::<Slate>(&serde_json::to_string(&of(540).slate).unwrap()).unwrap(), of(540).slate);
}

#[test]
fn lists_of_one_kind_have_names() {
    let lists = |first: &str, second: &str| {
        System::parse("s", &format!("[[recall.lists]]\nkind = \"bm25\"\n{first}\n[[recall.lists]]\n{second}"))
    };
    let system = lists("", "kind = \"bm25\"\nname = \"exact_2\"\nstem = false").unwrap();
    assert_eq!(system.recall.lists.iter().map(List::name).collect::<Vec<_>>(), ["bm25", "exact_2"]);
    // A system is kept as JSON beside its tables.
    let kept: System = serde_json::from_str(&serde_json::to_string(&system).unwrap()).unwrap();
    assert_eq!(kept.recall, system.recall);
    for (first, second, says) in [
        ("", "kind = \"bm25\"", "\"bm25\" twice"),
        ("name = \"a\"", "kind = \"dense\"\nname = \"a\"", "\"a\" twice"),
        ("name = \"dense\"", "kind = \"dense\"", "\"dense\" twice"),
        ("name = \"BM25\"", "kind = \"dense\"", "\"BM25\""),
        ("name = \"\"", "kind = \"dense\"", "the name \"\""),
    ] {
        let e = lists(first, second).unwrap_err();
        assert_eq!(e.class, crate::error::Class::Usage);
        assert!(e.to_string().contains(says), "{first:?} {second:?} -> {e}");
    }
}

#[test]
fn wrong_settings_are_named() {
    for (text, says) in [
        ("[recall]\npool = 3", "pool"),
        ("[recall]\nlists = []", "recall.lists"),
        ("[[recall.lists]]\nkind = \"bm26\"", "bm26"),
        ("[[recall.lists]]\nkind = \"dense\"\nk1 = 2.0", "k1"),
        ("[rank]\ncolumn = \"bm25\"", "known features"),
        ("[rank]\nmethod = \"lightgbm\"", "rank.ranker"),
        ("[slate.gap_cut]\nhead = 2.0", "gap_cut"),
        ("[slate]\nzone_minutes = 1081", "zone_minutes"),
        ("[slate]\nzone_minutes = -1081", "zone_minutes"),
    ] {
        let e = System::parse("s", text).unwrap_err();
        assert_eq!(e.class, crate::error::Class::Usage);
        assert!(e.to_string().contains(says), "{text:?} -> {e}");
    }
}
