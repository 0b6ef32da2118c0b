//! A night in a folder of its own: inputs, a lake, the binary, and SQL over what it made.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray};
use memslate::engine::{self, Functions, Models, Settings};
use memslate::lake::Lake;
use memslate::schema;
use parquet::arrow::ArrowWriter;

/// One turn of an input.
#[derive(Debug, Clone, Default)]
pub struct Turn {
    pub tenant: Option<String>,
    pub store: Option<String>,
    pub session: Option<String>,
    pub id: Option<String>,
    pub at: Option<String>,
    pub role: Option<String>,
    pub content: Option<String>,
}

/// A turn said by the user.
pub fn turn(store: &str, session: &str, id: &str, at: &str, content: &str) -> Turn {
    let some = |s: &str| Some(s.to_string());
    Turn {
        tenant: None,
        store: some(store),
        session: some(session),
        id: some(id),
        at: some(at),
        role: some("user"),
        content: some(content),
    }
}

/// store, request, question, asked_at.
pub type Request<'a> = (&'a str, &'a str, &'a str, Option<&'a str>);

/// store, request, turn.
pub type Label<'a> = (&'a str, &'a str, &'a str);

pub struct Night {
    dir: tempfile::TempDir,
}

/// What a command came to.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    #[track_caller]
    pub fn ends_with(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e}: {}", self.stdout))
    }

    /// A field of one table of a run's summary.
    pub fn table(&self, table: &str, field: &str) -> u64 {
        let summary = self.json();
        let tables = summary["tables"].as_array().expect("tables").clone();
        let found = tables.iter().find(|t| t["table"] == table).expect("the table is in the summary");
        found[field].as_u64().expect("a number")
    }
}

impl Night {
    pub fn new() -> Night {
        let night = Night { dir: tempfile::tempdir().expect("a temporary folder") };
        std::fs::create_dir_all(night.input()).expect("a folder");
        night
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }
    pub fn input(&self) -> PathBuf {
        self.path().join("input")
    }
    pub fn lake(&self) -> PathBuf {
        self.path().join("lake")
    }

    pub fn turns(&self, turns: &[Turn]) -> &Night {
        write(&self.input().join("turns.parquet"), &turns_batch(turns));
        self
    }

    pub fn requests(&self, requests: &[Request]) -> &Night {
        self.requests_of(&requests.iter().map(|r| (None, *r)).collect::<Vec<_>>())
    }

    /// Requests with their tenants.
    pub fn requests_of(&self, requests: &[(Option<&str>, Request)]) -> &Night {
        let column = |f: &dyn Fn(&Request) -> Option<String>| text(requests.iter().map(|(_, r)| f(r)).collect());
        let batch = RecordBatch::try_from_iter_with_nullable([
            ("tenant_id", tenants(requests), true),
            ("store_id", column(&|r| Some(r.0.into())), true),
            ("request_id", column(&|r| Some(r.1.into())), true),
            ("question", column(&|r| Some(r.2.into())), true),
            ("asked_at", column(&|r| r.3.map(str::to_string)), true),
            ("split", column(&|_| Some("dev".into())), true),
        ]);
        write(&self.input().join("requests.parquet"), &batch.expect("a batch"));
        self
    }

    pub fn labels(&self, labels: &[Label]) -> &Night {
        self.labels_of(&labels.iter().map(|l| (None, *l)).collect::<Vec<_>>())
    }

    /// Labels with their tenants.
    pub fn labels_of(&self, labels: &[(Option<&str>, Label)]) -> &Night {
        let column = |f: &dyn Fn(&Label) -> String| text(labels.iter().map(|(_, l)| Some(f(l))).collect());
        let batch = RecordBatch::try_from_iter_with_nullable([
            ("tenant_id", tenants(labels), true),
            ("store_id", column(&|l| l.0.into()), true),
            ("request_id", column(&|l| l.1.into()), true),
            ("turn_id", column(&|l| l.2.into()), true),
            ("relevance", Arc::new(Int32Array::from(vec![1; labels.len()])) as ArrayRef, true),
        ]);
        write(&self.input().join("labels.parquet"), &batch.expect("a batch"));
        self
    }

