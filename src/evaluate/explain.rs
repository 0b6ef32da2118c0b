//! Puts together, from the tables of one request, why its slate is what it is.

use std::collections::{HashMap, HashSet};

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Float64Type, Int32Type};

use super::columns::{Keys, at, doubles, ints, opt_text, recall_lists, text, text_lists, texts_at, times};
use super::explanation::{Explanation, ListPlace, Missed, PooledTurn};
use super::walk::{Fate, Filled, TurnLine, walk};
use crate::error::{Error, Result};
use crate::system::feature_columns;

/// The tables of one request. `requests` holds its row alone; rows of other requests and stores in the other tables are
/// passed over.
#[derive(Debug, Clone, Copy, Default)]
pub struct Inputs<'a> {
    pub requests: &'a [RecordBatch],
    /// The store's turns.
    pub turns: &'a [RecordBatch],
    pub labels: &'a [RecordBatch],
    pub pools: &'a [RecordBatch],
    pub features: &'a [RecordBatch],
    pub rankings: &'a [RecordBatch],
    pub slates: &'a [RecordBatch],
    /// Turns with text, at the ranking's head, that a cut left; none: the system does not cut.
    pub kept: Option<usize>,
    /// Where turns that are not in the pool stand in the recall lists, by turn id, if that is known.
    pub beyond_pool: Option<&'a HashMap<String, Vec<ListPlace>>>,
}

/// Explains one slate. `cost(turn, session_first)` is what adding the turn's line to the slate costs in rendered tokens,
/// with its session's header if `session_first`.
///
/// Fails where `requests` is not one row, on a missing column, and on what `cost` returns.
pub fn explain(inputs: &Inputs, mut cost: impl FnMut(&TurnLine, bool) -> Result<i64>) -> Result<Explanation> {
    let request = Request::read(inputs.requests).map_err(|e| e.at("requests"))?;
    let turns = read_turns(inputs.turns, &request).map_err(|e| e.at("turns"))?;
    let labels = read_labels(inputs.labels, &request).map_err(|e| e.at("labels"))?;
    let slate = read_slate(inputs.slates, &request).map_err(|e| e.at("slates"))?;
    let mut rows = Rows::default();
    rows.read_pools(inputs.pools, &request).map_err(|e| e.at("pools"))?;
    rows.read_features(inputs.features, &request).map_err(|e| e.at("features"))?;
    rows.read_rankings(inputs.rankings, &request).map_err(|e| e.at("rankings"))?;
    let mut pooled = rows.sorted();

    let mut notes = Vec::new();
    set_fates(&mut pooled, &turns, slate.as_ref(), inputs.kept, &mut cost, &mut notes)?;
    let relevance = relevance_by_text(&labels, &turns);
    for row in &mut pooled {
        let Some(turn) = turns.get(&row.turn_id) else { continue };
        row.session_id = Some(turn.session_id.clone());
        row.spoken_at = turn.spoken_at;
        row.content = turn.content.clone();
        row.line_tokens = if turn.is_blank() { None } else { Some(cost(turn, false)?) };
        let of_text = turn.content.as_deref().and_then(|c| relevance.get(c).copied());
        row.relevance = labels.iter().find(|(id, _)| *id == row.turn_id).map(|(_, r)| *r).or(of_text);
    }
    let reference_at = slate.as_ref().and_then(|s| s.reference_at).or(request.asked_at);
    Ok(Explanation {
        missed: missed(&labels, &pooled, &turns, reference_at, inputs.beyond_pool),
        tenant_id: request.tenant,
        store_id: request.store,
        request_id: request.request,
        question: request.question,
        reference_at,
        status: slate.as_ref().map(|s| s.status.clone()),
        budget_tokens: slate.as_ref().map(|s| s.budget_tokens),
        tokens: slate.as_ref().map(|s| s.tokens),
        turns: pooled,
        notes,
    })
}

struct Request {
    tenant: String,
    store: String,
    request: String,
    question: String,
    asked_at: Option<i64>,
}

