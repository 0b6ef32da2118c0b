//! The functions in a session, with the SQL that a job has.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, Int8Array, Int32Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::compute::concat_batches;
use arrow::datatypes::{Float64Type, Int32Type, TimestampMicrosecondType};
use arrow::util::display::array_value_to_string;
use datafusion::datasource::MemTable;
use datafusion::prelude::{SessionConfig, SessionContext};
use half::f16;

use crate::error::{Class, Error};
use crate::system::{Recall, System};

/// A row: store, kind (0 turn, 1 request), ordinal, id, text, vector, time.
type Row<'a> = (&'a str, i8, i32, &'a str, Option<&'a str>, Option<[f32; 2]>, Option<i64>);

fn batch(rows: &[Row<'_>]) -> RecordBatch {
    let bytes = |v: [f32; 2]| v.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect::<Vec<u8>>();
    let vectors: Vec<Option<Vec<u8>>> = rows.iter().map(|r| r.5.map(bytes)).collect();
    let hashes: Vec<Option<&[u8]>> = rows.iter().map(|r| r.4.filter(|_| r.1 == 0).map(str::as_bytes)).collect();
    let columns: [(&str, ArrayRef); 9] = [
        ("store_id", Arc::new(StringArray::from_iter_values(rows.iter().map(|r| r.0)))),
        ("kind", Arc::new(Int8Array::from_iter_values(rows.iter().map(|r| r.1)))),
        ("ordinal", Arc::new(Int32Array::from_iter_values(rows.iter().map(|r| r.2)))),
        ("id", Arc::new(StringArray::from_iter_values(rows.iter().map(|r| r.3)))),
        ("text", Arc::new(rows.iter().map(|r| r.4).collect::<StringArray>())),
        ("language", Arc::new(rows.iter().map(|_| Some("en")).collect::<StringArray>())),
        ("content_hash", Arc::new(BinaryArray::from_iter(hashes))),
        ("vector", Arc::new(BinaryArray::from_iter(vectors.iter().map(Option::as_deref)))),
        ("at", Arc::new(rows.iter().map(|r| r.6).collect::<TimestampMicrosecondArray>().with_timezone("UTC"))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true))).unwrap()
}

/// A session in which the table `rows` has a partition for each slice of rows.
fn session(partitions: &[&[Row<'_>]]) -> SessionContext {
    let batches: Vec<Vec<RecordBatch>> = partitions.iter().map(|rows| vec![batch(rows)]).collect();
    let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(4).with_batch_size(3));
    context.register_udaf(super::aggregate());
    super::functions().into_iter().for_each(|f| context.register_udf(f));
    let table = MemTable::try_new(batches[0][0].schema(), batches).unwrap();
    context.register_table("rows", Arc::new(table)).unwrap();
    context
}

fn settings() -> String {
    serde_json::to_string(&Recall::default()).unwrap()
}

/// The SQL of the module's documentation.
fn sorted_sql(settings: &str) -> String {
    let columns = "kind, ordinal, id, text, language, content_hash, vector, at";
    format!(
        "SELECT store_id, unnest(recall({columns}, rn, '{settings}')) AS p FROM (
           SELECT *, row_number() OVER (PARTITION BY store_id ORDER BY kind, ordinal, id) AS rn FROM (
             SELECT store_id, arrow_cast(0, 'Int8') AS kind, ordinal, id, text, language, content_hash, vector, at
             FROM rows WHERE kind = 0
             UNION ALL
             SELECT store_id, arrow_cast(1, 'Int8') AS kind, ordinal, id, text, NULL AS language, NULL AS content_hash,
                    vector, at
             FROM rows WHERE kind = 1)) GROUP BY store_id"
    )
}

/// The same without a window: a plan in two phases.
fn two_phase_sql(settings: &str) -> String {
    let columns = "kind, ordinal, id, text, language, content_hash, vector, at";
    format!("SELECT store_id, unnest(recall({columns}, 0, '{settings}')) AS p FROM rows GROUP BY store_id")
}

/// Flat rows, in order.
fn flat(sql: &str) -> String {
    format!(
        "SELECT store_id, p['request_id'] AS request_id, p['turn_id'] AS turn_id, p['turn_ordinal'] AS turn_ordinal,
                p['reference_at'] AS reference_at, p['pool_position'] AS pool_position, p['rrf_score'] AS rrf_score,
                p['lists'] AS lists
         FROM ({sql}) ORDER BY store_id, request_id, pool_position"
    )
}

async fn run(context: &SessionContext, sql: &str) -> Result<RecordBatch, Error> {
    let frame = context.sql(sql).await?;
    let schema = Arc::clone(frame.schema().inner());
    Ok(concat_batches(&schema, &frame.collect().await?)?)
}

async fn plan(context: &SessionContext, sql: &str) -> String {
    let rows = run(context, &format!("EXPLAIN FORMAT INDENT {sql}")).await.unwrap();
    (0..rows.num_rows()).map(|i| array_value_to_string(rows.column(1), i).unwrap()).collect::<Vec<_>>().join("\n")
}

