//! Training: LambdaRank over groups, the same bytes for the same data, a fallback where there is nothing to learn.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::dataset::Dataset;
use super::ffi;
use crate::error::{Error, Result};
use crate::schema::FEATURES_VERSION;

/// What a training run may set. The defaults are those of the published method.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Params {
    /// Leaves of a tree at most.
    pub num_leaves: u32,
    /// Trees at most; training stops before when no split is left.
    pub num_trees: usize,
    pub learning_rate: f64,
    /// Rows of a leaf at least.
    pub min_data_in_leaf: u32,
    /// With stores held out: training stops when so many trees in a row have not helped them.
    pub early_stopping_rounds: usize,
    /// Pairs are compared down to this place of a group's order (LightGBM's default).
    pub lambdarank_truncation_level: u32,
    pub seed: u32,
    /// Rows that each tree sees, as a share: trees that see different rows agree less with one training set.
    pub bagging_fraction: f64,
    /// Features that each tree sees, as a share.
    pub feature_fraction: f64,
    /// More relevance may not lower a score: scores and probabilities may only raise it, ranks and places only lower it.
    pub monotone: bool,
    /// Gain of each label from 0. Linear by default: LightGBM's own default, 2^label - 1, makes a 10 weigh a thousand
    /// times a 1.
    pub label_gain: Vec<f64>,
}

impl Default for Params {
    fn default() -> Self {
        Params {
            num_leaves: 31,
            num_trees: 300,
            learning_rate: 0.05,
            min_data_in_leaf: 20,
            early_stopping_rounds: 50,
            lambdarank_truncation_level: 30,
            seed: 7,
            bagging_fraction: 0.5,
            feature_fraction: 0.5,
            monotone: true,
            label_gain: (0..32).map(f64::from).collect(),
        }
    }
}

/// What a card says that its model is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Lightgbm,
    /// No model: the order of the fused recall lists.
    FusedOrder,
}

/// What a ranker was trained on, and how: written beside the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Card {
    pub kind: Kind,
    /// With `fused_order`: why there is no model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Columns of the features table, in the model's order.
    pub features: Vec<String>,
    pub params: Params,
    pub data: Counts,
    /// Total gain of the splits on each feature.
    pub feature_gains: Vec<FeatureGain>,
    /// The features' definition that the model was trained under; none: a card of before they had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub features_version: Option<u32>,
    /// Where training stopped by a set that was held out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
    /// SHA-256 of the model's text, in hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_sha256: Option<String>,
    /// What the caller measured.
    #[serde(default)]
    pub metrics: serde_json::Value,
}

/// Training that was stopped by groups it did not learn from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stopped {
    /// With which the groups held out were ranked best.
    pub trees: usize,
    /// Their mean NDCG then, at `ndcg_at`, over those with a positive.
    pub ndcg: f64,
    pub ndcg_at: u32,
    pub groups: usize,
}

/// The training data in figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// SHA-256 of the dataset in canonical order, in hex.
    pub fingerprint: String,
    pub groups: usize,
    /// Left out: nothing is learnt from them.
    pub groups_without_positive: usize,
    /// Rows of all groups, and of those that were learnt from.
    pub rows: usize,
    pub rows_trained: usize,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FeatureGain {
    pub feature: String,
    pub gain: f64,
}

/// The outcome of a training.
#[derive(Debug, Clone, PartialEq)]
pub enum Trained {
    /// A model: LightGBM's text.
    Lightgbm { text: String, card: Card },
    /// Too little to learn from. The fused order is a better ranking than a model that gives every row the same score.
    FusedOrder { why: String, card: Card },
}

/// Trains a ranker. The same rows in any order give the same model, byte for byte, on one build of LightGBM.
///
/// # Errors
/// A dataset that [`Dataset::check`] refuses (data), a setting out of its range (usage).
pub fn train(data: &Dataset, params: &Params) -> Result<Trained> {
    fit(data, None, params)
}

