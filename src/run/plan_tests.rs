//! What the jobs' plans must look like, since their memory and their cost lean on it.

use std::path::Path;
use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::datasource::MemTable;
use datafusion::physical_plan::{ExecutionPlan, displayable};
use datafusion::prelude::SessionContext;

use super::mapped::{mapped, nothing};
use super::prepare::fit;
use super::{ORDER, graph};
use crate::config::{Job, Overrides};
use crate::engine::{self, Functions, Models, Settings};
use crate::schema;

fn job() -> Job {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("jobs/nightly.toml");
    Job::read(&file, &Overrides { lake: Some("memory:///x".into()), ..Default::default() }).unwrap()
}

/// What a session reads of a lake that fits into memory, and of one that does not.
const SIZES: [u64; 2] = [0, u64::MAX];

fn session() -> SessionContext {
    session_over(0)
}

fn session_over(file_bytes: u64) -> SessionContext {
    let (settings, functions) = (Settings::new(Some(1 << 30)).unwrap(), Functions::new(Models::default()));
    let context = engine::session_over(&settings, &functions, file_bytes, 1).unwrap();
    for name in graph::readable() {
        let schema = schema::table(name).unwrap().full_schema();
        let rows = arrow::array::RecordBatch::new_empty(schema.clone());
        context.register_table(name, Arc::new(MemTable::try_new(schema, vec![vec![rows]]).unwrap())).unwrap();
    }
    context
}

fn parameters(job: &Job) -> Vec<(&'static str, ScalarValue)> {
    super::prepare::parameters(job, None, "encoder", "scorer")
}

/// The physical plan of a table's SELECT, a line an operator, with its depth.
async fn plan(table: &str, file_bytes: u64) -> Vec<(usize, String)> {
    let (job, context) = (job(), session_over(file_bytes));
    let frame = engine::bind(&context, &job.sql[table].text, &parameters(&job)).await.unwrap();
    let plan = fit(frame, schema::table(table).unwrap()).unwrap().create_physical_plan().await.unwrap();
    lines(plan.as_ref())
}

/// What is wrong with the calls of a model in a plan: more than one, or one under a filter or a join.
fn violations(plan: &[(usize, String)], function: &str) -> Vec<String> {
    let calls: Vec<usize> =
        plan.iter().enumerate().flat_map(|(i, (_, l))| l.matches(function).map(move |_| i)).collect();
    let mut found = Vec::new();
    if calls.len() != 1 {
        found.push(format!("{} calls", calls.len()));
    }
    for call in calls {
        let mut depth = plan[call].0;
        for (d, line) in plan[..call].iter().rev() {
            if *d < depth {
                depth = *d;
                if line.starts_with("FilterExec") || line.contains("JoinExec") {
                    found.push(line.clone());
                }
            }
        }
    }
    found
}

fn lines(plan: &dyn ExecutionPlan) -> Vec<(usize, String)> {
    let text = displayable(plan).indent(false).to_string();
    text.lines().map(|l| (l.len() - l.trim_start().len(), l.trim_start().to_string())).collect()
}

#[tokio::test]
async fn a_model_is_called_once_and_under_no_filter_or_join() {
    for (table, function) in [("embeddings", "embed("), ("scores", "cross_score(")] {
        for file_bytes in SIZES {
            let plan = plan(table, file_bytes).await;
            assert_eq!(violations(&plan, function), [""; 0], "{table}: {plan:#?}");
        }
    }
}

#[test]
fn a_model_under_a_filter_is_found() {
    let below = [
        (0, "FilterExec: turn_id@0 = x".to_string()),
        (2, "ProjectionExec: expr=[turn_id, embed(content@1, passage) as v]".to_string()),
    ];
    assert_eq!(violations(&below, "embed("), ["FilterExec: turn_id@0 = x"]);
    let twice = [(0, "ProjectionExec: expr=[embed(a)['x'], embed(a)['y']]".to_string())];
    assert_eq!(violations(&twice, "embed("), ["2 calls"]);
}

