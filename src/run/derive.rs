//! Derived tables, shard by shard: skip what is done, carry over stores that did not change, compute the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{AsArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use datafusion::catalog::TableProvider;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{JoinType, lit};
use datafusion::prelude::{DataFrame, SessionContext, ident};
use futures::{StreamExt, stream};

use super::fingerprint::{self, Prints, Store};
use super::gaps::Gap;
use super::keys::Keys;
use super::prepare::{Prepared, fit};
use super::progress::Bar;
use super::stamp::stamp;
use super::summary::TableSummary;
use super::{gaps, graph, losses};
use crate::engine;
use crate::error::{Error, Result};
use crate::lake::{DataFile, Outcome, Pending, Snapshot, Unit};
use crate::schema::{self, Table};

/// Finished shards are committed together: a commit costs about as much as a small shard.
const GROUP_SHARDS: usize = 16;
const GROUP_TIME: Duration = Duration::from_secs(15);

/// A shard's part of a table, with what each store's rows must be stamped with.
struct Work {
    shard: i32,
    unit: Unit,
    /// Of each store that has rows; empty for tables by content.
    stores: BTreeMap<Store, i64>,
}

/// What a computed shard came to.
struct Made {
    pending: Pending,
    stores_computed: u64,
    stores_kept: u64,
    rows_computed: u64,
}

/// Brings one derived table up to date.
pub async fn table(run: &mut Prepared, table: &'static Table) -> Result<TableSummary> {
    let mut summary = TableSummary::new(table.name);
    let mut snapshot = run.lake.table(table).await?;
    if run.fills(table.name) {
        snapshot = bring_up(run, table, snapshot, &mut summary).await?;
        summary.rows = own_files(run, &snapshot)?.iter().map(|f| f.rows).sum();
        if let Some(gap) = Gap::of(table.name) {
            let lacking = gap.shards(run, &snapshot).await?;
            let prints = gaps::prints(run, gap, &snapshot, &lacking).await?;
            run.gaps.insert(table.name, prints);
            summary.losses = Some(losses::count(run, gap, &snapshot, lacking.values().sum()).await?);
        }
    }
    summary.version = snapshot.version();
    run.tables.insert(table.name, snapshot);
    Ok(summary)
}

async fn bring_up(
    run: &Prepared,
    table: &'static Table,
    mut snapshot: Snapshot,
    summary: &mut TableSummary,
) -> Result<Snapshot> {
    let work = units(run, table, &snapshot)?;
    summary.stores = work.iter().map(|w| w.stores.len() as u64).sum();
    let total = work.len();
    let parallel = run.settings.parallel(total);
    let bar = Bar::new(table.name, total as u64);
    let again = gaps::shards(run, &snapshot).await?;
    let mut left = not_done(work, &snapshot, &again).await?;
    bar.skip((total - left.len()) as u64);
    let waiting: u64 = left.iter().map(|w| w.stores.len() as u64).sum();
    summary.stores_kept += summary.stores - waiting;
    while !left.is_empty() {
        let base = snapshot.clone();
        let mut made =
            stream::iter(&left).map(|work| shard(run, table, &base, work, parallel)).buffer_unordered(parallel);
        let (mut group, mut since) = (Vec::new(), Instant::now());
        let (mut lost, mut failed) = (false, None);
        while let Some(one) = made.next().await {
            match one {
                Ok(one) => {
                    bar.step(one.rows_computed);
                    group.push(one);
                }
                // What is finished is committed all the same, so that no later run computes it again.
                Err(e) => {
                    failed = Some(e);
                    break;
                }
            }
            if group.len() >= GROUP_SHARDS || since.elapsed() >= GROUP_TIME {
                lost |= !commit(&mut snapshot, &mut group, summary).await?;
                since = Instant::now();
            }
        }
        lost |= !commit(&mut snapshot, &mut group, summary).await?;
        drop(made);
        if let Some(e) = failed {
            return Err(e);
        }
        // Where another run committed a shard first, its rows count if they are what we would have computed.
        left = if lost { not_done(left, &snapshot, &BTreeSet::new()).await? } else { Vec::new() };
    }
    bar.end();
    Ok(snapshot)
}

