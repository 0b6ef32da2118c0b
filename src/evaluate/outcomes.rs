//! What became of each question: the tables of a measurement, joined.

use std::collections::HashMap;

use arrow::array::{Array, RecordBatch};
use serde::Serialize;

use super::columns::{Keys, at, bytes, ints, opt_text, text, text_lists, texts_at};
use crate::error::{Error, Result};

/// The tables that a measurement reads; pools and slates are those of one system.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tables<'a> {
    pub requests: &'a [RecordBatch],
    pub labels: &'a [RecordBatch],
    pub turns: &'a [RecordBatch],
    pub pools: &'a [RecordBatch],
    pub slates: &'a [RecordBatch],
}

/// What became of one question that has evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub tenant_id: String,
    pub store_id: String,
    pub request_id: String,
    pub split: Option<String>,
    /// Sessions that the evidence spans, at least 1.
    pub kappa: usize,
    /// All evidence is in the pool.
    pub in_pool: bool,
    /// All evidence is in the slate.
    pub in_slate: bool,
}

/// What in the tables does not fit together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Warnings {
    /// Labels whose turn is not in its store: dropped.
    pub labels_without_turn: usize,
    /// Labels of a request that is not there: dropped.
    pub labels_without_request: usize,
    /// Slates of a request that is not there: dropped.
    pub slates_without_request: usize,
    /// Questions that are complete in the slate but not in the pool: pool and slate are of different runs, and `slate`
    /// is not `r_pool * r_rank`.
    pub complete_outside_pool: usize,
}

/// Slates by status.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Statuses {
    pub ok: usize,
    pub empty: usize,
    pub unknown_store: usize,
    pub degraded: usize,
}

impl Statuses {
    fn one(status: &str) -> Result<Self> {
        let mut one = Statuses::default();
        match status {
            "ok" => one.ok = 1,
            "empty" => one.empty = 1,
            "unknown_store" => one.unknown_store = 1,
            "degraded" => one.degraded = 1,
            other => return Err(Error::data(format!("status {other:?} is not known"))),
        }
        Ok(one)
    }

    pub fn add(&mut self, other: &Statuses) {
        self.ok += other.ok;
        self.empty += other.empty;
        self.unknown_store += other.unknown_store;
        self.degraded += other.degraded;
    }
}

/// Sums over the slates of one split.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SlateSums {
    pub slates: usize,
    pub tokens: i64,
    pub budget_tokens: i64,
    pub statuses: Statuses,
}

/// A request on its way through the join.
#[derive(Debug, Default)]
pub struct Question {
    pub split: Option<String>,
    key: (String, String, String),
    /// Evidence by content, each once; contents are numbered within the store.
    evidence: Vec<u32>,
    /// Sessions of the evidence, each once; numbered within the store.
    sessions: Vec<u32>,
    in_pool: Vec<bool>,
    in_slate: Vec<bool>,
    /// What its slate holds, if there is one.
    pub slate: Option<SlateSums>,
}

impl Question {
    pub fn outcome(&self) -> Option<Outcome> {
        self.has_evidence().then(|| Outcome {
            tenant_id: self.key.0.clone(),
            store_id: self.key.1.clone(),
            request_id: self.key.2.clone(),
            split: self.split.clone(),
            kappa: self.sessions.len(),
            in_pool: self.in_pool.iter().all(|p| *p),
            in_slate: self.in_slate.iter().all(|p| *p),
        })
    }

    pub fn has_evidence(&self) -> bool {
        !self.evidence.is_empty()
    }

    /// Adds a piece of evidence.
    fn expect(&mut self, turn: Turn) {
        if !self.evidence.contains(&turn.content) {
            self.evidence.push(turn.content);
            self.in_pool.push(false);
            self.in_slate.push(false);
        }
        if !self.sessions.contains(&turn.session) {
            self.sessions.push(turn.session);
        }
    }

    /// Notes that a content is in the pool or in the slate, if it is evidence.
    fn mark(&mut self, content: u32, of_slate: bool) {
        if let Some(i) = self.evidence.iter().position(|e| *e == content) {
            if of_slate { self.in_slate[i] = true } else { self.in_pool[i] = true }
        }
    }
}

