//! Inputs to tables: the job's first SELECTs, checked row by row, numbered, hashed, and laid into shards.

use std::collections::BTreeMap;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Int32Type, Int64Type};
use datafusion::prelude::SessionContext;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};

use super::fingerprint::{self, Print, Prints, Store};
use super::mapped::mapped;
use super::prepare::Prepared;
use super::sources;
use super::stamp::stamp;
use super::summary::TableSummary;
use crate::engine;
use crate::error::{Error, Result, UNREADABLE_PARQUET};
use crate::lake::{Outcome, Pending, Snapshot, Unit};
use crate::schema;

/// Reads one input table into the lake; skips it where neither its files nor its SELECT changed.
pub async fn table(run: &mut Prepared, name: &'static str) -> Result<TableSummary> {
    let table = schema::table(name).expect("an input table");
    let mark = format!("ingest/{name}");
    let (print, file_bytes) = input(run, name).await?;
    let mut snapshot = run.lake.table(table).await?;
    let mut summary = TableSummary::new(name);
    if snapshot.done(&mark).await? != Some(print) {
        let made = read(run, name, &snapshot, (&mark, print), file_bytes, &mut summary).await;
        snapshot = match made {
            Err(e) if input(run, name).await.is_ok_and(|now| now.0 != print) => {
                return Err(replaced(name).source(e));
            }
            Err(e) if e.what() == UNREADABLE_PARQUET => return Err(e.at(sources::told(run, name).await)),
            made => made?,
        };
    }
    let prints = store_prints(run, &snapshot).await?;
    summary.stores = prints.values().map(|s| s.len() as u64).sum();
    summary.stores_kept = summary.stores - summary.stores_computed.min(summary.stores);
    summary.rows = snapshot.files(&[])?.iter().map(|f| f.rows).sum();
    summary.version = snapshot.version();
    summary.rejects = rejects(run, name).await?;
    run.inputs.insert(name, prints);
    run.tables.insert(name, snapshot);
    Ok(summary)
}

async fn read(
    run: &Prepared,
    name: &'static str,
    snapshot: &Snapshot,
    mark: (&str, i64),
    file_bytes: u64,
    summary: &mut TableSummary,
) -> Result<Snapshot> {
    let context = engine::session_over(&run.settings, &run.functions, file_bytes, 1)?;
    sources::map(&run.job, &run.parameters, &context, name).await?;
    write_rejects(run, &context, name, mark).await?;
    let mut snapshot = snapshot.clone();
    // A commit of another run between our reading and ours makes us look again; the rows are the same, so this ends.
    loop {
        let (pending, stores) = changed_shards(run, &context, name, &snapshot).await?;
        // Its files are read more than once: rows of new ones would bear fingerprints of old ones.
        if input(run, name).await?.0 != mark.1 {
            return Err(replaced(name));
        }
        match snapshot.commit(&pending, &[mark]).await? {
            Outcome::Committed(now) => {
                summary.stores_computed = stores;
                summary.shards_computed = pending.len() as u64;
                return Ok(now);
            }
            Outcome::Lost(now) => snapshot = now,
        }
    }
}

fn replaced(name: &str) -> Error {
    Error::data("the input was written to while it was read").at(name).next("run again when its files are in place")
}

/// Writes the shards whose stores' fingerprints are not those of the lake, and empties the shards that are gone.
async fn changed_shards(
    run: &Prepared,
    context: &SessionContext,
    name: &'static str,
    snapshot: &Snapshot,
) -> Result<(Vec<Pending>, u64)> {
    let m = mapped(name);
    let new = fingerprint::of_rows(context, &format!("{} {}", m.checked, m.rows), &run.parameters).await?;
    let old = store_prints(run, snapshot).await?;
    let select = Print::new("rows of").text(name).end();
    let mut changed = BTreeMap::new();
    let mut stores = 0;
    for (shard, prints) in &new {
        let before = old.get(shard);
        if before != Some(prints) {
            changed.insert(*shard, (fingerprint::of_shard(select, &[prints]), prints));
            stores += prints.iter().filter(|(s, p)| before.and_then(|b| b.get(*s)) != Some(p)).count() as u64;
        }
    }
    let mut pending = write_shards(run, context, name, snapshot, &changed).await?;
    for partition in snapshot.partitions()? {
        let shard: i32 = partition[0].parse().map_err(|_| Error::data(format!("shard {:?}", partition[0])))?;
        if !new.contains_key(&shard) {
            let unit = unit(name, shard, fingerprint::of_shard(select, &[]));
            pending.push(snapshot.write(unit, stream::empty()).await?);
        }
    }
    Ok((pending, stores))
}

