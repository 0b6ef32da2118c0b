//! A ranker on disk and in memory: LightGBM's text and the card beside it.

use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::check;
use super::ffi::Pool;
use super::train::{Card, Kind, Trained};
use super::trees::Trees;
use crate::error::{Context, Error, Result};
use crate::schema::FEATURES_VERSION;
use crate::system::hex;

/// The column that the fused order ranks by.
const POOL_POSITION: &str = "pool_position";

/// A loaded ranker: many threads may predict with it at the same time.
pub struct Ranker {
    inputs: Vec<String>,
    form: Form,
    hash: String,
    card: Option<Card>,
}

enum Form {
    /// With its trees, where all of the model is known to them: the same scores, much faster.
    Lightgbm(Pool, Option<Trees>),
    FusedOrder {
        why: String,
    },
}

impl Ranker {
    /// Loads the model at `path`, or, where its card says `fused_order`, none.
    ///
    /// `expected_features` are those that the system names, in its order.
    ///
    /// # Errors
    /// A missing, truncated or garbled file, a card that belongs to another model, or features other than the
    /// system's (a data error that names both lists).
    pub fn load(path: &Path, expected_features: &[String]) -> Result<Ranker> {
        read(path, expected_features).map_err(|e| e.at(format!("ranker {}", path.display())))
    }

    /// A ranker that was just trained.
    ///
    /// # Errors
    /// As [`Ranker::load`], of features.
    pub fn of(trained: &Trained, expected_features: &[String]) -> Result<Ranker> {
        match trained {
            Trained::Lightgbm { text, card } => lightgbm(text.clone(), expected_features, Some(card.clone())),
            Trained::FusedOrder { card, .. } => fused_order(card, expected_features),
        }
    }

    /// Columns of the features table that [`Ranker::predict`] takes, in order: the model's features, or the pool
    /// position alone where there is no model.
    pub fn inputs(&self) -> &[String] {
        &self.inputs
    }

    /// Why there is no model and the fused order stands in; none: there is one.
    pub fn fused_order(&self) -> Option<&str> {
        match &self.form {
            Form::Lightgbm(..) => None,
            Form::FusedOrder { why } => Some(why),
        }
    }

    /// SHA-256 of the model's text in hex: rankings of one hash are equal.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// What the model was trained on; none if the file came without a card.
    pub fn card(&self) -> Option<&Card> {
        self.card.as_ref()
    }

    /// One score a row, larger is better; computed on the calling thread.
    ///
    /// `rows` is row-major with `columns` values a row, those of [`Ranker::inputs`]; NaN: missing.
    ///
    /// # Errors
    /// An internal error if the values do not make whole rows of the model's inputs.
    pub fn predict(&self, rows: &[f64], columns: usize) -> Result<Vec<f64>> {
        if columns != self.inputs.len() || !rows.len().is_multiple_of(columns) {
            return Err(Error::internal(format!(
                "{} values in rows of {columns} for a ranker of {} inputs",
                rows.len(),
                self.inputs.len()
            )));
        }
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        match &self.form {
            Form::Lightgbm(_, Some(trees)) => Ok(trees.predict(rows, columns)),
            Form::Lightgbm(pool, None) => pool.predict(rows, columns),
            Form::FusedOrder { .. } => Ok(rows.iter().map(|position| -position).collect()),
        }
    }
}

impl fmt::Debug for Ranker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ranker").field("inputs", &self.inputs).field("hash", &self.hash).finish()
    }
}

/// SHA-256 in hex.
pub(super) fn sha256(text: &str) -> String {
    hex(&Sha256::digest(text))
}

fn read(path: &Path, expected: &[String]) -> Result<Ranker> {
    let card = read_card(&card_path(path))?;
    if let Some(version) = card.as_ref().and_then(|c| c.features_version).filter(|v| *v != FEATURES_VERSION) {
        return Err(Error::data(format!(
            "the model was trained on features of version {version}; this program makes version {FEATURES_VERSION}"
        ))
        .next("train it again on the features of this version"));
    }
    if let Some(card) = card.as_ref().filter(|c| c.kind == Kind::FusedOrder) {
        return fused_order(card, expected);
    }
    let bytes = std::fs::read(path).map_err(|e| {
        Error::data("cannot be read").source(e).next("train one with `memslate train`, or name another in rank.ranker")
    })?;
    let text = String::from_utf8(bytes).or_data("not a LightGBM model: not UTF-8 text")?;
    let hash = sha256(&text);
    if let Some(said) = card.as_ref().and_then(|c| c.model_sha256.as_ref())
        && *said != hash
    {
        let next = "train again; or, if the model was replaced on purpose, remove the card";
        let at = card_path(path);
        return Err(Error::data(format!("the card {} belongs to another model", at.display())).next(next));
    }
    lightgbm(text, expected, card)
}

fn lightgbm(text: String, expected: &[String], card: Option<Card>) -> Result<Ranker> {
    let names = check::features(&text)?;
    same_features(&names, expected)?;
    let (trees, hash) = (Trees::read(&text), sha256(&text));
    Ok(Ranker { inputs: names, form: Form::Lightgbm(Pool::load(text)?, trees), hash, card })
}

/// No model: the pool position ranks.
fn fused_order(card: &Card, expected: &[String]) -> Result<Ranker> {
    same_features(&card.features, expected)?;
    let why = card.why.clone().unwrap_or_default();
    Ok(Ranker {
        inputs: vec![POOL_POSITION.into()],
        form: Form::FusedOrder { why },
        hash: sha256("fused_order"),
        card: Some(card.clone()),
    })
}

/// The card in this file.
pub fn card(path: &Path) -> Result<Card> {
    read_card(path)?.ok_or_else(|| Error::data("there is no such card").at(path.display().to_string()))
}

fn same_features(model: &[String], expected: &[String]) -> Result<()> {
    if model == expected {
        return Ok(());
    }
    Err(Error::data(format!("the model was trained on {}; the system names {}", model.join(", "), expected.join(", ")))
        .next("write the model's features, in its order, as rank.features, or train again"))
}

/// The card lies beside the model: `lite.txt` has `lite.json`.
fn card_path(path: &Path) -> PathBuf {
    path.with_extension("json")
}

fn read_card(path: &Path) -> Result<Option<Card>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::data(format!("the card {} cannot be read", path.display())).source(e)),
    };
    serde_json::from_str(&text).map(Some).or_data(format!("the card {} cannot be read", path.display()))
}

/// Each file is whole or not there; a reader that meets the new model with the old card is told so by its hash.
pub(super) fn save(trained: &Trained, path: &Path) -> Result<()> {
    if card_path(path) == path {
        return Err(Error::usage("a model's file may not end in .json: its card does").at(path.display().to_string()));
    }
    let mut card = serde_json::to_string_pretty(trained.card()).or_internal("the ranker's card")?;
    card.push('\n');
    if let Trained::Lightgbm { text, .. } = trained {
        write_whole(path, text)?;
    }
    write_whole(&card_path(path), &card)?;
    if let Trained::FusedOrder { .. } = trained {
        match std::fs::remove_file(path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::data("cannot be removed").source(e).at(path.display().to_string()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Writes beside the place, then renames.
fn write_whole(path: &Path, text: &str) -> Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".tmp-{}", std::process::id()));
    let beside = path.with_file_name(name);
    let write = || {
        let mut file = std::fs::File::create(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    };
    write().map_err(|e| {
        // The error is that of the writing; what is left beside it is only tidied.
        let _ = std::fs::remove_file(&beside);
        Error::data("cannot be written").source(e).at(path.display().to_string())
    })
}