    /// The binary's arguments for a run with the small test model, in the order of the fused lists.
    pub fn run_arguments(&self, extra: &[&str]) -> Vec<String> {
        let text = |p: PathBuf| p.display().to_string();
        let mut all: Vec<String> = ["run", "jobs/nightly.toml", "--json", "--input"].map(str::to_string).to_vec();
        all.extend([text(self.input()), "--lake".into(), text(self.lake())]);
        if !extra.contains(&"--system") {
            all.extend(["--system".to_string(), "recall_order".to_string()]);
        }
        if !extra.iter().any(|e| e.starts_with("encoder=")) {
            all.extend(["--set".to_string(), format!("encoder={}", model("bert_encoder"))]);
        }
        all.extend(extra.iter().map(|e| e.to_string()));
        all
    }

    pub fn run(&self, extra: &[&str]) -> Ran {
        memslate(&self.run_arguments(extra))
    }

    /// Copies the job with its SELECTs and systems into the night's folder, and gives the copy's folder.
    pub fn own_jobs(&self) -> PathBuf {
        let folder = self.path().join("jobs");
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("jobs"), &folder);
        folder
    }

    /// A run of the nightly job of another folder of jobs.
    pub fn run_job(&self, jobs: &Path, extra: &[&str]) -> Ran {
        let mut arguments = self.run_arguments(extra);
        arguments[1] = jobs.join("nightly.toml").display().to_string();
        memslate(&arguments)
    }

    /// Another command on the lake.
    pub fn on_lake(&self, command: &str, extra: &[&str]) -> Ran {
        let mut all = vec![command.to_string(), "--lake".to_string(), self.lake().display().to_string()];
        all.extend(extra.iter().map(|e| e.to_string()));
        memslate(&all)
    }

    /// Rows of a SELECT over the lake's tables, as text.
    pub fn rows(&self, sql: &str) -> Vec<Vec<String>> {
        rows(&self.lake(), sql)
    }

    /// The one column of a SELECT.
    pub fn column(&self, sql: &str) -> Vec<String> {
        self.rows(sql).into_iter().map(|mut r| r.remove(0)).collect()
    }

    /// All that the tables say: every row of every table of data, without where and when it was written.
    pub fn contents(&self) -> Vec<(&'static str, Vec<Vec<String>>)> {
        let tables: Vec<_> = schema::TABLES.iter().map(|t| t.name).filter(|name| *name != "runs").collect();
        let selects: Vec<String> = tables.iter().map(|name| format!("SELECT * FROM {name}")).collect();
        let mut all: Vec<_> = tables.into_iter().zip(all_rows(&self.lake(), &selects)).collect();
        all.iter_mut().for_each(|(_, rows)| rows.sort());
        all
    }
}

pub fn rows(lake: &Path, sql: &str) -> Vec<Vec<String>> {
    all_rows(lake, &[sql.to_string()]).remove(0)
}

/// The rows of each SELECT over a lake's tables.
fn all_rows(lake: &Path, selects: &[String]) -> Vec<Vec<Vec<String>>> {
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    runtime.block_on(async {
        let lake = Lake::open(&lake.display().to_string()).await.expect("a lake");
        let context = engine::session(&Settings::default(), &Functions::new(Models::default())).expect("a session");
        for table in schema::TABLES {
            engine::register(&context, &lake, table, &[]).await.expect("a table");
        }
        let mut all = Vec::new();
        for sql in selects {
            let batches = engine::collect(&context, sql, &[]).await.unwrap_or_else(|e| panic!("{sql}: {e}"));
            all.push(as_text(&batches));
        }
        all
    })
}