fn unit(name: &str, shard: i32, fingerprint: i64) -> Unit {
    Unit { id: format!("{name}/{shard}"), fingerprint, partition: vec![shard.to_string()] }
}

/// One pass over the rows of all changed shards, in the order of shards; each shard is a file.
async fn write_shards(
    run: &Prepared,
    context: &SessionContext,
    name: &'static str,
    snapshot: &Snapshot,
    changed: &BTreeMap<i32, (i64, &BTreeMap<Store, i64>)>,
) -> Result<Vec<Pending>> {
    if changed.is_empty() {
        return Ok(Vec::new());
    }
    let (m, table) = (mapped(name), schema::table(name).expect("an input table"));
    let columns: Vec<_> = table.columns.iter().map(|c| c.name).filter(|c| *c != "store_fingerprint").collect();
    let shards: Vec<_> = changed.keys().map(ToString::to_string).collect();
    let sql = format!(
        "SELECT shard, {} FROM ({} {}) WHERE shard IN ({}) ORDER BY shard, {}",
        columns.join(", "),
        m.checked,
        m.rows,
        shards.join(", "),
        table.key.join(", ")
    );
    let mut rows = engine::stream(engine::bind(context, &sql, &run.parameters).await?).await?;
    let mut pending = Vec::new();
    let mut rest: Option<RecordBatch> = None;
    for (shard, (print, stores)) in changed {
        let (send, receive) = futures::channel::mpsc::channel(2);
        let stores = BTreeMap::clone(stores);
        let stamped = receive.map(move |batch| stamp(batch?, table, &stores));
        let writing = snapshot.write(unit(name, *shard, *print), stamped);
        let feeding = feed(&mut rows, *shard, rest.take(), send);
        let (written, left) = futures::join!(writing, feeding);
        pending.push(written?);
        rest = left?;
    }
    Ok(pending)
}

/// Sends the rows of one shard on, without the shard column; gives back what is of a later shard.
async fn feed(
    rows: &mut BoxStream<'static, Result<RecordBatch>>,
    shard: i32,
    mut batch: Option<RecordBatch>,
    mut send: futures::channel::mpsc::Sender<Result<RecordBatch>>,
) -> Result<Option<RecordBatch>> {
    use futures::SinkExt;
    loop {
        let Some(now) = (match batch.take() {
            Some(b) => Some(b),
            None => rows.try_next().await?,
        }) else {
            return Ok(None);
        };
        let shards = now.column(0).as_primitive::<Int32Type>().clone();
        let n = shards.values().iter().take_while(|s| **s == shard).count();
        if n > 0 {
            let mine = now.slice(0, n).project(&(1..now.num_columns()).collect::<Vec<_>>())?;
            // The writer has gone only if it failed, and then its own error is told.
            if send.send(Ok(mine)).await.is_err() {
                return Ok(None);
            }
        }
        if n < now.num_rows() {
            return Ok(Some(now.slice(n, now.num_rows() - n)));
        }
    }
}

/// The fingerprint of all that a table is read from (SELECT, parameters, and the files' sizes and times), and the bytes of
/// the files.
async fn input(run: &Prepared, name: &'static str) -> Result<(i64, u64)> {
    let m = mapped(name);
    let parameters = fingerprint::of_select(name, &format!("{} {}", m.checked, m.rows), &run.parameters, &[]);
    let mut print = Print::new("input").long(run.select_print(name)).long(parameters);
    let mut bytes = 0;
    for input in sources::inputs(&run.job, &run.session()?, name).await? {
        print = print.text(&input.name);
        for file in input.files {
            bytes += file.size;
            let tag = file.e_tag.unwrap_or_default();
            let micros = file.last_modified.timestamp_micros();
            print = print.text(file.location.as_ref()).long(file.size as i64).long(micros).text(&tag);
        }
    }
    Ok((print.end(), bytes))
}