/// The operator that aggregates with this function sees one group after another, sorted.
async fn holds_one_group_at_a_time(table: &str, function: &str) {
    for file_bytes in SIZES {
        let plan = plan(table, file_bytes).await;
        let found = plan.iter().find(|(_, l)| l.starts_with("AggregateExec") && l.contains(function)).expect(function);
        assert!(found.1.contains("mode=Single"), "{}", found.1);
        assert!(found.1.contains("ordering_mode=Sorted"), "{}", found.1);
    }
}

/// A window that is not bounded holds all rows of its input, whatever the memory limit.
#[tokio::test]
async fn no_window_holds_its_input() {
    let unbounded = |plan: &[(usize, String)]| plan.iter().filter(|(_, l)| l.starts_with("WindowAggExec")).count();
    for table in ORDER.iter().filter(|t| !graph::from_input(t)) {
        assert_eq!(unbounded(&plan(table, 0).await), 0, "{table}");
    }
    for table in ORDER.iter().filter(|t| graph::from_input(t)) {
        let (job, context, m) = (job(), session(), mapped(table));
        context.register_table("mapped", nothing(&context, m).unwrap().into_view()).unwrap();
        let mut parameters = parameters(&job);
        parameters.push(("shards", ScalarValue::Int64(Some(64))));
        let frame = engine::bind(&context, &format!("{} {}", m.checked, m.rows), &parameters).await.unwrap();
        let plan = lines(frame.create_physical_plan().await.unwrap().as_ref());
        assert!(plan.iter().any(|(_, l)| l.starts_with("BoundedWindowAggExec")), "{table}: {plan:#?}");
        assert_eq!(unbounded(&plan), 0, "{table}: {plan:#?}");
    }
}

#[tokio::test]
async fn what_does_not_fit_is_sorted_not_held() {
    for table in ORDER.iter().filter(|t| !graph::from_input(t)) {
        let held = |plan: &[(usize, String)]| plan.iter().filter(|(_, l)| l.starts_with("HashJoinExec")).count();
        assert_eq!(held(&plan(table, u64::MAX).await), 0, "{table}");
    }
}

#[tokio::test]
async fn recall_holds_one_store_at_a_time() {
    holds_one_group_at_a_time("pools", "recall(").await;
}

#[tokio::test]
async fn the_fill_holds_one_ranking_at_a_time() {
    holds_one_group_at_a_time("slates", "array_agg(").await;
}

#[tokio::test]
async fn every_select_gives_its_table() {
    let (job, context) = (job(), session());
    for table in ORDER.iter().filter(|t| !graph::from_input(t)) {
        let table = schema::table(table).unwrap();
        let select = &job.sql[table.name].text;
        let frame = engine::bind(&context, select, &parameters(&job)).await.unwrap();
        let given = fit(frame, table).unwrap();
        let names: Vec<String> = given.schema().fields().iter().map(|f| f.name().clone()).collect();
        let wanted: Vec<&str> = table.columns.iter().map(|c| c.name).filter(|c| *c != "store_fingerprint").collect();
        assert_eq!(names, wanted, "{}", table.name);
    }
}

#[tokio::test]
async fn a_select_that_does_not_give_its_table_is_told_why() {
    let context = session();
    let of = |sql: &'static str| {
        let context = context.clone();
        async move { fit(context.sql(sql).await.unwrap(), &schema::RANKINGS).unwrap_err().to_string() }
    };
    let all = "tenant_id, store_id, request_id, turn_id, turn_ordinal, score";
    assert!(of("SELECT tenant_id FROM rankings").await.contains("\"store_id\""));
    let wrong = format!("SELECT {all}, CAST(rank AS BIGINT) AS rank FROM rankings");
    let told = of(Box::leak(wrong.into_boxed_str())).await;
    assert!(told.contains("\"rank\" is Int64") && told.contains("Int32"), "{told}");
    let more = format!("SELECT {all}, rank, rank AS place FROM rankings");
    assert!(of(Box::leak(more.into_boxed_str())).await.contains("no column \"place\""));
}
