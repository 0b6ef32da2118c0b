//! What each target does with its bytes. A target panics where something does not hold; an input that is refused with
//! an error is as good as one that is read.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Int32Type};
use memslate::engine::{self, Functions, Models, Settings};
use memslate::error::Class;
use memslate::evaluate::{Bootstrap, Inputs, Tables, completeness, explain};
use memslate::import::{Format, Options, Report, import};
use memslate::lake::DataFile;
use memslate::schema;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

/// A target's name and function.
pub type Target = (&'static str, fn(&[u8]));

pub const ALL: [Target; 5] =
    [("locomo", locomo), ("longmemeval", longmemeval), ("beam", beam), ("chat", chat), ("slates", slates)];

/// Where a format reads two files, this line stands between them.
pub const NEXT_FILE: &[u8] = b"\n%%%\n";

pub fn locomo(bytes: &[u8]) {
    of_one_file(Format::Locomo, bytes);
}

pub fn longmemeval(bytes: &[u8]) {
    of_one_file(Format::LongMemEval, bytes);
}

/// A chat, and its questions.
pub fn beam(bytes: &[u8]) {
    let (chat, questions) = split(bytes);
    let folder = scratch();
    let one = folder.path().join("7");
    std::fs::create_dir(&one).unwrap();
    std::fs::write(one.join("chat.json"), chat).unwrap();
    std::fs::write(one.join("probing_questions.json"), questions).unwrap();
    imported(Format::Beam, folder.path(), folder.path());
}

/// Lines of conversations, and lines of requests.
pub fn chat(bytes: &[u8]) {
    let (conversations, requests) = split(bytes);
    let folder = scratch();
    std::fs::write(folder.path().join("a.jsonl"), conversations).unwrap();
    std::fs::write(folder.path().join("requests.jsonl"), requests).unwrap();
    imported(Format::Chat, folder.path(), folder.path());
}

/// The first byte says what the others are: a Parquet file of slates, or how to make a batch of them.
pub fn slates(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let batches = if kind % 2 == 0 { slates_file(bytes) } else { vec![slates_batch(bytes)] };
    read_slates(&batches);
}

// --- Importers ---

fn of_one_file(format: Format, bytes: &[u8]) {
    let folder = scratch();
    let file = folder.path().join("in.json");
    std::fs::write(&file, bytes).unwrap();
    imported(format, &file, folder.path());
}

fn split(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.windows(NEXT_FILE.len()).position(|w| w == NEXT_FILE) {
        Some(at) => (&bytes[..at], &bytes[at + NEXT_FILE.len()..]),
        None => (bytes, b"{}"),
    }
}

/// In memory where there is such a folder.
fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

/// Imports, and reads back what was written.
fn imported(format: Format, path: &Path, folder: &Path) {
    let out = folder.join("out");
    match import(format, path, &out, &Options::default()) {
        Ok(report) => holds(&out, &report),
        Err(e) => {
            assert!(e.class == Class::Data, "{e:?}");
            assert!(!out.exists(), "something was left behind: {e}");
        }
    }
}

/// What is written is what was reported, each row has a key of its own, and labels name a turn and a request.
fn holds(out: &Path, report: &Report) {
    let (turns, requests, labels) = (table(out, "turns"), table(out, "requests"), table(out, "labels"));
    assert_eq!(rows(&turns) as u64, report.turns);
    assert_eq!(rows(&requests) as u64, report.requests);
    assert_eq!(rows(&labels) as u64, report.labels);
    let rejects = out.join("rejects.parquet").exists().then(|| rows(&table(out, "rejects")));
    assert_eq!(rejects.unwrap_or(0) as u64, report.rejected());
    let turn_ids = keys(&turns, &["tenant_id", "store_id", "turn_id"]);
    let request_ids = keys(&requests, &["tenant_id", "store_id", "request_id"]);
    for label in keys(&labels, &["tenant_id", "store_id", "request_id", "turn_id"]) {
        let [tenant, store, request, turn] = &label[..] else { unreachable!("four columns") };
        assert!(request_ids.contains(&[tenant, store, request].map(String::clone)[..]), "{label:?}");
        assert!(turn_ids.contains(&[tenant, store, turn].map(String::clone)[..]), "{label:?}");
    }
    let mut next: HashMap<(String, String), i32> = HashMap::new();
    for batch in &turns {
        let (tenants, stores) = (text(batch, "tenant_id"), text(batch, "store_id"));
        let ordinals = batch.column_by_name("turn_ordinal").unwrap().as_primitive::<Int32Type>().clone();
        for (row, ordinal) in ordinals.values().iter().enumerate() {
            let next = next.entry((tenants[row].clone(), stores[row].clone())).or_default();
            assert_eq!(ordinal, next);
            *next += 1;
        }
    }
}

fn table(out: &Path, name: &str) -> Vec<RecordBatch> {
    let file = File::open(out.join(format!("{name}.parquet"))).unwrap();
    ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap().map(Result::unwrap).collect()
}

fn rows(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::num_rows).sum()
}