/// The fingerprint of each store of an input table of the lake.
async fn store_prints(run: &Prepared, snapshot: &Snapshot) -> Result<Prints> {
    let context = run.session()?;
    engine::register_snapshot(&context, &run.lake, snapshot, &[], "t")?;
    fingerprint::of_table(&context, "t", &[]).await
}

fn rejects_sql(name: &str) -> String {
    let m = mapped(name);
    format!(
        "{} SELECT tenant_id, store_id, {} AS row_id, problem AS reason FROM checked WHERE problem IS NOT NULL",
        m.checked, m.id
    )
}

/// Replaces what the lake holds of rejected rows of this input.
async fn write_rejects(run: &Prepared, context: &SessionContext, name: &str, mark: (&str, i64)) -> Result<()> {
    let table = &schema::REJECTS;
    let sql = format!("SELECT * FROM ({}) ORDER BY {}", rejects_sql(name), table.key.join(", "));
    let mut snapshot = run.lake.table(table).await?;
    loop {
        let rows = engine::stream(engine::bind(context, &sql, &run.parameters).await?).await?;
        let unit = Unit { id: mark.0.to_string(), fingerprint: mark.1, partition: vec![name.to_string()] };
        let pending = snapshot.write(unit, rows).await?;
        match snapshot.commit(&[pending], &[]).await? {
            Outcome::Committed(_) => return Ok(()),
            Outcome::Lost(now) => snapshot = now,
        }
    }
}

/// Rejected rows of an input table, as the lake has them.
async fn rejects(run: &Prepared, name: &str) -> Result<u64> {
    let snapshot = run.lake.table(&schema::REJECTS).await?;
    Ok(snapshot.files(&[name])?.iter().map(|f| f.rows).sum())
}

/// Rows and rejected rows (by reason) of the inputs, without writing anything.
pub async fn count(run: &Prepared) -> Result<(BTreeMap<&'static str, u64>, BTreeMap<String, u64>)> {
    let (mut rows, mut rejects) = (BTreeMap::new(), BTreeMap::new());
    for name in ["turns", "requests", "labels"].into_iter().filter(|t| run.reads.contains_key(t)) {
        let context = run.session()?;
        sources::map(&run.job, &run.parameters, &context, name).await?;
        let m = mapped(name);
        let sql = format!("{} SELECT count(*) FROM checked WHERE problem IS NULL", m.checked);
        for batch in engine::collect(&context, &sql, &run.parameters).await? {
            rows.insert(name, batch.column(0).as_primitive::<Int64Type>().values().iter().sum::<i64>() as u64);
        }
        let sql = format!("SELECT reason, count(*) FROM ({}) GROUP BY reason", rejects_sql(name));
        for batch in engine::collect(&context, &sql, &run.parameters).await? {
            let reasons = batch.column(0).as_string::<i32>();
            for row in 0..reasons.len() {
                let n = batch.column(1).as_primitive::<Int64Type>().value(row) as u64;
                *rejects.entry(format!("{name}: {}", reasons.value(row))).or_default() += n;
            }
        }
    }
    Ok((rows, rejects))
}

/// A session with the inputs' turns and requests as they would stand in the lake.
pub async fn texts(run: &Prepared) -> Result<SessionContext> {
    let context = run.session()?;
    for name in ["turns", "requests"] {
        let inner = run.session()?;
        sources::map(&run.job, &run.parameters, &inner, name).await?;
        let m = mapped(name);
        let frame = engine::bind(&inner, &format!("{} {}", m.checked, m.rows), &run.parameters).await?;
        context.register_table(name, frame.into_view())?;
    }
    Ok(context)
}
