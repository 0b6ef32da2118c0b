//! A memory design as data: one choice for each axis of the design space (recall, score, rank, slate).
//!
//! A system is a TOML file; every setting that is left out has the default written here. The axes are independent of
//! each other: any recall goes with any ranking and any slate.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// One point of the design space.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct System {
    /// The file's name without its ending.
    #[serde(skip)]
    pub name: String,
    #[serde(default)]
    pub recall: Recall,
    #[serde(default)]
    pub score: Score,
    #[serde(default)]
    pub rank: Rank,
    #[serde(default)]
    pub slate: Slate,
}

/// Candidate generation: ranked lists over one store's turns, fused by weighted reciprocal ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Recall {
    /// Turns in a request's pool; 0: the whole store.
    pub pool_size: usize,
    /// A list gives a turn `weight / (rrf_k + rank)`, rank from 1.
    pub rrf_k: f64,
    /// How much of each list is fused; 0: all of it.
    pub depth: usize,
    /// Of turns with equal content, only the best placed takes a slot.
    pub deduplicate: bool,
    pub lists: Vec<List>,
}

/// A recall list with its name and its weight in the fusion. Lists of one kind may stand side by side, each under a
/// name of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum List {
    /// Okapi BM25 over words.
    Bm25 {
        /// See [`List::name`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        #[serde(default = "one")]
        weight: f64,
        #[serde(default = "default_k1")]
        k1: f64,
        #[serde(default = "default_b")]
        b: f64,
        /// Snowball stems in the store's language.
        #[serde(default = "yes")]
        stem: bool,
        #[serde(default)]
        tokens: Tokens,
    },
    /// Cosine of the encoder's vectors.
    Dense {
        /// See [`List::name`].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        #[serde(default = "one")]
        weight: f64,
    },
}

/// What BM25 counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tokens {
    /// Unicode words, lower-cased; bigrams for scripts without spaces.
    #[default]
    Unicode,
    /// Runs of `a-z0-9` in the lower-cased text, as many reference programs do it.
    Ascii,
}

/// Scoring of (question, turn) pairs by a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Score {
    pub method: ScoreMethod,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScoreMethod {
    #[default]
    None,
    CrossEncoder,
}

/// The order in which a request's pool is filled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rank {
    pub method: RankMethod,
    /// With `lightgbm`: the model file, relative to the system's file.
    pub ranker: Option<String>,
    /// With `lightgbm`: columns of the features table, in the model's order.
    pub features: Vec<String>,
    /// With `column`: the column of the features table to order by.
    pub column: Option<String>,
    /// With `column`: the largest value first.
    pub descending: bool,
    /// What settles equal scores.
    #[serde(skip_serializing_if = "Ties::are_by_turn")]
    pub ties: Ties,
}

/// Which of two turns with equal scores comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ties {
    /// The earlier turn of the store.
    #[default]
    Turn,
    /// The one that the fused recall lists place first.
    Fused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RankMethod {
    /// By one column of the features.
    #[default]
    Column,
    /// By a LightGBM model.
    Lightgbm,
}

/// How a ranking becomes a slate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Slate {
    pub rendering: Rendering,
    /// Cuts the ranking at its largest gap before the fill (Adaptive-k).
    pub gap_cut: Option<GapCut>,
    /// The zone in which headers show times, in minutes east of UTC: "yesterday" is told from the local date.
    #[serde(skip_serializing_if = "is_utc")]
    pub zone_minutes: i32,
}

/// No zone of a reader, real or written, is further from UTC.
const MAX_ZONE_MINUTES: i32 = 18 * 60;

/// How the reader sees the turns. The budget is on the rendered text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rendering {
    /// Grouped by session, sessions in date order, each line with its role.
    #[default]
    Sessions,
    /// Turns under dated session headers, lines as they are (speakers are named in the content).
    Dated,
}

/// Where Adaptive-k looks for the largest gap in the scores, sorted down.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GapCut {
    /// Fraction of the list at its head in which no cut is made.
    pub head: f64,
    /// Fraction at its tail in which no cut is made.
    pub tail: f64,
    /// Items kept beyond the cut.
    pub extra: usize,
}

impl Default for Recall {
    fn default() -> Self {
        Recall {
            pool_size: 128,
            rrf_k: 60.0,
            depth: 0,
            deduplicate: true,
            lists: vec![
                List::Bm25 {
                    name: None,
                    weight: 1.0,
                    k1: default_k1(),
                    b: default_b(),
                    stem: true,
                    tokens: Tokens::Unicode,
                },
                List::Dense { name: None, weight: 1.0 },
            ],
        }
    }
}

impl Default for Rank {
    /// The fused order.
    fn default() -> Self {
        Rank {
            method: RankMethod::Column,
            ranker: None,
            features: Vec::new(),
            column: Some("pool_position".into()),
            descending: false,
            ties: Ties::Turn,
        }
    }
}

impl Default for Slate {
    fn default() -> Self {
        Slate { rendering: Rendering::Sessions, gap_cut: None, zone_minutes: 0 }
    }
}

impl Default for GapCut {
    fn default() -> Self {
        GapCut { head: 0.0, tail: 0.1, extra: 5 }
    }
}

fn one() -> f64 {
    1.0
}
fn yes() -> bool {
    true
}
fn is_utc(zone_minutes: &i32) -> bool {
    *zone_minutes == 0
}
fn default_k1() -> f64 {
    0.9
}
fn default_b() -> f64 {
    0.4
}