impl Request {
    fn read(batches: &[RecordBatch]) -> Result<Self> {
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let Some(batch) = batches.iter().find(|b| b.num_rows() > 0) else {
            return Err(Error::data("the request is not there"));
        };
        if rows > 1 {
            return Err(Error::data(format!("{rows} requests match; one is explained at a time")));
        }
        let (keys, asked_at) = (Keys::of(batch)?, times(batch, "asked_at")?);
        let (tenant, store, request) = keys.at(0);
        Ok(Request {
            tenant: tenant.into(),
            store: store.into(),
            request: request.into(),
            question: text(batch, "question")?.value(0).into(),
            asked_at: asked_at.is_valid(0).then(|| asked_at.value(0)),
        })
    }

    /// The rows of a table that are this request's.
    fn rows(&self, batch: &RecordBatch) -> Result<Vec<usize>> {
        let keys = Keys::of(batch)?;
        let own = (self.tenant.as_str(), self.store.as_str(), self.request.as_str());
        Ok((0..batch.num_rows()).filter(|row| keys.at(*row) == own).collect())
    }
}

fn read_turns(batches: &[RecordBatch], request: &Request) -> Result<HashMap<String, TurnLine>> {
    let mut turns: HashMap<String, TurnLine> = HashMap::new();
    let mut started: HashMap<i64, Option<i64>> = HashMap::new();
    for batch in batches {
        let (tenant, store, id) = (text(batch, "tenant_id")?, text(batch, "store_id")?, text(batch, "turn_id")?);
        let (session, session_ordinal) = (text(batch, "session_id")?, ints(batch, "session_ordinal")?);
        let (ordinal, tokens, spoken_at) =
            (ints(batch, "turn_ordinal")?, ints(batch, "tokens")?, times(batch, "spoken_at")?);
        let (role, speaker, content) = (text(batch, "role")?, opt_text(batch, "speaker")?, opt_text(batch, "content")?);
        for row in 0..batch.num_rows() {
            if (tenant.value(row), store.value(row)) != (request.tenant.as_str(), request.store.as_str()) {
                continue;
            }
            let turn = TurnLine {
                turn_id: id.value(row).into(),
                turn_ordinal: ordinal.value(row),
                session_id: session.value(row).into(),
                session_ordinal: session_ordinal.value(row),
                session_started_at: None,
                role: role.value(row).into(),
                speaker: at(&speaker, row).map(str::to_string),
                content: at(&content, row).map(str::to_string),
                spoken_at: spoken_at.is_valid(row).then(|| spoken_at.value(row)),
                tokens: tokens.value(row),
            };
            let started = started.entry(turn.session_ordinal).or_insert(turn.spoken_at);
            *started = [*started, turn.spoken_at].into_iter().flatten().min();
            turns.insert(turn.turn_id.clone(), turn);
        }
    }
    for turn in turns.values_mut() {
        turn.session_started_at = started[&turn.session_ordinal];
    }
    Ok(turns)
}

/// Labelled turns with their relevance, in the order of the table.
fn read_labels(batches: &[RecordBatch], request: &Request) -> Result<Vec<(String, i64)>> {
    let mut labels = Vec::new();
    for batch in batches {
        let (turn, relevance) = (text(batch, "turn_id")?, ints(batch, "relevance")?);
        labels.extend(request.rows(batch)?.into_iter().map(|r| (turn.value(r).to_string(), relevance.value(r))));
    }
    Ok(labels)
}

struct StoredSlate {
    status: String,
    turn_ids: Vec<String>,
    tokens: i64,
    budget_tokens: i64,
    reference_at: Option<i64>,
}

