//! Training, saving, loading and predicting, against the text format's own definition.

use std::path::Path;

use super::*;
use crate::error::Class;

fn names(features: &[&str]) -> Vec<String> {
    features.iter().map(|f| f.to_string()).collect()
}

fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 11) as f64 / (1u64 << 53) as f64
}

/// Groups of 20 rows; a row is positive where `signal` is above 0.7; `gap` is missing every third time.
fn rows(groups: usize) -> Vec<Row> {
    let mut state = 11;
    let mut rows = Vec::new();
    for group in 0..groups {
        for ordinal in 0..20 {
            let signal = uniform(&mut state);
            let gap = if ordinal % 3 == 0 { f64::NAN } else { uniform(&mut state) };
            rows.push(Row {
                group: format!("t/s{}/q{group}", group % 7),
                ordinal,
                label: if signal > 0.9 { 2.0 } else { f32::from(signal > 0.7) },
                values: vec![signal, uniform(&mut state), gap],
            });
        }
    }
    rows
}

fn features() -> Vec<String> {
    names(&["signal", "noise", "gap"])
}

fn params() -> Params {
    // Every tree sees all rows and features, so that 30 of them have learnt the signal.
    Params { num_trees: 30, bagging_fraction: 1.0, feature_fraction: 1.0, ..Params::default() }
}

fn model(rows: Vec<Row>) -> (String, Card) {
    match train(&Dataset::from_rows(features(), rows).unwrap(), &params()).unwrap() {
        Trained::Lightgbm { text, card } => (text, card),
        Trained::FusedOrder { why, .. } => panic!("{why}"),
    }
}

/// The text format's definition: go left where the value is at most the threshold, or is missing and the default is
/// left; the score is the sum of the leaves.
fn walk(text: &str, row: &[f64]) -> f64 {
    let trees = text.split("end of trees").next().unwrap().split("Tree=").skip(1);
    trees
        .map(|tree| {
            let list = |name: &str| -> Vec<f64> {
                let line = tree.lines().find_map(|l| l.strip_prefix(&format!("{name}="))).unwrap();
                line.split(' ').map(|v| v.parse().unwrap()).collect()
            };
            let leaves = list("leaf_value");
            if leaves.len() == 1 {
                return leaves[0];
            }
            let (left, right, feature) = (list("left_child"), list("right_child"), list("split_feature"));
            let (threshold, decision) = (list("threshold"), list("decision_type"));
            let mut node = 0i64;
            while node >= 0 {
                let n = node as usize;
                let (kind, mut value) = (decision[n] as u8, row[feature[n] as usize]);
                let missing_is_nan = (kind >> 2) & 3 == 2;
                if value.is_nan() && !missing_is_nan {
                    value = 0.0;
                }
                let go_left = if value.is_nan() { kind & 2 != 0 } else { value <= threshold[n] };
                node = if go_left { left[n] as i64 } else { right[n] as i64 };
            }
            leaves[!node as usize]
        })
        .sum()
}

#[test]
fn the_same_rows_in_any_order_give_the_same_bytes() {
    let given = rows(40);
    let (first, card) = model(given.clone());
    let mut shuffled = given.clone();
    let mut state = 5;
    for i in (1..shuffled.len()).rev() {
        shuffled.swap(i, (uniform(&mut state) * (i + 1) as f64) as usize);
    }
    let (second, other) = model(shuffled);
    assert!(first == second, "another row order gave another model");
    assert_eq!(card, other);
    assert_eq!(model(given).0, first);
}

#[test]
fn predictions_are_the_sums_of_the_leaves() {
    let (text, card) = model(rows(40));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lite.txt");
    Trained::Lightgbm { text: text.clone(), card }.save(&path).unwrap();
    let ranker = Ranker::load(&path, &features()).unwrap();
    let values: Vec<f64> = rows(50).into_iter().skip(800).flat_map(|r| r.values).collect();
    let scores = ranker.predict(&values, 3).unwrap();
    for (row, score) in values.chunks(3).zip(&scores) {
        assert!((walk(&text, row) - score).abs() < 1e-12, "{row:?}");
        assert_eq!(ranker.predict(row, 3).unwrap(), [*score], "alone or among others");
    }
    // Rows were positive by `signal` alone: in new groups, too, the best by score is one of the best by signal.
    for (rows, scores) in values.chunks(60).zip(scores.chunks(20)) {
        let best = (0..20).max_by(|a, b| scores[*a].total_cmp(&scores[*b])).unwrap();
        let highest = rows.chunks(3).map(|r| r[0]).fold(0.0, f64::max);
        assert!(rows[best * 3] > 0.9 || rows[best * 3] == highest || highest <= 0.9);
    }
    assert_eq!(ranker.predict(&[], 3).unwrap(), [0.0; 0]);
    assert_eq!(ranker.predict(&[1.0, 2.0], 2).unwrap_err().class, Class::Internal);
    assert_eq!(ranker.predict(&[1.0; 4], 3).unwrap_err().class, Class::Internal);
}