fn own_files(run: &Prepared, snapshot: &Snapshot) -> Result<Vec<DataFile>> {
    let system = run.job.system.partition();
    let prefix: &[&str] = if snapshot.table.partition[0] == "system" { &[&system] } else { &[] };
    snapshot.files(prefix)
}

/// Commits a group; gives back whether it was ours to commit.
async fn commit(snapshot: &mut Snapshot, group: &mut Vec<Made>, summary: &mut TableSummary) -> Result<bool> {
    if group.is_empty() {
        return Ok(true);
    }
    let made = std::mem::take(group);
    let pending: Vec<Pending> = made.iter().map(|m| m.pending.clone()).collect();
    match snapshot.commit(&pending, &[]).await? {
        Outcome::Committed(now) => {
            *snapshot = now;
            for m in made {
                summary.shards_computed += 1;
                summary.stores_computed += m.stores_computed;
                summary.stores_kept += m.stores_kept;
                summary.rows_computed += m.rows_computed;
            }
            Ok(true)
        }
        Outcome::Lost(now) => {
            *snapshot = now;
            Ok(false)
        }
    }
}

/// The shards whose fingerprint is not the committed one, and those to compute in any case.
async fn not_done(work: Vec<Work>, snapshot: &Snapshot, again: &BTreeSet<i32>) -> Result<Vec<Work>> {
    let mut left = Vec::new();
    for w in work {
        if again.contains(&w.shard) || snapshot.done(&w.unit.id).await? != Some(w.unit.fingerprint) {
            left.push(w);
        }
    }
    Ok(left)
}

/// Fingerprints of the stores of every table up to `table`, from the inputs on.
fn prints(run: &Prepared, table: &str) -> BTreeMap<&'static str, Prints> {
    let mut all: BTreeMap<&'static str, Prints> = run.inputs.clone();
    all.extend(run.gaps.clone());
    for name in graph::until(table).filter(|t| !graph::from_input(t) && !graph::by_content(t)) {
        let of = fingerprint::of_stores(run.select_print(name), &run.reads[name], &all);
        all.insert(name, of);
    }
    all
}

/// The units of a table: every shard that has something to compute from, or rows to remove.
fn units(run: &Prepared, table: &'static Table, snapshot: &Snapshot) -> Result<Vec<Work>> {
    let prints = prints(run, table.name);
    let select = run.select_print(table.name);
    let empty = BTreeMap::new();
    let of = |name: &str, shard: i32| prints.get(name).and_then(|p| p.get(&shard)).unwrap_or(&empty).clone();
    let mut shards: BTreeSet<i32> = run.inputs.values().flat_map(|p| p.keys().copied()).collect();
    for file in own_files(run, snapshot)? {
        shards.extend(file.partition.last().and_then(|s| s.parse::<i32>().ok()));
    }
    let work = shards.into_iter().map(|shard| {
        let stores = if graph::by_content(table.name) { BTreeMap::new() } else { of(table.name, shard) };
        let fingerprint = match table.name {
            "embeddings" => fingerprint::of_shard(select, &[&of("turns", shard), &of("requests", shard)]),
            "scores" => fingerprint::of_shard(select, &[&of("pools", shard)]),
            _ => fingerprint::of_shard(select, &[&stores]),
        };
        let partition = run.partition(table, shard);
        // Units by content are told apart by the model, those of a system by the system.
        let owner = match table.name {
            "embeddings" => hash_of(run, "embed"),
            "scores" => format!("{}/{}", hash_of(run, "cross_score"), run.job.system.partition()),
            _ => partition[0].clone(),
        };
        let unit = Unit { id: format!("{}/{owner}/{shard}", table.name), fingerprint, partition };
        Work { shard, unit, stores }
    });
    Ok(work.collect())
}

fn hash_of(run: &Prepared, function: &str) -> String {
    let found = run.model_hashes.iter().find(|(f, _)| *f == function);
    found.map_or_else(String::new, |(_, hash)| hash.chars().take(16).collect())
}

/// Computes one shard and lays its rows down.
async fn shard(
    run: &Prepared,
    table: &'static Table,
    snapshot: &Snapshot,
    work: &Work,
    parallel: usize,
) -> Result<Made> {
    let place = format!("{}, shard {}", table.name, work.shard);
    compute(run, table, snapshot, work, parallel).await.map_err(|e| e.at(place))
}