fn read_slate(batches: &[RecordBatch], request: &Request) -> Result<Option<StoredSlate>> {
    let mut found = None;
    for batch in batches {
        for row in request.rows(batch)? {
            let reference_at = times(batch, "reference_at")?;
            let slate = StoredSlate {
                status: text(batch, "status")?.value(row).into(),
                turn_ids: texts_at(&text_lists(batch, "turn_ids")?, row).map(str::to_string).collect(),
                tokens: ints(batch, "tokens")?.value(row),
                budget_tokens: ints(batch, "budget_tokens")?.value(row),
                reference_at: reference_at.is_valid(row).then(|| reference_at.value(row)),
            };
            if found.replace(slate).is_some() {
                return Err(Error::data("the request has two slates").next("explain one system at a time"));
            }
        }
    }
    Ok(found)
}

/// The rows of the explanation while they are put together.
#[derive(Default)]
struct Rows {
    rows: Vec<PooledTurn>,
    by_turn: HashMap<String, usize>,
}

impl Rows {
    fn of(&mut self, turn_id: &str, turn_ordinal: i64) -> &mut PooledTurn {
        let rows = &mut self.rows;
        let i = *self.by_turn.entry(turn_id.to_string()).or_insert_with(|| {
            rows.push(PooledTurn { turn_id: turn_id.into(), turn_ordinal, ..PooledTurn::default() });
            rows.len() - 1
        });
        &mut self.rows[i]
    }

    fn read_pools(&mut self, batches: &[RecordBatch], request: &Request) -> Result<()> {
        for batch in batches {
            let (turn, ordinal) = (text(batch, "turn_id")?, ints(batch, "turn_ordinal")?);
            let (position, rrf) = (ints(batch, "pool_position")?, doubles(batch, "rrf_score")?);
            let lists = recall_lists(batch, "lists")?;
            for row in request.rows(batch)? {
                let pooled = self.of(turn.value(row), ordinal.value(row));
                pooled.pool_position = Some(position.value(row));
                pooled.rrf_score = rrf.is_valid(row).then(|| rrf.value(row));
                let places = lists.value(row);
                let places = places.as_struct();
                let (names, scores) = (places.column(0).as_string::<i32>(), places.column(1));
                let (scores, ranks) =
                    (scores.as_primitive::<Float64Type>(), places.column(2).as_primitive::<Int32Type>());
                pooled.lists = (0..places.len())
                    .map(|i| ListPlace {
                        name: names.value(i).into(),
                        score: scores.is_valid(i).then(|| scores.value(i)),
                        rank: ranks.is_valid(i).then(|| ranks.value(i).into()),
                    })
                    .collect();
            }
        }
        Ok(())
    }

    fn read_features(&mut self, batches: &[RecordBatch], request: &Request) -> Result<()> {
        for batch in batches {
            let (turn, ordinal) = (text(batch, "turn_id")?, ints(batch, "turn_ordinal")?);
            let mut columns = Vec::new();
            for name in feature_columns().filter(|n| batch.schema().index_of(n).is_ok()) {
                columns.push((name, doubles(batch, name)?));
            }
            for row in request.rows(batch)? {
                let value = |(name, column): &(&str, arrow::array::Float64Array)| {
                    (name.to_string(), column.is_valid(row).then(|| column.value(row)))
                };
                self.of(turn.value(row), ordinal.value(row)).features = columns.iter().map(value).collect();
            }
        }
        Ok(())
    }

    fn read_rankings(&mut self, batches: &[RecordBatch], request: &Request) -> Result<()> {
        for batch in batches {
            let (turn, ordinal) = (text(batch, "turn_id")?, ints(batch, "turn_ordinal")?);
            let (score, rank) = (doubles(batch, "score")?, ints(batch, "rank")?);
            for row in request.rows(batch)? {
                let pooled = self.of(turn.value(row), ordinal.value(row));
                pooled.rank = Some(rank.value(row));
                pooled.score = score.is_valid(row).then(|| score.value(row));
            }
        }
        Ok(())
    }

    /// By rank, then by pool position; what has none comes last.
    fn sorted(self) -> Vec<PooledTurn> {
        let mut rows = self.rows;
        let last = |v: Option<i64>| v.unwrap_or(i64::MAX);
        rows.sort_by_key(|r| (last(r.rank), last(r.pool_position), r.turn_ordinal));
        rows
    }
}