fn texts(rows: &RecordBatch, column: &str) -> Vec<String> {
    let column = rows.column_by_name(column).unwrap();
    (0..column.len()).map(|i| array_value_to_string(column, i).unwrap()).collect()
}

const NEAR: Option<[f32; 2]> = Some([1.0, 0.0]);
const FAR: Option<[f32; 2]> = Some([0.0, 1.0]);

/// Two stores of equal texts, rows in no order.
const ROWS: [Row<'static>; 9] = [
    ("s2", 1, 0, "q1", Some("cats"), NEAR, Some(9)),
    ("s1", 0, 2, "s1-c", Some("the cat slept"), NEAR, Some(5)),
    ("s2", 0, 0, "s2-a", Some("my cat"), NEAR, Some(1)),
    ("s1", 1, 0, "q1", Some("cats"), NEAR, Some(9)),
    ("s1", 0, 0, "s1-a", Some("my cat"), NEAR, Some(1)),
    ("s1", 0, 1, "s1-b", Some("a dog"), FAR, Some(2)),
    ("s2", 0, 2, "s2-c", Some("the cat slept"), NEAR, Some(5)),
    ("s1", 1, 0, "q2", Some("!!!"), None, None),
    ("s2", 0, 1, "s2-b", Some("a dog"), FAR, Some(2)),
];

#[tokio::test]
async fn stores_of_equal_texts_keep_to_themselves() {
    let context = session(&[&ROWS[..4], &ROWS[4..]]);
    let rows = run(&context, &flat(&sorted_sql(&settings()))).await.unwrap();
    // "my cat" is the shorter of the two that hold a cat, and their vectors are equal. q2 has neither words nor vector.
    assert_eq!(texts(&rows, "store_id"), ["s1", "s1", "s1", "s2", "s2", "s2"]);
    assert_eq!(texts(&rows, "turn_id"), ["s1-a", "s1-c", "s1-b", "s2-a", "s2-c", "s2-b"]);
    assert_eq!(texts(&rows, "request_id"), ["q1"; 6]);
    assert_eq!(texts(&rows, "turn_ordinal"), ["0", "2", "1", "0", "2", "1"]);
    assert_eq!(texts(&rows, "pool_position"), ["1", "2", "3", "1", "2", "3"]);
    let scores = rows.column_by_name("rrf_score").unwrap().as_primitive::<Float64Type>();
    assert_eq!(scores.values()[..3], [2.0 / 61.0, 2.0 / 62.0, 1.0 / 63.0]);
    let at = rows.column_by_name("reference_at").unwrap().as_primitive::<TimestampMicrosecondType>();
    assert_eq!(at.value(0), 9);
}

#[tokio::test]
async fn one_store_is_held_at_a_time() {
    let context = session(&[&ROWS[..4], &ROWS[4..]]);
    let plan = plan(&context, &sorted_sql(&settings())).await;
    let aggregates: Vec<&str> = plan.lines().filter(|l| l.contains("AggregateExec")).collect();
    assert_eq!(aggregates.len(), 1, "{plan}");
    let line = aggregates[0];
    assert!(line.contains("mode=Single") && line.contains("ordering_mode=Sorted"), "{plan}");
}

#[tokio::test]
async fn a_plan_in_two_phases_gives_the_same() {
    // The rows of both stores lie in all four partitions.
    let context = session(&[&ROWS[..2], &ROWS[2..4], &ROWS[4..7], &ROWS[7..]]);
    let sql = two_phase_sql(&settings());
    let plan = plan(&context, &sql).await;
    assert!(plan.contains("mode=Partial") && plan.contains("mode=FinalPartitioned"), "{plan}");
    let two = run(&context, &flat(&sql)).await.unwrap();
    let one = run(&context, &flat(&sorted_sql(&settings()))).await.unwrap();
    assert_eq!(one.num_rows(), 6);
    assert_eq!(one.columns(), two.columns());
}

#[tokio::test]
async fn the_order_of_rows_does_not_matter() {
    let mut reversed = ROWS;
    reversed.reverse();
    let sql = flat(&two_phase_sql(&settings()));
    let a = run(&session(&[&ROWS]), &sql).await.unwrap();
    let b = run(&session(&[&reversed]), &sql).await.unwrap();
    assert_eq!(a, b);
}

#[tokio::test]
async fn a_store_without_requests_has_an_empty_list() {
    let context = session(&[&[("s", 0, 0, "a", Some("cat"), None, None)]]);
    let sql = two_phase_sql(&settings()).replace("unnest(", "(");
    let rows = run(&context, &sql).await.unwrap();
    let pools = rows.column(1).as_list::<i32>();
    assert_eq!((pools.len(), pools.null_count(), pools.value(0).len()), (1, 0, 0));
}