fn as_text(batches: &[RecordBatch]) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let cell = |c: &ArrayRef| arrow::util::display::array_value_to_string(c, row).expect("printable");
            all.push(batch.columns().iter().map(cell).collect());
        }
    }
    all
}

/// Runs the binary in the repository's root.
pub fn memslate(arguments: &[impl AsRef<std::ffi::OsStr>]) -> Ran {
    let output = command(arguments).output().expect("the binary runs");
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

pub fn command(arguments: &[impl AsRef<std::ffi::OsStr>]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memslate"));
    command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null()).env_remove("RUST_BACKTRACE");
    command
}

/// The folder of a small seeded model.
pub fn model(name: &str) -> String {
    format!("{}/tests/data/models/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Copies a folder with all that is in it.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

pub fn text(values: Vec<Option<String>>) -> ArrayRef {
    Arc::new(StringArray::from(values))
}

fn tenants<T>(rows: &[(Option<&str>, T)]) -> ArrayRef {
    text(rows.iter().map(|(tenant, _)| tenant.map(str::to_string)).collect())
}

/// The batch with another column of that name.
pub fn with_column(batch: &RecordBatch, name: &str, column: ArrayRef) -> RecordBatch {
    let schema = batch.schema();
    let columns = schema.fields().iter().zip(batch.columns()).map(|(field, old)| {
        let new = if field.name() == name { column.clone() } else { old.clone() };
        (field.name(), new, true)
    });
    RecordBatch::try_from_iter_with_nullable(columns).expect("a batch")
}

pub fn without_column(batch: &RecordBatch, name: &str) -> RecordBatch {
    let kept: Vec<usize> = (0..batch.num_columns()).filter(|i| batch.schema().field(*i).name() != name).collect();
    batch.project(&kept).expect("columns")
}

pub fn turns_batch(turns: &[Turn]) -> RecordBatch {
    let column = |f: &dyn Fn(&Turn) -> Option<String>| text(turns.iter().map(f).collect());
    let nothing = || text(vec![None; turns.len()]);
    let numbers = || Arc::new(Int32Array::from(vec![None; turns.len()])) as ArrayRef;
    RecordBatch::try_from_iter_with_nullable([
        ("tenant_id", column(&|t| t.tenant.clone()), true),
        ("store_id", column(&|t| t.store.clone()), true),
        ("session_id", column(&|t| t.session.clone()), true),
        ("turn_id", column(&|t| t.id.clone()), true),
        ("turn_ordinal", numbers(), true),
        ("session_ordinal", numbers(), true),
        ("position", numbers(), true),
        ("spoken_at", column(&|t| t.at.clone()), true),
        ("added_at", nothing(), true),
        ("role", column(&|t| t.role.clone()), true),
        ("speaker", nothing(), true),
        ("content", column(&|t| t.content.clone()), true),
        ("language", nothing(), true),
    ])
    .expect("a batch")
}

pub fn write(file: &Path, batch: &RecordBatch) {
    let out = std::fs::File::create(file).expect("a file");
    let mut writer = ArrowWriter::try_new(out, batch.schema(), None).expect("a writer");
    writer.write(batch).expect("rows");
    writer.close().expect("a footer");
}

/// A store of `n` turns in sessions of ten, a day apart, about different things.
pub fn history(store: &str, n: usize) -> Vec<Turn> {
    let things = ["kettle", "violin", "passport", "garden", "invoice", "bicycle", "recipe", "dentist", "museum"];
    (0..n)
        .map(|i| {
            let (session, thing) = (i / 10, things[i % things.len()]);
            let at = format!("2024-03-{:02}T10:{:02}:00Z", session + 1, i % 10);
            turn(
                store,
                &format!("{store}-s{session}"),
                &format!("{store}-t{i}"),
                &at,
                &format!("note {i} about the {thing}"),
            )
        })
        .collect()
}