/// All requests, with their evidence looked up in pools and slates.
pub fn questions(tables: &Tables) -> Result<(Vec<Question>, Warnings)> {
    let mut join = Join::default();
    join.read_requests(tables.requests).map_err(|e| e.at("requests"))?;
    join.read_labels(tables.labels).map_err(|e| e.at("labels"))?;
    join.read_turns(tables.turns).map_err(|e| e.at("turns"))?;
    join.set_evidence();
    join.read_pools(tables.pools).map_err(|e| e.at("pools"))?;
    join.read_slates(tables.slates).map_err(|e| e.at("slates"))?;
    Ok((join.questions, join.warnings))
}

#[derive(Default)]
struct Join {
    questions: Vec<Question>,
    stores: Stores,
    warnings: Warnings,
}

/// What is known of a store that has requests.
#[derive(Default)]
struct Store {
    /// Request id -> question.
    requests: HashMap<String, usize>,
    /// Labelled turn -> the questions whose evidence it is.
    labels: HashMap<String, Vec<usize>>,
    /// Turns that are evidence, and their duplicates.
    turns: HashMap<String, Turn>,
    /// Contents of evidence, by hash.
    contents: HashMap<Vec<u8>, u32>,
    /// Sessions of evidence.
    sessions: HashMap<String, u32>,
}

#[derive(Clone, Copy)]
struct Turn {
    content: u32,
    session: u32,
}

/// Stores by tenant and id. Rows of a store mostly stand together, so the last one found is tried first.
#[derive(Default)]
struct Stores {
    all: Vec<Store>,
    by_key: HashMap<(String, String), usize>,
    last: Option<(String, String, Option<usize>)>,
}

impl Stores {
    fn get(&mut self, tenant: &str, store: &str) -> Option<&mut Store> {
        let found = match &self.last {
            Some((t, s, found)) if t == tenant && s == store => *found,
            _ => {
                let key = (tenant.to_string(), store.to_string());
                let found = self.by_key.get(&key).copied();
                self.last = Some((key.0, key.1, found));
                found
            }
        };
        found.map(|i| &mut self.all[i])
    }

    fn get_or_insert(&mut self, tenant: &str, store: &str) -> &mut Store {
        let i = *self.by_key.entry((tenant.into(), store.into())).or_insert_with(|| {
            self.all.push(Store::default());
            self.all.len() - 1
        });
        &mut self.all[i]
    }
}

impl Join {
    fn read_requests(&mut self, batches: &[RecordBatch]) -> Result<()> {
        for batch in batches {
            let (keys, split) = (Keys::of(batch)?, opt_text(batch, "split")?);
            for row in 0..batch.num_rows() {
                let (tenant, store_id, request) = keys.at(row);
                let store = self.stores.get_or_insert(tenant, store_id);
                if store.requests.insert(request.into(), self.questions.len()).is_some() {
                    return Err(Error::data(format!("request {request:?} of store {store_id:?} is there twice")));
                }
                self.questions.push(Question {
                    split: at(&split, row).map(str::to_string),
                    key: (tenant.into(), store_id.into(), request.into()),
                    ..Question::default()
                });
            }
        }
        Ok(())
    }

    fn read_labels(&mut self, batches: &[RecordBatch]) -> Result<()> {
        for batch in batches {
            let (keys, turn, relevance) = (Keys::of(batch)?, text(batch, "turn_id")?, ints(batch, "relevance")?);
            for row in (0..batch.num_rows()).filter(|r| relevance.value(*r) > 0) {
                let (tenant, store, request) = keys.at(row);
                let found = self.stores.get(tenant, store).and_then(|s| Some((*s.requests.get(request)?, s)));
                match found {
                    Some((question, store)) => {
                        store.labels.entry(turn.value(row).into()).or_default().push(question);
                    }
                    None => self.warnings.labels_without_request += 1,
                }
            }
        }
        Ok(())
    }