/// A text column without nulls.
fn text(batch: &RecordBatch, name: &str) -> Vec<String> {
    let column = batch.column_by_name(name).unwrap().as_string::<i32>();
    column.iter().map(|value| value.expect("a key").to_string()).collect()
}

/// The keys of all rows, of which no two may be equal.
fn keys(batches: &[RecordBatch], columns: &[&str]) -> HashSet<Vec<String>> {
    let mut all = HashSet::new();
    for batch in batches {
        let columns: Vec<_> = columns.iter().map(|c| text(batch, c)).collect();
        for row in 0..batch.num_rows() {
            let key: Vec<String> = columns.iter().map(|c| c[row].clone()).collect();
            assert!(all.insert(key.clone()), "{key:?} stands twice");
        }
    }
    all
}

// --- Slates ---

/// The bytes as the lake's file of slates, read by the engine; nothing where it refuses them.
fn slates_file(bytes: &[u8]) -> Vec<RecordBatch> {
    let folder = scratch();
    let path = folder.path().join("slates.parquet");
    std::fs::write(&path, bytes).unwrap();
    let place = memslate::lake::Place::parse(&path.display().to_string()).unwrap();
    let partition = vec!["any".to_string(), "0".to_string()];
    let file = DataFile { path: place.path.clone(), size: bytes.len() as u64, rows: 1, partition };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let read = runtime.block_on(async {
        let context = engine::session(&Settings::default(), &Functions::new(Models::default()))?;
        let root = place.root_url();
        context.register_object_store(&root, place.store.clone());
        context.register_table("slates", engine::files(&schema::SLATES, &root, vec![file])?)?;
        engine::collect(&context, "SELECT * FROM slates", &[]).await
    });
    read.unwrap_or_default()
}

/// A batch whose columns are, as the bytes have it, missing, of another type, or with values that nobody expects.
fn slates_batch(bytes: &[u8]) -> RecordBatch {
    let mut bytes = bytes.iter().copied();
    let n = usize::from(bytes.next().unwrap_or(0) % 5);
    let mut columns: Vec<(&str, ArrayRef)> = Vec::new();
    for column in schema::SLATES.columns {
        let kind = bytes.next().unwrap_or(0);
        let values: Vec<Option<String>> = (0..n).map(|_| value(bytes.next().unwrap_or(0))).collect();
        let texts: ArrayRef = Arc::new(arrow::array::StringArray::from(values));
        let wanted = column.kind.data_type();
        let types = [DataType::Utf8, DataType::Int64, DataType::LargeUtf8, DataType::Binary, DataType::Null, wanted];
        let made = match kind {
            0..=15 => continue,
            16..=63 => as_type(&texts, &types[usize::from(kind) % types.len()]),
            _ => as_type(&texts, &column.kind.data_type()),
        };
        columns.push((column.name, made));
    }
    if columns.is_empty() {
        columns.push(("nothing", arrow::array::new_null_array(&DataType::Null, n)));
    }
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, c)| (name, c, true))).unwrap()
}

/// Values of which some are ids of [`known`].
fn value(byte: u8) -> Option<String> {
    let all = ["", "a", "b", "q", "r", "t0", "t1", "ok", "empty", "degraded", "0", "7", "-1", "2147483648", "t9"];
    all.get(usize::from(byte) % (all.len() + 1)).map(ToString::to_string)
}