/// As [`train`], stopped by groups that are held out: when they are no longer ranked better. Groups without a positive say
/// nothing; where no other is held out, training is not stopped.
pub fn train_stopping(data: &Dataset, held_out: &Dataset, params: &Params) -> Result<Trained> {
    held_out.check(params.label_gain.len()).map_err(|e| e.at("held out"))?;
    let (held_out, _) = held_out.canonical().with_positives();
    fit(data, Some(&held_out).filter(|h| !h.groups.is_empty() && params.early_stopping_rounds > 0), params)
}

fn fit(data: &Dataset, held_out: Option<&Dataset>, params: &Params) -> Result<Trained> {
    params.check()?;
    data.check(params.label_gain.len())?;
    let all = data.canonical();
    let (learnt, dropped) = all.with_positives();
    let mut card = Card {
        kind: Kind::FusedOrder,
        why: None,
        features: data.features.clone(),
        params: params.clone(),
        data: Counts {
            fingerprint: all.fingerprint(),
            groups: all.groups.len(),
            groups_without_positive: dropped,
            rows: all.rows(),
            rows_trained: learnt.rows(),
        },
        feature_gains: Vec::new(),
        features_version: Some(FEATURES_VERSION),
        stopped: None,
        model_sha256: None,
        metrics: serde_json::Value::Null,
    };
    if learnt.groups.is_empty() {
        return Ok(fused(card, format!("none of the {dropped} groups has a label above 0")));
    }
    let sets = ffi::Sets { learnt: &learnt, held_out };
    let mut settings = params.to_lightgbm(&learnt.features);
    if held_out.is_some() {
        settings.push_str(&format!(" metric=ndcg eval_at={}", params.lambdarank_truncation_level));
    }
    let fit = ffi::train(&sets, &settings, &params.length())?;
    card.stopped = held_out.zip(fit.held_out).map(|(set, ndcg)| Stopped {
        trees: fit.trees,
        ndcg,
        ndcg_at: params.lambdarank_truncation_level,
        groups: set.groups.len(),
    });
    let pool = ffi::Pool::load(fit.text)?;
    let gains = pool.gains()?;
    if gains.iter().all(|g| *g == 0.0) {
        let why = format!(
            "no split was found in {} rows of {} groups (a leaf takes {} rows at least)",
            learnt.rows(),
            learnt.groups.len(),
            params.min_data_in_leaf
        );
        return Ok(fused(card, why));
    }
    card.kind = Kind::Lightgbm;
    card.feature_gains =
        data.features.iter().zip(gains).map(|(f, gain)| FeatureGain { feature: f.clone(), gain }).collect();
    card.model_sha256 = Some(super::model::sha256(pool.text()));
    Ok(Trained::Lightgbm { text: pool.text().to_string(), card })
}

/// Which way a feature of relevance may move a score; 0 for features of the turn itself.
fn direction(feature: &str) -> i8 {
    match feature {
        "bm25_score" | "dense_score" | "ce_prob" | "context_cosine" => 1,
        "bm25_rank" | "dense_rank" | "pool_position" => -1,
        _ => 0,
    }
}

fn fused(mut card: Card, why: String) -> Trained {
    card.why = Some(why.clone());
    Trained::FusedOrder { why, card }
}

impl Params {
    fn check(&self) -> Result<()> {
        let wrong = |what: &str| Err(Error::usage(format!("training: {what}")));
        if !(2..=131_072).contains(&self.num_leaves) {
            return wrong("num_leaves must be from 2 to 131072");
        }
        if !(self.bagging_fraction > 0.0 && self.bagging_fraction <= 1.0) {
            return wrong("bagging_fraction must be above 0 and at most 1");
        }
        if !(self.feature_fraction > 0.0 && self.feature_fraction <= 1.0) {
            return wrong("feature_fraction must be above 0 and at most 1");
        }
        if self.num_trees == 0 {
            return wrong("num_trees must be 1 or more");
        }
        if !(self.learning_rate > 0.0 && self.learning_rate.is_finite()) {
            return wrong("learning_rate must be above 0");
        }
        if self.lambdarank_truncation_level == 0 || self.lambdarank_truncation_level > i32::MAX as u32 {
            return wrong("lambdarank_truncation_level must be 1 or more");
        }
        if self.min_data_in_leaf > i32::MAX as u32 || self.seed > i32::MAX as u32 {
            return wrong("min_data_in_leaf and seed must be below 2^31");
        }
        if !(2..=32).contains(&self.label_gain.len()) || self.label_gain.iter().any(|g| !(g.is_finite() && *g >= 0.0)) {
            return wrong("label_gain must hold 2 to 32 finite gains from 0");
        }
        Ok(())
    }