fn set_fates(
    pooled: &mut [PooledTurn],
    turns: &HashMap<String, TurnLine>,
    slate: Option<&StoredSlate>,
    kept: Option<usize>,
    cost: &mut impl FnMut(&TurnLine, bool) -> Result<i64>,
    notes: &mut Vec<String>,
) -> Result<()> {
    let ranked = pooled.iter().take_while(|r| r.rank.is_some()).count();
    let Some(slate) = slate else {
        pooled[..ranked].iter_mut().for_each(|r| r.fate = Fate::NoSlate);
        return Ok(());
    };
    let filled =
        Filled { turn_ids: slate.turn_ids.iter().map(String::as_str).collect(), budget_tokens: slate.budget_tokens };
    let fates = {
        let ranking: Vec<&str> = pooled[..ranked].iter().map(|r| r.turn_id.as_str()).collect();
        let known: HashSet<&str> = ranking.iter().copied().collect();
        let strangers = filled.turn_ids.iter().filter(|t| !known.contains(*t)).count();
        if strangers > 0 {
            notes.push(format!("{strangers} turns of the slate are not in the ranking: it is of another run"));
        }
        walk(&ranking, turns, &filled, kept, cost)?
    };
    if fates.iter().any(|f| matches!(f, Fate::Unexpected { .. })) {
        notes.push("the slate is not what a walk over this ranking gives: it is of another run".into());
    }
    for (row, fate) in pooled.iter_mut().zip(fates) {
        row.fate = fate;
    }
    Ok(())
}

/// The relevance of each text that a labelled turn says; the highest where several do.
fn relevance_by_text<'a>(labels: &[(String, i64)], turns: &'a HashMap<String, TurnLine>) -> HashMap<&'a str, i64> {
    let mut by_text = HashMap::new();
    for (id, relevance) in labels {
        if let Some(content) = turns.get(id).and_then(|t| t.content.as_deref()) {
            let most = by_text.entry(content).or_insert(*relevance);
            *most = (*most).max(*relevance);
        }
    }
    by_text
}

/// Evidence whose text is not in the pool, with the reason as far as it is known.
fn missed(
    labels: &[(String, i64)],
    pooled: &[PooledTurn],
    turns: &HashMap<String, TurnLine>,
    reference_at: Option<i64>,
    beyond_pool: Option<&HashMap<String, Vec<ListPlace>>>,
) -> Vec<Missed> {
    let ids: HashSet<&str> = pooled.iter().map(|r| r.turn_id.as_str()).collect();
    let texts: HashSet<&str> = pooled.iter().filter_map(|r| r.content.as_deref()).collect();
    let mut missed = Vec::new();
    for (id, relevance) in labels.iter().filter(|(id, r)| *r > 0 && !ids.contains(id.as_str())) {
        let turn = turns.get(id);
        if turn.and_then(|t| t.content.as_deref()).is_some_and(|c| texts.contains(c)) {
            continue;
        }
        let places = beyond_pool.and_then(|b| b.get(id)).filter(|p| !p.is_empty());
        let why = match (turn, places) {
            (None, _) => "not in the store".into(),
            (Some(t), _) if t.is_blank() => "blank".into(),
            (Some(t), _) if later(t.spoken_at, reference_at) => "said after the reference date".into(),
            (Some(_), Some(places)) => {
                let rank = |p: &ListPlace| match p.rank {
                    Some(rank) => format!("rank {rank} in {}", p.name),
                    None => format!("not in {}", p.name),
                };
                format!("not recalled: {}", places.iter().map(rank).collect::<Vec<_>>().join(", "))
            }
            (Some(_), None) => "not in the pool".into(),
        };
        let content = turn.and_then(|t| t.content.clone());
        missed.push(Missed { turn_id: id.clone(), relevance: *relevance, content, why });
    }
    missed
}

fn later(time: Option<i64>, than: Option<i64>) -> bool {
    matches!((time, than), (Some(time), Some(than)) if time > than)
}
