//! Commits of several writers: each unit is committed once, and nobody's rows are lost.

use std::sync::Arc;

use arrow::array::{Int32Array, Int64Array, RecordBatch, StringArray};
use futures::stream;

use super::{Lake, Outcome, Pending, Snapshot, Unit};
use crate::schema;

fn unit(shard: i32, fingerprint: i64) -> Unit {
    Unit { id: format!("labels/{shard}"), fingerprint, partition: vec![shard.to_string()] }
}

fn row(turn: &str) -> RecordBatch {
    let text = |s: &str| Arc::new(StringArray::from(vec![s])) as arrow::array::ArrayRef;
    let columns = vec![
        text(""),
        text("store"),
        text("request"),
        text(turn),
        Arc::new(Int32Array::from(vec![1])) as _,
        Arc::new(Int64Array::from(vec![7])) as _,
    ];
    RecordBatch::try_new(schema::LABELS.file_schema(), columns).unwrap()
}

async fn write(snapshot: &Snapshot, shard: i32, fingerprint: i64, turn: &str) -> Pending {
    snapshot.write(unit(shard, fingerprint), stream::iter([Ok(row(turn))])).await.unwrap()
}

fn committed(outcome: Outcome) -> Snapshot {
    match outcome {
        Outcome::Committed(snapshot) => snapshot,
        Outcome::Lost(_) => panic!("the commit was lost"),
    }
}

async fn lake(dir: &tempfile::TempDir) -> Lake {
    Lake::open_or_create(&dir.path().join("lake").display().to_string(), Some(4)).await.unwrap()
}

#[tokio::test]
async fn a_unit_is_done_when_it_is_committed() {
    let dir = tempfile::tempdir().unwrap();
    let lake = lake(&dir).await;
    let table = lake.table(&schema::LABELS).await.unwrap();
    let pending = write(&table, 1, -5, "t").await;
    // Laid down, and seen by nobody.
    assert_eq!(lake.table(&schema::LABELS).await.unwrap().files(&[]).unwrap(), []);
    committed(table.commit(&[pending], &[("ingest/labels", 9)]).await.unwrap());
    let now = lake.table(&schema::LABELS).await.unwrap();
    assert_eq!(now.files(&["1"]).unwrap().len(), 1);
    assert_eq!((now.files(&["1"]).unwrap()[0].rows, now.files(&["2"]).unwrap().len()), (1, 0));
    assert_eq!(now.done("labels/1").await.unwrap(), Some(-5));
    assert_eq!((now.done("ingest/labels").await.unwrap(), now.done("labels/2").await.unwrap()), (Some(9), None));
    // Again, with no rows: the partition is emptied, and no file is without rows.
    let empty = now.write(unit(1, 6), stream::empty()).await.unwrap();
    let now = committed(now.commit(&[empty], &[]).await.unwrap());
    assert_eq!((now.files(&[]).unwrap().len(), now.done("labels/1").await.unwrap()), (0, Some(6)));
}

#[tokio::test]
async fn writers_of_different_shards_do_not_disturb_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let table = lake(&dir).await.table(&schema::LABELS).await.unwrap();
    let (one, two) = (write(&table, 1, 1, "one").await, write(&table, 2, 1, "two").await);
    committed(table.commit(&[one], &[]).await.unwrap());
    let now = committed(table.commit(&[two], &[]).await.unwrap());
    assert_eq!(now.files(&[]).unwrap().len(), 2);
}

#[tokio::test]
async fn the_second_writer_of_a_shard_loses_and_removes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let table = lake(&dir).await.table(&schema::LABELS).await.unwrap();
    let (mine, theirs) = (write(&table, 1, 1, "mine").await, write(&table, 1, 2, "theirs").await);
    let other = write(&table, 2, 1, "other").await;
    let theirs = committed(table.commit(&[theirs], &[]).await.unwrap());
    let kept = theirs.files(&["1"]).unwrap();
    // From the snapshot that it was computed from, and from a younger one that has taken in the other's commit.
    assert!(matches!(table.commit(std::slice::from_ref(&mine), &[]).await.unwrap(), Outcome::Lost(_)));
    let younger = committed(table.commit(&[other], &[]).await.unwrap());
    match younger.commit(&[mine], &[]).await.unwrap() {
        Outcome::Lost(now) => assert_eq!(now.files(&["1"]).unwrap(), kept),
        Outcome::Committed(_) => panic!("another writer's rows were replaced by rows that never saw them"),
    }
}