impl Ties {
    /// As a SELECT's `$ties`.
    pub fn name(self) -> &'static str {
        match self {
            Ties::Turn => "turn",
            Ties::Fused => "fused",
        }
    }

    fn are_by_turn(&self) -> bool {
        *self == Ties::Turn
    }
}

impl System {
    /// Whether the ranking looks at a column of the features.
    pub fn ranks_by(&self, column: &str) -> bool {
        match self.rank.method {
            RankMethod::Column => self.rank.column.as_deref() == Some(column),
            RankMethod::Lightgbm => self.rank.features.iter().any(|f| f == column),
        }
    }
}

impl List {
    /// The name under which the list stands in `pools.lists`: the given one, else the kind.
    pub fn name(&self) -> &str {
        let (given, kind) = match self {
            List::Bm25 { name, .. } => (name, "bm25"),
            List::Dense { name, .. } => (name, "dense"),
        };
        given.as_deref().unwrap_or(kind)
    }

    pub fn weight(&self) -> f64 {
        match self {
            List::Bm25 { weight, .. } | List::Dense { weight, .. } => *weight,
        }
    }
}

impl System {
    /// Reads a system from its TOML text and checks that its parts fit together.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let mut system: System = toml::from_str(text)
            .map_err(|e| Error::usage(e.to_string().trim_end().to_string()).at(format!("system {name}")))?;
        system.name = name.to_string();
        system.check().map_err(|e| e.at(format!("system {name}")))?;
        Ok(system)
    }

    fn check(&self) -> Result<()> {
        let recall = &self.recall;
        if recall.lists.is_empty() {
            return Err(
                Error::usage("recall.lists is empty").next("name at least one list, such as { kind = \"dense\" }")
            );
        }
        for (i, list) in recall.lists.iter().enumerate() {
            let word = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '_');
            if list.name().is_empty() || !list.name().chars().all(word) {
                return Err(Error::usage(format!("recall.lists has the name {:?}", list.name()))
                    .next("a list's name is of the characters a-z, 0-9 and _"));
            }
            if recall.lists[..i].iter().any(|l| l.name() == list.name()) {
                return Err(Error::usage(format!("recall.lists names {:?} twice", list.name()))
                    .next("give each list a `name` of its own; without one it is named after its kind"));
            }
            if !(list.weight().is_finite() && list.weight() > 0.0) {
                return Err(Error::usage(format!("the weight of list {:?} must be above 0", list.name())));
            }
            if let List::Bm25 { k1, b, .. } = list
                && !(*k1 >= 0.0 && k1.is_finite() && (0.0..=1.0).contains(b))
            {
                return Err(Error::usage("BM25 needs k1 >= 0 and b between 0 and 1"));
            }
        }
        if !(recall.rrf_k.is_finite() && recall.rrf_k >= 0.0) {
            return Err(Error::usage("recall.rrf_k must be 0 or more"));
        }
        match self.rank.method {
            RankMethod::Lightgbm => {
                if self.rank.ranker.is_none() {
                    return Err(Error::usage("rank.method is lightgbm, but rank.ranker names no model file"));
                }
                if self.rank.features.is_empty() {
                    return Err(Error::usage("rank.method is lightgbm, but rank.features is empty"));
                }
                self.rank.features.iter().try_for_each(|f| feature(f))?;
            }
            RankMethod::Column => match &self.rank.column {
                Some(column) => feature(column)?,
                None => return Err(Error::usage("rank.method is column, but rank.column is not set")),
            },
        }
        if self.rank.features.iter().any(|f| f == "ce_prob") && self.score.method == ScoreMethod::None {
            return Err(Error::usage("the feature ce_prob needs score.method = \"cross_encoder\""));
        }
        if let Some(cut) = self.slate.gap_cut
            && !((0.0..1.0).contains(&cut.head) && (0.0..1.0).contains(&cut.tail))
        {
            return Err(Error::usage("slate.gap_cut needs head and tail from 0 to below 1"));
        }
        let zone = self.slate.zone_minutes;
        if !(-MAX_ZONE_MINUTES..=MAX_ZONE_MINUTES).contains(&zone) {
            return Err(Error::usage(format!("slate.zone_minutes is {zone}, more than 18 hours from UTC"))
                .next("write minutes east of UTC from -1080 to 1080, such as 540 for +09:00"));
        }
        Ok(())
    }

    /// SHA-256 of all choices, in hex; comments, order and defaults in the file do not change it.
    pub fn hash(&self) -> String {
        hex(&Sha256::digest(serde_json::to_vec(self).expect("a system is plain data")))
    }

    /// The name of the system's partitions: its file's name and 8 hex digits of its hash.
    pub fn partition(&self) -> String {
        format!("{}-{}", self.name, &self.hash()[..8])
    }
}

/// Columns of the features table that a ranking may use.
pub fn feature_columns() -> impl Iterator<Item = &'static str> {
    let skip = ["tenant_id", "store_id", "request_id", "turn_id", "turn_ordinal", "store_fingerprint"];
    crate::schema::FEATURES.columns.iter().map(|c| c.name).filter(move |n| !skip.contains(n))
}

fn feature(name: &str) -> Result<()> {
    if feature_columns().any(|c| c == name) {
        return Ok(());
    }
    let known: Vec<_> = feature_columns().collect();
    Err(Error::usage(format!("there is no feature {name:?}")).next(format!("known features: {}", known.join(", "))))
}

/// Lower-case hex digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests;