/// `parallel`: how many shards are computed at once.
async fn compute(
    run: &Prepared,
    table: &'static Table,
    snapshot: &Snapshot,
    work: &Work,
    parallel: usize,
) -> Result<Made> {
    let own = files_of(run, snapshot, work.shard)?;
    let file_bytes = own.iter().map(|f| f.size).sum::<u64>() + upstream_bytes(run, table, work.shard)?;
    let context = engine::session_over(&run.settings, &run.functions, file_bytes, parallel)?;
    let (root, store) = run.lake.object_store();
    context.register_object_store(&root, store);
    let own = with_values(run, &context, table, engine::files(table, &root, own)?).await?;
    context.register_table("own_rows", own)?;
    let kept = if graph::by_content(table.name) { BTreeSet::new() } else { kept_stores(&context, work).await? };
    register_upstream(run, &context, table, work, &kept, &root).await?;
    let computed = run.select(&context, table).await?;
    let carried = carried(&context, table, &kept).await?;
    let rows = match carried {
        Some(carried) => carried.union(computed)?,
        None => computed,
    };
    let order = table.key.iter().map(|k| ident(*k).sort(true, true)).collect();
    let rows = engine::stream(rows.sort(order)?).await?;
    let mut keys = Keys::default();
    let stores = work.stores.clone();
    let stamped = rows.map(move |batch| {
        let batch = batch?;
        keys.check(&batch, table)?;
        stamp(batch, table, &stores)
    });
    let pending = snapshot.write(work.unit.clone(), stamped).await?;
    if table.name == "slates" {
        let requests = files_of(run, &run.tables["requests"], work.shard)?.iter().map(|f| f.rows).sum::<u64>();
        if pending.rows != requests {
            return Err(Error::data(format!("the SELECT gives {} slates for {requests} requests", pending.rows))
                .next("every request must get one row, whatever became of it"));
        }
    }
    let carried_rows = own_rows(&context, table, &kept).await?;
    Ok(Made {
        rows_computed: pending.rows.saturating_sub(carried_rows),
        stores_computed: (work.stores.len() - kept.len()) as u64,
        stores_kept: kept.len() as u64,
        pending,
    })
}

/// Bytes of the files that the SELECT reads for a shard.
fn upstream_bytes(run: &Prepared, table: &Table, shard: i32) -> Result<u64> {
    let reads = run.reads[table.name].iter().filter(|name| **name != table.name && run.fills(name));
    let mut bytes = 0;
    for snapshot in reads.filter_map(|name| run.tables.get(name)) {
        bytes += files_of(run, snapshot, shard)?.iter().map(|f| f.size).sum::<u64>();
    }
    Ok(bytes)
}

/// A table's own rows, without those for which the model gave no value: their texts are as new.
async fn with_values(
    run: &Prepared,
    context: &SessionContext,
    table: &Table,
    own: Arc<dyn TableProvider>,
) -> Result<Arc<dyn TableProvider>> {
    let Some(gap) = Gap::of(table.name) else { return Ok(own) };
    context.register_table("all_rows", own)?;
    let sql = format!("SELECT * FROM all_rows WHERE NOT ({})", gap.condition());
    Ok(engine::bind(context, &sql, &run.parameters).await?.into_view())
}

fn files_of(run: &Prepared, snapshot: &Snapshot, shard: i32) -> Result<Vec<DataFile>> {
    let partition = run.partition(snapshot.table, shard);
    let prefix: Vec<&str> = partition.iter().map(String::as_str).collect();
    snapshot.files(&prefix)
}

/// The stores whose committed rows are what would be computed again.
async fn kept_stores(context: &SessionContext, work: &Work) -> Result<BTreeSet<Store>> {
    let sql = "SELECT tenant_id, store_id, max(store_fingerprint), min(store_fingerprint) FROM own_rows \
               GROUP BY tenant_id, store_id";
    let mut kept = BTreeSet::new();
    for batch in engine::collect(context, sql, &[]).await? {
        let (tenants, stores) = (batch.column(0).as_string::<i32>(), batch.column(1).as_string::<i32>());
        let (most, least) = (batch.column(2).as_primitive::<Int64Type>(), batch.column(3).as_primitive::<Int64Type>());
        for row in 0..batch.num_rows() {
            let store = (tenants.value(row).to_string(), stores.value(row).to_string());
            if most.value(row) == least.value(row) && work.stores.get(&store) == Some(&most.value(row)) {
                kept.insert(store);
            }
        }
    }
    Ok(kept)
}