#[test]
fn many_threads_predict_the_same() {
    let (text, _) = model(rows(40));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.txt");
    std::fs::write(&path, &text).unwrap();
    let ranker = Ranker::load(&path, &features()).unwrap();
    let values: Vec<f64> = rows(10).into_iter().flat_map(|r| r.values).collect();
    let expected: Vec<f64> = values.chunks(3).map(|r| walk(&text, r)).collect();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let scores = ranker.predict(&values, 3).unwrap();
                    assert!(scores.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-12));
                }
            });
        }
    });
}

#[test]
fn label_gains_are_set_and_reported() {
    let mut grades = rows(40);
    grades.iter_mut().for_each(|r| r.label = (r.values[0] * 10.0).floor() as f32);
    let (text, card) = model(grades);
    let linear: Vec<String> = (0..32).map(|g| g.to_string()).collect();
    assert!(text.contains(&format!("[label_gain: {}]", linear.join(","))), "the model's own record");
    assert_eq!(card.params.label_gain[10], 10.0, "not 2^10 - 1");
    assert!(serde_json::to_string(&card).unwrap().contains("\"label_gain\":[0.0,1.0,2.0"));
    let gains: Vec<&str> = card.feature_gains.iter().map(|g| g.feature.as_str()).collect();
    assert_eq!(gains, ["signal", "noise", "gap"]);
    assert!(card.feature_gains[0].gain > card.feature_gains[1].gain);
}

#[test]
fn groups_without_a_positive_are_counted() {
    let mut given = rows(40);
    for row in given.iter_mut().filter(|r| r.group.ends_with("/q3") || r.group.ends_with("/q21")) {
        row.label = 0.0;
    }
    let (_, card) = model(given);
    assert_eq!((card.data.groups, card.data.groups_without_positive), (40, 2));
    assert_eq!((card.data.rows, card.data.rows_trained), (800, 760));
}

#[test]
fn too_little_data_falls_back_to_the_fused_order() {
    let mut none = rows(3);
    none.iter_mut().for_each(|r| r.label = 0.0);
    let few: Vec<Row> = rows(1).into_iter().take(8).collect();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lite.txt");
    for (given, says) in [(none, "3 groups has a label above 0"), (few, "no split was found in 8 rows")] {
        let (text, card) = model(rows(40));
        Trained::Lightgbm { text, card }.save(&path).unwrap();
        let trained = train(&Dataset::from_rows(features(), given).unwrap(), &params()).unwrap();
        let Trained::FusedOrder { why, .. } = &trained else { panic!("a model from too little data") };
        assert!(why.contains(says), "{why}");
        trained.with_metrics(serde_json::json!({"complete": 0.5})).save(&path).unwrap();
        assert!(!path.exists(), "the older model would be taken for this one");
        let ranker = Ranker::load(&path, &features()).unwrap();
        assert_eq!(ranker.fused_order().unwrap(), ranker.card().unwrap().why.as_deref().unwrap());
        assert_eq!(ranker.card().unwrap().metrics["complete"], 0.5);
        assert_eq!(ranker.inputs(), ["pool_position"]);
        assert_eq!(ranker.predict(&[1.0, 2.0, 128.0], 1).unwrap(), [-1.0, -2.0, -128.0]);
    }
}

#[test]
fn groups_of_positives_only_teach_nothing() {
    let mut all = rows(3);
    all.iter_mut().for_each(|r| r.label = 1.0);
    let trained = train(&Dataset::from_rows(features(), all).unwrap(), &params()).unwrap();
    assert!(matches!(trained, Trained::FusedOrder { .. }));
}

#[test]
fn other_features_are_refused_by_name() {
    let (text, card) = model(rows(40));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lite.txt");
    Trained::Lightgbm { text, card }.save(&path).unwrap();
    for other in [&["noise", "signal", "gap"][..], &["signal", "noise"], &["signal", "noise", "gap", "role"]] {
        let e = Ranker::load(&path, &names(other)).unwrap_err();
        assert_eq!(e.class, Class::Data);
        let says = format!("trained on signal, noise, gap; the system names {}", other.join(", "));
        assert!(e.to_string().contains(&says) && e.to_string().contains("lite.txt"), "{e}");
    }
}

#[track_caller]
fn refused(path: &Path, says: &str) {
    let e = Ranker::load(path, &features()).unwrap_err();
    assert_eq!(e.class, Class::Data);
    assert!(e.to_string().contains(says), "{e} does not say {says:?}");
}

