//! Nights of random edits: whatever changed between two nights, the lake that went on is the lake that began anew.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, NullArray, RecordBatch};

use super::killing::Dice;
use super::support::{Night, Turn, copy, history, model, turn, turns_batch, with_column, write};

const SEEDS: u64 = 4;
const NIGHTS: usize = 8;

/// What the inputs and the job say on one night.
struct State {
    turns: Vec<Turn>,
    /// Store and question.
    requests: Vec<(String, String)>,
    /// Files that the turns are split over, whether they have a column more, and what they are called.
    files: usize,
    more_columns: bool,
    named: usize,
    encoder: &'static str,
    budget: usize,
    as_of: Option<usize>,
    edited: Vec<&'static str>,
    n: usize,
}

impl State {
    fn new() -> State {
        let stores: Vec<String> = (0..6).map(|i| format!("store{i}")).collect();
        State {
            turns: stores.iter().flat_map(|s| history(s, 10)).collect(),
            requests: stores.iter().map(|s| (s.clone(), format!("the kettle of {s}"))).collect(),
            files: 1,
            more_columns: false,
            named: 0,
            encoder: "bert_encoder",
            budget: 200,
            as_of: None,
            edited: Vec::new(),
            n: 0,
        }
    }

    fn store(&self, dice: &mut Dice) -> String {
        self.requests[dice.roll(self.requests.len())].0.clone()
    }

    /// Changes one thing; says which.
    fn edit(&mut self, dice: &mut Dice) -> String {
        self.n += 1;
        let (n, store) = (self.n, self.store(dice));
        let at = dice.roll(self.turns.len().max(1));
        match dice.roll(15) {
            0..=2 => {
                let time = format!("2024-0{}-11T12:00:00Z", 1 + dice.roll(8));
                let session = format!("{store}-s{}", dice.roll(3));
                self.turns.push(turn(&store, &session, &format!("new-{n}"), &time, &format!("news {n} of the violin")));
                format!("a turn for {store}")
            }
            3 if !self.turns.is_empty() => {
                self.turns[at].content = [Some(format!("changed {n}")), None, Some(" ".into())][dice.roll(3)].clone();
                format!("another text of turn {at}")
            }
            4 if !self.turns.is_empty() => {
                self.turns.remove(at);
                format!("without turn {at}")
            }
            5 => {
                self.turns.retain(|t| t.store.as_ref() != Some(&store));
                format!("without the turns of {store}")
            }
            6 => {
                self.turns.retain(|t| t.store.as_ref() != Some(&store));
                self.turns.extend(history(&store, 5 + dice.roll(8)));
                format!("{store} is back")
            }
            7 => {
                self.named = n;
                "other names of files".into()
            }
            8 => {
                self.files = 1 + dice.roll(4);
                format!("{} files", self.files)
            }
            9 => {
                self.more_columns = !self.more_columns;
                format!("more columns: {}", self.more_columns)
            }
            10 => {
                self.encoder = if self.encoder == "bert_encoder" { "xlmr_encoder" } else { "bert_encoder" };
                format!("the encoder {}", self.encoder)
            }
            11 => {
                self.budget = 50 + dice.roll(500);
                self.as_of = [None, Some(1 + dice.roll(8))][dice.roll(2)];
                format!("budget {}, as of {:?}", self.budget, self.as_of)
            }
            12 => {
                self.edited.push(["turns", "embeddings", "pools", "features", "rankings", "slates"][dice.roll(6)]);
                format!("the SELECTs {:?}", self.edited)
            }
            13 => {
                let which = dice.roll(self.requests.len());
                self.requests[which].1 = format!("question {n} about the violin");
                format!("another question of {}", self.requests[which].0)
            }
            _ => {
                self.turns.reverse();
                "the other way round".into()
            }
        }
    }

    fn write(&self, night: &Night) {
        let input = night.input();
        std::fs::remove_dir_all(&input).unwrap();
        let folder = input.join("turns.parquet");
        std::fs::create_dir_all(&folder).unwrap();
        let each = self.turns.len().div_ceil(self.files).max(1);
        for (i, part) in self.turns.chunks(each).enumerate() {
            let mut batch = turns_batch(part);
            if self.more_columns && i % 2 == 0 {
                batch = with_column(&batch, "speaker", Arc::new(NullArray::new(part.len())));
                let moods = Arc::new(Int32Array::from(vec![1; part.len()])) as ArrayRef;
                let columns =
                    batch.schema_ref().fields().iter().map(|f| f.name().clone()).zip(batch.columns().to_vec());
                let columns: Vec<_> = columns.chain([("mood".to_string(), moods)]).map(|(n, c)| (n, c, true)).collect();
                batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
            }
            write(&folder.join(format!("part-{}-{i}.parquet", self.named)), &batch);
        }
        if self.turns.is_empty() {
            write(&folder.join("none.parquet"), &turns_batch(&[]));
        }
        let requests: Vec<_> = self.requests.iter().map(|(s, q)| (s.as_str(), "q", q.as_str(), None)).collect();
        night.requests(&requests);
        let jobs = night.own_jobs();
        for (i, table) in self.edited.iter().enumerate() {
            let file = jobs.join(format!("{table}.sql"));
            let text = std::fs::read_to_string(&file).unwrap();
            std::fs::write(&file, format!("{text}\n-- edit {i}\n")).unwrap();
        }
    }

    fn run(&self, night: &Night) {
        let mut set = vec![
            format!("encoder={}", model(self.encoder)),
            format!("budget_tokens={}", self.budget),
            "score.method=cross_encoder".to_string(),
            "rank.column=ce_prob".to_string(),
            "rank.descending=true".to_string(),
            format!("scorer={}", model("bert_scorer")),
        ];
        set.extend(self.as_of.map(|month| format!("as_of=2024-0{month}-20")));
        let extra: Vec<&str> = set.iter().flat_map(|s| ["--set", s.as_str()]).collect();
        night.run_job(&night.path().join("jobs"), &extra).ends_with(0);
    }
}

#[test]
fn a_lake_that_went_on_is_the_lake_that_began_anew() {
    for seed in 0..SEEDS {
        let (mut dice, mut state, went_on) = (Dice::new(seed), State::new(), Night::new());
        let mut said = Vec::new();
        for n in 0..NIGHTS {
            for _ in 0..n.min(1 + dice.roll(4)) {
                said.push(state.edit(&mut dice));
            }
            state.write(&went_on);
            state.run(&went_on);
            let anew = Night::new();
            copy(&went_on.input(), &anew.input());
            copy(&went_on.path().join("jobs"), &anew.path().join("jobs"));
            state.run(&anew);
            for ((table, old), (_, new)) in went_on.contents().into_iter().zip(anew.contents()) {
                let by_content = matches!(table, "embeddings" | "scores");
                // What no text of this night needs is kept.
                let same = if by_content { new.iter().all(|row| old.binary_search(row).is_ok()) } else { old == new };
                assert!(same, "seed {seed}, night {n}: {table} after {said:#?}");
            }
        }
    }
}
