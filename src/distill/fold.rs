//! The table of judgements: what it holds of a teacher, and how a journal is folded into it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Float64Type;
use datafusion::prelude::SessionContext;
use serde_json::{Value, json};

use super::pairs::{PairHash, hash};
use crate::engine::{self, Functions, Models, Settings};
use crate::error::{Context, Error, Result};
use crate::lake::{Lake, Outcome, Snapshot, Unit};
use crate::schema::JUDGEMENTS;
use crate::teacher::{Judgement, Teacher, Verdict};

/// Other jobs of the same teacher may commit at the same time; each costs one more attempt.
const ATTEMPTS: usize = 20;
/// Rows of the partition without the ones that a journal holds too, in the order of their keys.
const ALL_ROWS: &str = "
    SELECT judgement_key, question_hash, content_hash, grade, reason, answer, prompt_tokens, completion_tokens
    FROM judgements
    UNION ALL
    SELECT f.judgement_key, f.question_hash, f.content_hash, f.grade, f.reason, f.answer, f.prompt_tokens, f.completion_tokens
    FROM fresh AS f
    LEFT ANTI JOIN judgements AS j ON j.judgement_key = f.judgement_key
    ORDER BY judgement_key";

/// What has been answered already, graded or not.
#[derive(Debug, Default)]
pub struct Known {
    pub graded: HashSet<PairHash>,
    /// By pair, why its answer was set aside.
    pub set_aside: BTreeMap<PairHash, String>,
}

impl Known {
    /// What the table holds of a teacher.
    pub async fn of(lake: &Lake, teacher: &str) -> Result<Known> {
        let mut known = Known::default();
        let Some(snapshot) = lake.existing(&JUDGEMENTS).await? else { return Ok(known) };
        let context = session(lake, &snapshot, teacher)?;
        let sql = "SELECT question_hash, content_hash, grade, reason FROM judgements";
        for batch in engine::collect(&context, sql, &[]).await? {
            let (questions, contents) = (batch.column(0).as_binary::<i32>(), batch.column(1).as_binary::<i32>());
            let (grades, reasons) = (batch.column(2).as_primitive::<Float64Type>(), batch.column(3).as_string::<i32>());
            for row in 0..batch.num_rows() {
                let pair = (hash(questions.value(row))?, hash(contents.value(row))?);
                match grades.is_valid(row) {
                    true => drop(known.graded.insert(pair)),
                    false => drop(known.set_aside.insert(pair, reasons.value(row).to_string())),
                }
            }
        }
        Ok(known)
    }

    pub fn add(&mut self, judgement: &Judgement) {
        let pair = (judgement.question_hash, judgement.content_hash);
        match &judgement.verdict {
            Verdict::Grade(_) => drop(self.graded.insert(pair)),
            Verdict::SetAside(reason) => drop(self.set_aside.insert(pair, reason.clone())),
        }
    }

    pub fn holds(&self, pair: &PairHash) -> bool {
        self.graded.contains(pair) || self.set_aside.contains_key(pair)
    }
}

/// Adds judgements to the table, those that it holds already aside. What the table then says does not depend on the order
/// in which answers came, nor on how many runs they came in.
///
/// # Errors
/// A commit that fails; nothing is lost then, since the journal still holds what was to be added.
pub async fn fold(lake: &Lake, teacher: &Teacher, fresh: &[Judgement]) -> Result<()> {
    if fresh.is_empty() {
        return Ok(());
    }
    let described = serde_json::to_vec_pretty(&described(teacher)).or_internal("a teacher is plain data")?;
    lake.put(&format!("_teachers/{}.json", teacher.hash()), described).await?;
    let rows = batch(fresh)?;
    let mut snapshot = lake.table(&JUDGEMENTS).await?;
    for _ in 0..ATTEMPTS {
        let context = session(lake, &snapshot, teacher.hash())?;
        context.register_batch("fresh", rows.clone())?;
        let stream = engine::stream(engine::bind(&context, ALL_ROWS, &[]).await?).await?;
        let unit = Unit {
            id: format!("judgements/{}", teacher.hash()),
            fingerprint: i64::try_from(fresh.len()).unwrap_or(i64::MAX),
            partition: vec![teacher.hash().to_string()],
        };
        let pending = snapshot.write(unit, stream).await?;
        match snapshot.commit(&[pending], &[]).await? {
            Outcome::Committed(_) => return Ok(()),
            Outcome::Lost(now) => snapshot = now,
        }
    }
    Err(Error::transient("the judgements could not be committed: other jobs committed first, again and again")
        .next("run the command again: the answers are in the journal"))
}

/// What a hash stands for, for people.
fn described(teacher: &Teacher) -> Value {
    let of = teacher.settings();
    let messages = teacher.render("QUESTION", "TURN");
    json!({
        "model": of.model, "mode": of.mode.name(), "max_tokens": of.max_tokens, "temperature": of.temperature,
        "seed": of.seed, "extra": of.extra, "system": messages.system, "user": messages.user,
    })
}

fn session(lake: &Lake, snapshot: &Snapshot, teacher: &str) -> Result<SessionContext> {
    let context = engine::session(&Settings::default(), &Functions::new(Models::default()))?;
    engine::register_snapshot(&context, lake, snapshot, &[teacher], "judgements")?;
    Ok(context)
}

fn batch(judgements: &[Judgement]) -> Result<RecordBatch> {
    let bytes = |of: &dyn Fn(&Judgement) -> [u8; 32]| -> ArrayRef {
        Arc::new(BinaryArray::from_iter_values(judgements.iter().map(of)))
    };
    let count = |of: &dyn Fn(&Judgement) -> u64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(judgements.iter().map(|j| i64::try_from(of(j)).unwrap_or(i64::MAX))))
    };
    let grade = |j: &Judgement| match j.verdict {
        Verdict::Grade(grade) => Some(grade),
        Verdict::SetAside(_) => None,
    };
    let reason = |j: &Judgement| match &j.verdict {
        Verdict::Grade(_) => None,
        Verdict::SetAside(reason) => Some(reason.clone()),
    };
    Ok(RecordBatch::try_new(
        JUDGEMENTS.file_schema(),
        vec![
            bytes(&|j| j.key),
            bytes(&|j| j.question_hash),
            bytes(&|j| j.content_hash),
            Arc::new(judgements.iter().map(grade).collect::<Float64Array>()),
            Arc::new(judgements.iter().map(reason).collect::<StringArray>()),
            Arc::new(StringArray::from_iter_values(judgements.iter().map(|j| j.answer.as_str()))),
            count(&|j| j.usage.prompt_tokens),
            count(&|j| j.usage.completion_tokens),
        ],
    )?)
}