    /// Two passes: what the evidence says and where, then which other turns say the same.
    fn read_turns(&mut self, batches: &[RecordBatch]) -> Result<()> {
        self.each_turn(batches, |store, turn, session, hash| {
            if !store.labels.contains_key(turn) {
                return;
            }
            let next = store.turns.len() as u32;
            let content = match hash {
                Some(hash) => *store.contents.entry(hash.to_vec()).or_insert(next),
                None => next,
            };
            let next = store.sessions.len() as u32;
            let session = *store.sessions.entry(session.to_string()).or_insert(next);
            store.turns.insert(turn.to_string(), Turn { content, session });
        })?;
        self.each_turn(batches, |store, turn, _, hash| {
            // A duplicate's session is not asked for: only labelled turns count for kappa.
            if let Some(content) = hash.and_then(|h| store.contents.get(h)) {
                store.turns.entry(turn.to_string()).or_insert(Turn { content: *content, session: 0 });
            }
        })
    }

    /// Hands over each turn of a store that has requests: store, turn, session, content hash.
    fn each_turn(
        &mut self,
        batches: &[RecordBatch],
        mut see: impl FnMut(&mut Store, &str, &str, Option<&[u8]>),
    ) -> Result<()> {
        for batch in batches {
            let (tenant, store) = (text(batch, "tenant_id")?, text(batch, "store_id")?);
            let (turn, session) = (text(batch, "turn_id")?, text(batch, "session_id")?);
            let hash = bytes(batch, "content_hash")?;
            for row in 0..batch.num_rows() {
                let Some(store) = self.stores.get(tenant.value(row), store.value(row)) else { continue };
                let hash = hash.is_valid(row).then(|| hash.value(row));
                see(store, turn.value(row), session.value(row), hash);
            }
        }
        Ok(())
    }

    fn set_evidence(&mut self) {
        for store in &self.stores.all {
            for (turn, questions) in &store.labels {
                match store.turns.get(turn) {
                    Some(turn) => questions.iter().for_each(|q| self.questions[*q].expect(*turn)),
                    None => self.warnings.labels_without_turn += questions.len(),
                }
            }
        }
    }

    fn read_pools(&mut self, batches: &[RecordBatch]) -> Result<()> {
        for batch in batches {
            let (keys, turn) = (Keys::of(batch)?, text(batch, "turn_id")?);
            for row in 0..batch.num_rows() {
                let (tenant, store, request) = keys.at(row);
                let Some(store) = self.stores.get(tenant, store) else { continue };
                // Few turns are evidence for anyone: looked up first.
                if let Some(turn) = store.turns.get(turn.value(row))
                    && let Some(question) = store.requests.get(request)
                {
                    self.questions[*question].mark(turn.content, false);
                }
            }
        }
        Ok(())
    }

    fn read_slates(&mut self, batches: &[RecordBatch]) -> Result<()> {
        for batch in batches {
            let (keys, status, turns) = (Keys::of(batch)?, text(batch, "status")?, text_lists(batch, "turn_ids")?);
            let (tokens, budget) = (ints(batch, "tokens")?, ints(batch, "budget_tokens")?);
            for row in 0..batch.num_rows() {
                let (tenant, store_id, request) = keys.at(row);
                let found = self.stores.get(tenant, store_id).and_then(|s| Some((*s.requests.get(request)?, s)));
                let Some((question, store)) = found else {
                    self.warnings.slates_without_request += 1;
                    continue;
                };
                let question = &mut self.questions[question];
                let place = || format!("request {request:?} of store {store_id:?}");
                if question.slate.is_some() {
                    return Err(Error::data(format!("{} has two slates", place())).next("measure one system at a time"));
                }
                let statuses = Statuses::one(status.value(row)).map_err(|e| e.at(place()))?;
                let (tokens, budget_tokens) = (tokens.value(row), budget.value(row));
                question.slate = Some(SlateSums { slates: 1, tokens, budget_tokens, statuses });
                for turn in texts_at(&turns, row).filter_map(|t| store.turns.get(t)) {
                    question.mark(turn.content, true);
                }
            }
        }
        Ok(())
    }
}