#[test]
fn a_file_that_is_not_whole_is_refused() {
    let (text, card) = model(rows(40));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.txt");
    refused(&path, "m.txt");
    std::fs::write(&path, &text).unwrap();
    assert!(Ranker::load(&path, &features()).unwrap().card().is_none(), "a model may come without a card");
    let end = text.find("end of trees").unwrap();
    for cut in (0..=end).step_by(211) {
        std::fs::write(&path, &text[..cut]).unwrap();
        refused(&path, "not a whole LightGBM model");
    }
    for (from, to, says) in [
        ("tree\n", "forest\n", "does not begin with"),
        ("left_child=", "left_child=9999999 ", "left_child"),
        ("split_feature=0", "split_feature=9", "feature"),
        ("num_leaves=", "num_leaves=9", "num"),
        ("num_cat=0", "num_cat=1", "categorical"),
        ("leaf_value=", "leaf_value=nan ", "leaf_value"),
        ("end of trees", "the end", "end of trees"),
        ("num_class=1", "num_class=2", "num_class"),
    ] {
        std::fs::write(&path, resized(&text, from, to)).unwrap();
        refused(&path, says);
    }
    std::fs::write(&path, [0xff, 0xfe, 0x00]).unwrap();
    refused(&path, "not UTF-8");
    Trained::Lightgbm { text: text.clone(), card }.save(&path).unwrap();
    std::fs::write(&path, text.replacen("shrinkage=0.05", "shrinkage=0.06", 1)).unwrap();
    refused(&path, "belongs to another model");
    std::fs::write(dir.path().join("m.json"), "{").unwrap();
    refused(&path, "the card");
}

/// Replaces once, and lets the sizes of the trees agree with the result, so that the fault itself is met.
fn resized(text: &str, from: &str, to: &str) -> String {
    let changed = text.replacen(from, to, 1);
    assert_ne!(changed, text);
    let in_first_tree = text.find(from) > text.find("Tree=0") && text.find(from) < text.find("Tree=1");
    if !in_first_tree {
        return changed;
    }
    let sizes = text.lines().find_map(|l| l.strip_prefix("tree_sizes=")).unwrap();
    let first: usize = sizes.split(' ').next().unwrap().parse().unwrap();
    changed.replacen(&format!("tree_sizes={first}"), &format!("tree_sizes={}", first + to.len() - from.len()), 1)
}

#[test]
fn settings_out_of_range_are_named() {
    let data = Dataset::from_rows(features(), rows(2)).unwrap();
    for (params, says) in [
        (Params { num_leaves: 1, ..Params::default() }, "num_leaves"),
        (Params { num_trees: 0, ..Params::default() }, "num_trees"),
        (Params { learning_rate: f64::NAN, ..Params::default() }, "learning_rate"),
        (Params { label_gain: vec![1.0], ..Params::default() }, "label_gain"),
    ] {
        let e = train(&data, &params).unwrap_err();
        assert!(e.class == Class::Usage && e.to_string().contains(says), "{e}");
    }
    let short = Params { label_gain: vec![0.0, 1.0], ..Params::default() };
    assert!(train(&data, &short).unwrap_err().to_string().contains("label 2 is above 1"));
}

/// Labels that the features say nothing of: NDCG on them rises by chance alone, and training ends soon after its least length.
#[test]
fn training_stops_where_held_out_groups_gain_nothing() {
    let noise = |groups: usize| {
        let mut rows = rows(groups);
        let mut state = 99;
        rows.iter_mut().for_each(|r| r.label = f32::from(uniform(&mut state) > 0.7));
        Dataset::from_rows(features(), rows).unwrap()
    };
    let params = Params { num_trees: 300, early_stopping_rounds: 10, ..params() };
    let trained = train_stopping(&noise(60), &noise(30), &params).unwrap();
    let stopped = trained.card().stopped.clone().unwrap();
    // 2 / 0.05 trees at least.
    assert!((40..290).contains(&stopped.trees) && stopped.groups == 30 && stopped.ndcg > 0.0, "{stopped:?}");
    let Trained::Lightgbm { text, .. } = &trained else { panic!("there is a model") };
    assert_eq!(text.matches("\nTree=").count(), stopped.trees);
    // What can be learnt ranks the groups held out well.
    let set = |groups| Dataset::from_rows(features(), rows(groups)).unwrap();
    let learnt = train_stopping(&set(60), &set(20), &params).unwrap();
    assert!(learnt.card().stopped.as_ref().unwrap().ndcg > 0.9, "{:?}", learnt.card().stopped);
    // Without groups held out that have a positive there is nothing to stop by.
    let mut none = rows(5);
    none.iter_mut().for_each(|r| r.label = 0.0);
    let whole = train_stopping(&set(60), &Dataset::from_rows(features(), none).unwrap(), &params).unwrap();
    assert!(whole.card().stopped.is_none());
}