    /// The first `1 / learning_rate` trees make one whole step together. What is held out peaks before by chance, where its
    /// labels are a teacher's: no model ends within the first two steps.
    fn length(&self) -> ffi::Length {
        let least = ((2.0 / self.learning_rate).ceil() as usize).clamp(1, self.num_trees);
        ffi::Length { most: self.num_trees, least, patience: self.early_stopping_rounds }
    }

    /// LightGBM's own parameters. One thread and one way of building histograms: sums in one order.
    fn to_lightgbm(&self, features: &[String]) -> String {
        let directions: Vec<String> =
            features.iter().map(|f| if self.monotone { direction(f) } else { 0 }.to_string()).collect();
        let gains: Vec<String> = self.label_gain.iter().map(f64::to_string).collect();
        format!(
            "objective=lambdarank num_leaves={} num_iterations={} learning_rate={} min_data_in_leaf={} \
             lambdarank_truncation_level={} label_gain={} seed={} bagging_fraction={} bagging_freq={} \
             feature_fraction={} monotone_constraints={} deterministic=true force_row_wise=true \
             num_threads=1 verbosity=-1",
            self.num_leaves,
            self.num_trees,
            self.learning_rate,
            self.min_data_in_leaf,
            self.lambdarank_truncation_level,
            gains.join(","),
            self.seed,
            self.bagging_fraction,
            u8::from(self.bagging_fraction < 1.0),
            self.feature_fraction,
            directions.join(","),
        )
    }
}

impl Trained {
    pub fn card(&self) -> &Card {
        match self {
            Trained::Lightgbm { card, .. } | Trained::FusedOrder { card, .. } => card,
        }
    }

    /// Adds what the caller measured to the card.
    pub fn with_metrics(mut self, metrics: serde_json::Value) -> Self {
        match &mut self {
            Trained::Lightgbm { card, .. } | Trained::FusedOrder { card, .. } => card.metrics = metrics,
        }
        self
    }

    /// Writes the model at `path` (a `.txt`) and its card beside it (`.json`). The fused order has no model file: its
    /// card says all, and an older model at `path` is removed.
    ///
    /// # Errors
    /// A path that cannot be written: a data error that names it.
    pub fn save(&self, path: &Path) -> Result<()> {
        super::model::save(self, path)
    }
}

impl fmt::Display for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind, &self.why) {
            (Kind::FusedOrder, Some(why)) => writeln!(f, "no model: the fused order ranks, since {why}")?,
            (Kind::FusedOrder, None) => writeln!(f, "no model: the fused order ranks")?,
            (Kind::Lightgbm, _) => writeln!(f, "LambdaRank, {} features", self.features.len())?,
        }
        let d = &self.data;
        writeln!(
            f,
            "groups {}, of them without a positive {}; rows {}, learnt from {}",
            d.groups, d.groups_without_positive, d.rows, d.rows_trained
        )?;
        let shown: Vec<_> = self.params.label_gain.iter().take(11).map(ToString::to_string).collect();
        writeln!(f, "gains of labels from 0: {}, ...", shown.join(", "))?;
        for gain in &self.feature_gains {
            writeln!(f, "{:<16} gain {:>12.1}", gain.feature, gain.gain)?;
        }
        write!(f, "data {}", self.data.fingerprint)
    }
}
