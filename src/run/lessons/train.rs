//! Training: stores are held out to say when to stop, then all stores are learnt from.

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::agreement::AgreementReport;
use super::rows::{Rows, read};
use crate::config::setting_value;
use crate::error::{Context, Error, Result};
use crate::ranker::{Dataset, Params, Row, Stopped, Trained, train, train_stopping};
use crate::system::System;

/// What to learn from.
#[derive(Debug, Clone)]
pub struct Lessons<'a> {
    pub lake: &'a str,
    pub system: &'a System,
    /// `gold`: the lake's labels; `teacher`: the grades of its judgements; or a Parquet file with the columns of the labels
    /// table.
    pub labels: &'a str,
    /// With `teacher`: the beginning of its hash, where the lake has more than one.
    pub teacher: Option<&'a str>,
    /// A value of `requests.split`; `all`: every request.
    pub split: &'a str,
    pub without_stores: &'a [String],
    /// Share of the stores that is held out; 0: none.
    pub hold_out: f64,
}

impl Lessons<'_> {
    pub fn by_teacher(&self) -> bool {
        self.labels == "teacher"
    }
}

/// A ranker, and what its training was told and held back.
#[derive(Debug)]
pub struct Learnt {
    pub trained: Trained,
    /// The ranker of the stores that were learnt from alone, and the stores that it has not seen: what quality is measured
    /// on. None where nothing was held out.
    pub probe: Option<(Trained, Vec<String>)>,
    pub labels: LabelReport,
}

/// Where labels came from.
#[derive(Debug, Clone, Serialize)]
pub struct LabelReport {
    pub labels: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub teacher: Option<String>,
    /// A label is its grade times this, rounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels_a_grade: Option<f64>,
    /// Of the teacher with the lake's labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agreement: Option<AgreementReport>,
    /// Why no store was held out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nothing_held_out: Option<String>,
}

/// Trains a ranker for the system's features.
///
/// With stores held out, a first model learns from the others and stops when it ranks the held out ones no better; the
/// ranker then learns from all stores, with as many trees.
pub async fn train_from(lessons: &Lessons<'_>, params: &Params) -> Result<Learnt> {
    let features = &lessons.system.rank.features;
    if features.is_empty() {
        return Err(Error::usage(format!("system {} names no rank.features", lessons.system.name))
            .next("name the columns of the features table that its ranker learns from"));
    }
    if !(0.0..1.0).contains(&lessons.hold_out) {
        return Err(Error::usage("--hold-out must be from 0 to below 1"));
    }
    let Rows { stores, rows, agreement, labels_a_grade, teacher } = read(lessons).await?;
    if rows.is_empty() {
        let what = if lessons.by_teacher() { "graded turns" } else { "features" };
        return Err(Error::data(format!("no request of split {:?} has {what} to learn from", lessons.split))
            .at(lessons.lake.to_string())
            .next("run the job with --until features first, or name another --split (`all`: every request)"));
    }
    let by_teacher = lessons.by_teacher();
    let mut labels = LabelReport {
        labels: lessons.labels.to_string(),
        teacher: by_teacher.then_some(teacher),
        labels_a_grade: by_teacher.then_some(labels_a_grade),
        agreement: agreement.report(),
        nothing_held_out: None,
    };
    let mut probe = None;
    match hold_out(&stores, lessons.hold_out) {
        Ok(held) => {
            let (seen, unseen) = split(features, &stores, &rows, &held)?;
            probe = Some((train_stopping(&seen, &unseen, params)?, held));
        }
        Err(why) => labels.nothing_held_out = Some(why),
    }
    let stopped: Option<&Stopped> = probe.as_ref().and_then(|(p, _)| p.card().stopped.as_ref());
    let trees = stopped.map_or(params.num_trees, |s| s.trees);
    let trained = train(&Dataset::from_rows(features.clone(), rows)?, &Params { num_trees: trees, ..params.clone() })?;
    Ok(Learnt { trained, probe, labels })
}

/// The stores to hold out: a share of all, by the hash of their id, one at least; or why there is none.
fn hold_out(stores: &[String], share: f64) -> Result<Vec<String>, String> {
    let mut all: Vec<(Vec<u8>, &String)> = Vec::new();
    for store in stores {
        if all.last().is_none_or(|(_, last)| *last != store) {
            all.push((Sha256::digest(store).to_vec(), store));
        }
    }
    all.sort();
    all.dedup();
    if share == 0.0 {
        return Err("--hold-out is 0".into());
    }
    if all.len() < 2 {
        return Err("there is one store only".into());
    }
    let count = ((all.len() as f64 * share).round() as usize).clamp(1, all.len() - 1);
    let mut held: Vec<String> = all[..count].iter().map(|(_, store)| store.to_string()).collect();
    held.sort();
    Ok(held)
}

fn split(features: &[String], stores: &[String], rows: &[Row], held: &[String]) -> Result<(Dataset, Dataset)> {
    let part = |unseen: bool| {
        let own = stores.iter().zip(rows).filter(|(store, _)| held.contains(store) == unseen);
        Dataset::from_rows(features.to_vec(), own.map(|(_, row)| row.clone()).collect())
    };
    Ok((part(false)?, part(true)?))
}

/// Training parameters from `key=value` settings.
pub fn train_params(settings: &[String]) -> Result<Params> {
    let mut table = toml::Table::try_from(Params::default()).or_internal("parameters are plain data")?;
    for setting in settings {
        let wrong = || Error::usage(format!("--set {setting:?} is not key=value"));
        let (key, value) = setting.split_once('=').ok_or_else(wrong)?;
        table.insert(key.trim().to_string(), setting_value(value));
    }
    table.try_into().map_err(|e: toml::de::Error| Error::usage(e.to_string().trim_end().to_string()).at("--set"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_stores_is_held_out_the_same_in_any_order() {
        let names = |n: usize| (0..n).map(|i| format!("store{i}")).collect::<Vec<_>>();
        for (n, share, count) in [(10, 0.2, 2), (3, 0.2, 1), (2, 0.9, 1), (5, 0.5, 3)] {
            let held = hold_out(&names(n), share).unwrap();
            assert_eq!(held.len(), count, "{n} {share}");
            let twice: Vec<String> = names(n).into_iter().rev().chain(names(n)).collect();
            assert_eq!(hold_out(&twice, share).unwrap(), held);
        }
        assert!(hold_out(&names(1), 0.5).is_err() && hold_out(&names(9), 0.0).is_err());
    }
}
