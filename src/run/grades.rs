//! A teacher's grades, as a run reads them: they were given before, by `memslate judge`.
//!
//! A grade is addressed by question, content and teacher, and so does not change; but it may come late. Each store's
//! fingerprint therefore holds the grades of its pools, in systems that rank by them.

use datafusion::prelude::SessionContext;

use super::fingerprint::{self, Prints};
use super::prepare::Prepared;
use crate::config::Job;
use crate::engine;
use crate::error::{Error, Result};
use crate::lake::{Lake, Snapshot};
use crate::schema::{self, JUDGEMENTS};

/// The column of the features that holds the grades.
const COLUMN: &str = "teacher_grade";

/// Whether the job's system looks at grades.
pub fn wanted(job: &Job) -> bool {
    job.system.ranks_by(COLUMN)
}

/// The hash of the teacher whose grades the job reads: the one that it names, or the only one of the lake; empty where the
/// system looks at none, or nobody has graded yet.
pub async fn teacher(lake: &Lake, job: &Job) -> Result<String> {
    if !wanted(job) {
        return Ok(String::new());
    }
    let Some(snapshot) = lake.existing(&JUDGEMENTS).await? else { return Ok(String::new()) };
    choose(&snapshot, job.teacher.as_deref())
}

/// The teacher of a lake whose hash begins with `named`, or the only one; empty where there is none.
pub fn choose(judgements: &Snapshot, named: Option<&str>) -> Result<String> {
    let all: Vec<String> = judgements.partitions()?.into_iter().filter_map(|mut p| p.pop()).collect();
    let found: Vec<&String> = all.iter().filter(|hash| named.is_none_or(|n| hash.starts_with(n))).collect();
    match found[..] {
        [] if named.is_none() => Ok(String::new()),
        [one] => Ok(one.clone()),
        [] => {
            Err(Error::usage(format!("no teacher of the lake has a hash that begins with {:?}", named.unwrap_or("")))
                .next(format!("its teachers: {}; _teachers/HASH.json says what each is", all.join(", "))))
        }
        _ => Err(Error::usage("the lake has grades of more than one teacher")
            .next(format!("name one by the beginning of its hash, `teacher = \"...\"`: {}", all.join(", ")))),
    }
}

/// Readies the grades for the features of a run: the table as it is now, and each store's fingerprint.
///
/// # Errors
/// A system that ranks by grades where there are none: a data error.
pub async fn load(run: &mut Prepared) -> Result<()> {
    if !wanted(&run.job) {
        return Ok(());
    }
    let judgements = run.lake.existing(&JUDGEMENTS).await?;
    let (Some(judgements), false) = (judgements, run.teacher.is_empty()) else {
        return Err(Error::data(format!(
            "system {} ranks by a teacher's grades, and the lake has none",
            run.job.system.name
        ))
        .next(format!(
            "make its pools with `--until pools`, then grade them: `memslate judge JOB.toml --system {}`",
            run.job.system.name
        )));
    };
    let tables: Vec<Snapshot> =
        ["requests", "turns", "pools"].iter().filter_map(|t| run.tables.get(t)).cloned().collect();
    let prints = prints(run, &tables, &judgements).await?;
    run.gaps.insert(JUDGEMENTS.name, prints);
    run.tables.insert(JUDGEMENTS.name, judgements);
    Ok(())
}

/// As [`load`], over the lake as it is; nothing where a table is missing.
pub async fn prints_now(run: &Prepared) -> Result<Prints> {
    if !wanted(&run.job) || run.teacher.is_empty() {
        return Ok(Prints::new());
    }
    let mut tables = Vec::new();
    for table in [&schema::REQUESTS, &schema::TURNS, &schema::POOLS, &JUDGEMENTS] {
        let Some(snapshot) = run.lake.existing(table).await? else { return Ok(Prints::new()) };
        tables.push(snapshot);
    }
    match tables.split_last() {
        Some((judgements, tables)) => prints(run, tables, judgements).await,
        None => Ok(Prints::new()),
    }
}

async fn prints(run: &Prepared, tables: &[Snapshot], judgements: &Snapshot) -> Result<Prints> {
    let context = run.session()?;
    for snapshot in tables {
        register(run, &context, snapshot, &run.job.system.partition())?;
    }
    register(run, &context, judgements, &run.teacher)?;
    // Two requests of a store may ask the same.
    let sql = "SELECT shard, tenant_id, store_id, fingerprint(question_hash, content_hash, grade) AS row_fingerprint
        FROM (
          SELECT DISTINCT p.shard, p.tenant_id, p.store_id, j.question_hash, j.content_hash, CAST(j.grade AS VARCHAR) AS grade
          FROM pools AS p
          JOIN requests AS r ON r.tenant_id = p.tenant_id AND r.store_id = p.store_id AND r.request_id = p.request_id
          JOIN turns AS t ON t.tenant_id = p.tenant_id AND t.store_id = p.store_id AND t.turn_ordinal = p.turn_ordinal
          JOIN judgements AS j ON j.question_hash = r.question_hash AND j.content_hash = t.content_hash
        )";
    fingerprint::of_rows(&context, sql, &[]).await
}

/// The rows of the run's system, or of its teacher, or all.
fn register(run: &Prepared, context: &SessionContext, snapshot: &Snapshot, owner: &str) -> Result<()> {
    let own = matches!(snapshot.table.partition[0], "system" | "teacher_hash");
    let prefix: &[&str] = if own { &[owner] } else { &[] };
    engine::register_snapshot(context, &run.lake, snapshot, prefix, snapshot.table.name)
}