/// The tables that the SELECT reads: this shard's files, and of those only the stores that are computed.
async fn register_upstream(
    run: &Prepared,
    context: &SessionContext,
    table: &'static Table,
    work: &Work,
    kept: &BTreeSet<Store>,
    root: &url::Url,
) -> Result<()> {
    let wanted: Vec<&Store> = work.stores.keys().filter(|s| !kept.contains(*s)).collect();
    let narrow = !graph::by_content(table.name);
    if narrow {
        context.register_batch("wanted_stores", stores_batch(&wanted)?)?;
    }
    for name in graph::readable().filter(|n| run.reads[table.name].contains(n)) {
        let of = schema::table(name).expect("a table of the order");
        let provider = match run.tables.get(name) {
            // The table's own rows, which an anti-join asks for.
            _ if name == table.name => context.table_provider("own_rows").await?,
            Some(snapshot) if run.fills(name) => {
                let files = engine::files(of, root, files_of(run, snapshot, work.shard)?)?;
                if name == "embeddings" { of_texts(context, files)? } else { files }
            }
            _ => engine::empty(of),
        };
        if narrow && !graph::by_content(name) {
            let frame = only(context, context.read_table(provider)?, "wanted_stores").await?;
            context.register_table(name, frame.into_view())?;
        } else {
            context.register_table(name, provider)?;
        }
    }
    Ok(())
}

/// Embeddings without the texts that have no token, and so an empty vector: to the SELECTs they are as blank ones.
fn of_texts(context: &SessionContext, embeddings: Arc<dyn TableProvider>) -> Result<Arc<dyn TableProvider>> {
    let (vector, empty) = (ident("vector"), lit(ScalarValue::Binary(Some(Vec::new()))));
    let rows = context.read_table(embeddings)?.filter(vector.clone().is_null().or(vector.not_eq(empty)))?;
    Ok(rows.into_view())
}

/// The rows of the stores in a table of (tenant_id, store_id).
async fn only(context: &SessionContext, rows: DataFrame, stores: &str) -> Result<DataFrame> {
    let stores = context.table(stores).await?;
    let keys = ["tenant_id", "store_id"];
    Ok(rows.join(stores, JoinType::LeftSemi, &keys, &["tenant_of", "store_of"], None)?)
}

fn stores_batch(stores: &[&Store]) -> Result<RecordBatch> {
    let fields = ["tenant_of", "store_of"].map(|n| Field::new(n, DataType::Utf8, false));
    let tenants = StringArray::from_iter_values(stores.iter().map(|s| s.0.as_str()));
    let ids = StringArray::from_iter_values(stores.iter().map(|s| s.1.as_str()));
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields.to_vec())), vec![Arc::new(tenants), Arc::new(ids)])?)
}

/// Committed rows that go into the new file as they are.
async fn carried(context: &SessionContext, table: &'static Table, kept: &BTreeSet<Store>) -> Result<Option<DataFrame>> {
    let own = context.table("own_rows").await?;
    let own = own.drop_columns(table.partition)?;
    if graph::by_content(table.name) {
        return Ok(Some(fit(own, table)?));
    }
    if kept.is_empty() {
        return Ok(None);
    }
    let stores: Vec<&Store> = kept.iter().collect();
    context.register_batch("kept_stores", stores_batch(&stores)?)?;
    Ok(Some(fit(only(context, own, "kept_stores").await?, table)?))
}

async fn own_rows(context: &SessionContext, table: &Table, kept: &BTreeSet<Store>) -> Result<u64> {
    let sql = if graph::by_content(table.name) {
        "SELECT count(*) FROM own_rows"
    } else if kept.is_empty() {
        return Ok(0);
    } else {
        "SELECT count(*) FROM own_rows o LEFT SEMI JOIN kept_stores k \
         ON o.tenant_id = k.tenant_of AND o.store_id = k.store_of"
    };
    engine::count(context, sql, &[]).await
}