/// The texts as another type; nulls where they cannot be.
fn as_type(texts: &ArrayRef, to: &DataType) -> ArrayRef {
    if let DataType::List(item) = to {
        let lengths = (0..texts.len()).map(|i| usize::from(i == 0) * texts.len());
        let offsets = arrow::buffer::OffsetBuffer::from_lengths(lengths);
        let nulls = texts.nulls().cloned();
        return Arc::new(arrow::array::ListArray::new(item.clone(), offsets, as_type(texts, item.data_type()), nulls));
    }
    arrow::compute::cast(texts, to).unwrap_or_else(|_| arrow::array::new_null_array(to, texts.len()))
}

/// Store `a` with two turns and the requests `q` and `r`, both answered by `t0`.
fn known() -> [RecordBatch; 3] {
    let text = |values: &[&str]| Arc::new(arrow::array::StringArray::from(values.to_vec())) as ArrayRef;
    let ints = |values: &[i32]| Arc::new(arrow::array::Int32Array::from(values.to_vec())) as ArrayRef;
    let nothing = |table: &schema::Table, name: &str, n| {
        let column = table.columns.iter().find(|c| c.name == name).expect("a column");
        arrow::array::new_null_array(&column.kind.data_type(), n)
    };
    let requests = RecordBatch::try_from_iter_with_nullable([
        ("tenant_id", text(&["", ""]), true),
        ("store_id", text(&["a", "a"]), true),
        ("request_id", text(&["q", "r"]), true),
        ("question", text(&["what", "who"]), true),
        ("split", text(&["dev", "test"]), true),
        ("asked_at", nothing(&schema::REQUESTS, "asked_at", 2), true),
    ]);
    let labels = RecordBatch::try_from_iter_with_nullable([
        ("tenant_id", text(&["", ""]), true),
        ("store_id", text(&["a", "a"]), true),
        ("request_id", text(&["q", "r"]), true),
        ("turn_id", text(&["t0", "t0"]), true),
        ("relevance", ints(&[1, 1]), true),
    ]);
    let turns = RecordBatch::try_from_iter_with_nullable([
        ("tenant_id", text(&["", ""]), true),
        ("store_id", text(&["a", "a"]), true),
        ("session_id", text(&["s", "s"]), true),
        ("turn_id", text(&["t0", "t1"]), true),
        ("turn_ordinal", ints(&[0, 1]), true),
        ("session_ordinal", ints(&[0, 0]), true),
        ("tokens", ints(&[2, 2]), true),
        ("spoken_at", nothing(&schema::TURNS, "spoken_at", 2), true),
        ("role", text(&["user", "assistant"]), true),
        ("speaker", nothing(&schema::TURNS, "speaker", 2), true),
        ("content", text(&["the kettle", "is red"]), true),
        ("content_hash", nothing(&schema::TURNS, "content_hash", 2), true),
    ]);
    [requests, labels, turns].map(|batch| batch.expect("columns of one length"))
}

/// Measures and explains; neither may say that more is complete than there are questions.
fn read_slates(batches: &[RecordBatch]) {
    let [requests, labels, turns] = known().map(|b| [b]);
    let tables = Tables { requests: &requests, labels: &labels, turns: &turns, pools: &[], slates: batches };
    let bootstrap = Bootstrap { draws: 10, ..Bootstrap::default() };
    if let Ok(report) = completeness(&tables, bootstrap) {
        let of_all = report.splits.iter().find(|s| s.split == "all").expect("all splits together");
        assert!(of_all.requests == 2 && of_all.classes.iter().all(|c| c.n_slate <= c.n && c.n <= 2));
        assert!(!report.to_string().is_empty());
    }
    let one = [requests[0].slice(0, 1)];
    let inputs = Inputs { requests: &one, labels: &labels, turns: &turns, slates: batches, ..Inputs::default() };
    if let Ok(explanation) = explain(&inputs, |_, _| Ok(1)) {
        assert_eq!(explanation.request_id, "q");
        assert!(!explanation.to_string().is_empty());
    }
}
