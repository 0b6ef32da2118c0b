//! Runs that are ended at a chosen moment, and what the next run must make of what they left.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::support::{Night, Ran, Turn, command, history, model, turn};

const STORES: usize = 20;
/// Tables of which every committed row is a row that the next run need not compute.
const DERIVED: [&str; 6] = ["embeddings", "pools", "scores", "features", "rankings", "slates"];

type Contents = Vec<(&'static str, Vec<Vec<String>>)>;

/// Random numbers from a seed: xorshift.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Below `n`.
    pub fn roll(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n.max(1)
    }
}

/// When a run is ended.
#[derive(Debug, Clone, Copy)]
pub enum Moment {
    /// A part of an undisturbed run's time, in thousandths.
    Time(usize),
    /// Some microseconds after this part of its files is laid down, in thousandths: files come in bursts, and so this is
    /// close to commits.
    Files(usize, usize),
}

impl Moment {
    /// By turns of the two kinds, so that each is spread over a run.
    pub fn of(n: usize, total: usize, dice: &mut Dice) -> Moment {
        let thousandths = (n * 1000 + dice.roll(1000)) / total;
        if n.is_multiple_of(2) { Moment::Time(thousandths) } else { Moment::Files(thousandths, dice.roll(5000)) }
    }
}

/// A run that nobody ended.
pub struct Whole {
    contents: Contents,
    files: usize,
    time: Duration,
}

/// The night's inputs: stores with questions, a row that is set aside, a store that is not there.
pub fn night() -> Night {
    let night = Night::new();
    let names: Vec<String> = (0..STORES).map(|i| format!("store{i}")).collect();
    let mut turns: Vec<Turn> = names.iter().flat_map(|n| history(n, 12)).collect();
    turns.push(Turn { role: Some("narrator".into()), ..turn("store3", "s", "bad", "2024-01-01", "said by nobody") });
    let mut requests: Vec<_> = names.iter().map(|n| (n.as_str(), "q", "the bicycle", None)).collect();
    requests.push(("nowhere", "q", "the kettle", None));
    let labels: Vec<(String, String)> = names.iter().map(|n| (n.clone(), format!("{n}-t5"))).collect();
    let labels: Vec<_> = labels.iter().map(|(s, t)| (s.as_str(), "q", t.as_str())).collect();
    night.turns(&turns).requests(&requests).labels(&labels);
    night
}

/// With a cross-encoder, whose probability ranks.
pub fn arguments(night: &Night) -> Vec<String> {
    let scorer = format!("scorer={}", model("bert_scorer"));
    let set = ["score.method=cross_encoder", "rank.column=ce_prob", "rank.descending=true", &scorer];
    night.run_arguments(&set.iter().flat_map(|s| ["--set", s]).collect::<Vec<_>>())
}

pub fn start(night: &Night) -> Child {
    command(&arguments(night)).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// A run to its end; one row is set aside.
fn run(night: &Night) -> Ran {
    super::support::memslate(&arguments(night)).ends_with(3)
}

impl Whole {
    pub fn new() -> Whole {
        let night = night();
        let began = Instant::now();
        run(&night);
        let time = began.elapsed();
        let (contents, files) = (night.contents(), files_made(&night.lake()));
        assert!(files > 60, "only {files} files: the moments would not be apart");
        // No run makes judgements.
        let empty = contents.iter().filter(|(table, rows)| rows.is_empty() && !["runs", "judgements"].contains(table));
        assert_eq!(empty.map(|(table, _)| *table).collect::<Vec<_>>(), [""; 0]);
        Whole { contents, files, time }
    }

    /// Starts a run and ends it with SIGKILL; whether it was alive till then.
    pub fn kill(&self, night: &Night, moment: Moment) -> bool {
        let before = files_made(&night.lake());
        let began = Instant::now();
        let mut run = start(night);
        let reached = |part: usize| files_made(&night.lake()) >= before + part * (self.files - before) / 1000;
        let due = |run: &mut Child| {
            let now = match moment {
                Moment::Time(part) => began.elapsed() >= self.time * part as u32 / 1000,
                Moment::Files(part, _) => reached(part),
            };
            now || run.try_wait().unwrap().is_some()
        };
        while !due(&mut run) {
            std::thread::sleep(Duration::from_micros(500));
        }
        if let Moment::Files(_, microseconds) = moment {
            std::thread::sleep(Duration::from_micros(microseconds as u64));
        }
        run.kill().unwrap();
        // Ended by a signal: it has no exit code.
        run.wait().unwrap().code().is_none()
    }

    /// The next run ends with the tables of the undisturbed one, and computes nothing that was committed.
    pub fn is_resumed(&self, night: &Night, said: &str) {
        let committed: Vec<usize> = DERIVED.iter().map(|t| rows(night, t)).collect();
        let ended = rows(night, "runs");
        let ran = run(night);
        for (table, committed) in DERIVED.iter().zip(committed) {
            let all = self.contents.iter().find(|(name, _)| name == table).unwrap().1.len();
            let computed = ran.table(table, "rows_computed") as usize;
            assert_eq!(computed, all - committed, "{said}: {table}, of which {committed} of {all} rows were committed");
        }
        assert!(night.contents() == self.contents, "{said}: the tables are others");
        assert_eq!(rows(night, "runs"), ended + 1, "{said}: a run that was killed is not recorded as ended");
    }
}

/// Committed rows of a table.
fn rows(night: &Night, table: &str) -> usize {
    if !night.lake().join("_memslate.json").exists() {
        return 0;
    }
    night.column(&format!("SELECT count(*) FROM {table}"))[0].parse().unwrap()
}

/// Files that a run has laid into a lake so far: Parquet, and commits of the tables' logs.
pub fn files_made(folder: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let of = |path: PathBuf| {
        if path.is_dir() {
            return files_made(&path);
        }
        let ending = path.extension().and_then(|e| e.to_str());
        usize::from(ending == Some("parquet") || ending == Some("json") && folder.ends_with("_delta_log"))
    };
    entries.flatten().map(|e| of(e.path())).sum()
}