#[tokio::test]
async fn places_are_told_by_the_lists_name() {
    let context = session(&[&ROWS]);
    let sql = format!(
        "SELECT turn_id, list_score(lists, 'bm25') AS bs, list_rank(lists, 'bm25') AS br, list_rank(lists, 'dense') AS dr,
                list_score(lists, 'dense') AS ds, list_rank(lists, 'other') AS none, list_score(NULL, 'bm25') AS nothing
         FROM ({}) WHERE store_id = 's1' ORDER BY turn_id",
        flat(&sorted_sql(&settings()))
    );
    let rows = run(&context, &sql).await.unwrap();
    let ints = |name: &str| rows.column_by_name(name).unwrap().as_primitive::<Int32Type>().iter().collect::<Vec<_>>();
    let floats =
        |name: &str| rows.column_by_name(name).unwrap().as_primitive::<Float64Type>().iter().collect::<Vec<_>>();
    assert_eq!(texts(&rows, "turn_id"), ["s1-a", "s1-b", "s1-c"]);
    assert_eq!(ints("br"), [Some(1), None, Some(2)]);
    assert_eq!(ints("dr"), [Some(1), Some(3), Some(2)]);
    assert_eq!(floats("ds"), [Some(1.0), Some(0.0), Some(1.0)]);
    assert!(floats("bs")[1].is_none() && floats("bs")[0] > floats("bs")[2]);
    assert_eq!((ints("none"), floats("nothing")), (vec![None; 3], vec![None; 3]));
}

#[tokio::test]
async fn lists_of_one_kind_stand_under_their_names() {
    let context = session(&[&[
        ("s", 0, 0, "a", Some("dogs dogs"), None, None),
        ("s", 0, 1, "b", Some("dog"), None, None),
        ("s", 1, 0, "q", Some("dog"), None, None),
    ]]);
    let text = "[[recall.lists]]\nkind = \"bm25\"\nname = \"stems\"\n
                [[recall.lists]]\nkind = \"bm25\"\nname = \"words\"\nstem = false";
    let recall = serde_json::to_string(&System::parse("s", text).unwrap().recall).unwrap();
    let sql = format!(
        "SELECT turn_id, list_rank(lists, 'stems') AS stems, list_rank(lists, 'words') AS words,
                list_rank(lists, 'bm25') AS bm25, lists[1]['name'] AS first
         FROM ({}) ORDER BY pool_position",
        flat(&sorted_sql(&recall))
    );
    let rows = run(&context, &sql).await.unwrap();
    // As stems, a has the word twice; as words, only b has it.
    assert_eq!(texts(&rows, "turn_id"), ["b", "a"]);
    assert_eq!(
        (texts(&rows, "stems"), texts(&rows, "words")),
        (vec!["2".into(), "1".into()], vec!["1".into(), "".into()])
    );
    assert_eq!((texts(&rows, "bm25"), texts(&rows, "first")), (vec![String::new(); 2], vec!["stems".to_string(); 2]));
}

#[tokio::test]
async fn a_fault_is_named() {
    let context = session(&[&ROWS]);
    let e = run(&context, &two_phase_sql("{\"pool\": 1}")).await.unwrap_err();
    assert!(e.class == Class::Usage && e.to_string().contains("pool"), "{e}");
    let e = run(&context, &two_phase_sql("x").replace("'x'", "text")).await.unwrap_err();
    assert!(e.class == Class::Usage && e.to_string().contains("settings"), "{e}");
    let e = run(&context, "SELECT recall(kind, ordinal) FROM rows").await.unwrap_err();
    assert!(e.to_string().contains("takes 10 arguments"), "{e}");

    let context = session(&[&[("s", 2, 0, "a", Some("cat"), None, None)]]);
    let e = run(&context, &two_phase_sql(&settings())).await.unwrap_err();
    assert!(e.class == Class::Data && e.to_string().contains("kind 2"), "{e}");
}

#[tokio::test]
async fn texts_of_every_arrow_type_are_read() {
    let context = session(&[&ROWS]);
    let expected = run(&context, &flat(&two_phase_sql(&settings()))).await.unwrap();
    assert_eq!(expected.num_rows(), 6);
    for (text, bytes) in [("LargeUtf8", "LargeBinary"), ("Utf8View", "BinaryView")] {
        let cast = format!(
            "(SELECT store_id, kind, ordinal, arrow_cast(id, '{text}') AS id, arrow_cast(text, '{text}') AS text,
                     arrow_cast(language, '{text}') AS language, arrow_cast(vector, '{bytes}') AS vector,
                     arrow_cast(content_hash, '{bytes}') AS content_hash, at FROM rows)"
        );
        let sql = two_phase_sql(&settings()).replace("FROM rows", &format!("FROM {cast}"));
        let rows = run(&context, &flat(&sql)).await.unwrap();
        assert_eq!(expected.columns(), rows.columns(), "{text}");
    }
}
