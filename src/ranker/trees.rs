//! Prediction by comparing a row with all thresholds of a tree at once, instead of walking down from its root.
//!
//! LightGBM's own prediction spends its time waiting for the next node. Here each node says which leaves it rules out
//! (a row that goes right rules out all leaves on the left), whatever the order in which nodes are asked; of the leaves
//! that are left the first is the one where the walk ends (QuickScorer, Lucchese et al., SIGIR 2015). Values are
//! compared as their places among a column's thresholds: whole numbers, eight rows at a time.
//!
//! The scores are LightGBM's to the last bit: the same leaves, added in the same order. What is not known here, such as
//! a tree of more than 32 leaves or a score that is transformed, is left to LightGBM.

/// Leaves of a tree that one word of bits tells apart.
const LEAVES: usize = 32;
/// Rows that are compared side by side.
const ROWS: usize = 32;
/// LightGBM takes what is nearer to zero for zero.
const ZERO: f64 = 1e-35f32 as f64;
/// Objectives whose scores are the plain sums of the leaves.
const PLAIN: [&str; 3] = ["lambdarank", "rank_xendcg", "regression"];

/// A model's trees.
pub(super) struct Trees {
    columns: Vec<Column>,
    /// Tree after tree.
    nodes: Vec<Node>,
    leaves: Vec<f64>,
    /// Of each tree: where its nodes and its leaves end.
    ends: Vec<(usize, usize)>,
}

/// A feature, as nodes of one kind see it.
struct Column {
    feature: usize,
    missing: Missing,
    /// Where a missing value goes.
    default_left: bool,
    /// In order, each once.
    thresholds: Vec<f64>,
}

/// Which values are missing ones.
#[derive(Clone, Copy, PartialEq)]
enum Missing {
    /// None: NaN is zero.
    No,
    /// Zero, and NaN.
    Zero,
    Nan,
}

struct Node {
    column: u32,
    /// The place of its threshold: a row goes right if its own is above.
    place: i32,
    /// Leaves that are ruled out if a row goes right: those on the left.
    ruled_out: u32,
}

impl Trees {
    /// From a model's text that was checked; none where it holds something that is not known here.
    pub fn read(text: &str) -> Option<Trees> {
        let (head, trees) = text.split_once("\nTree=")?;
        let (trees, _) = trees.split_once("end of trees")?;
        let objective = head.lines().find_map(|line| line.strip_prefix("objective=")).unwrap_or(PLAIN[0]);
        let plain = PLAIN.contains(&objective.split(' ').next()?) && !objective.contains("sqrt");
        if !plain || head.lines().any(|line| line == "average_output") {
            return None;
        }
        let trees: Vec<Tree> = trees.split("\nTree=").map(Tree::read).collect::<Option<_>>()?;
        let mut made = Trees { columns: columns(&trees)?, nodes: Vec::new(), leaves: Vec::new(), ends: Vec::new() };
        for tree in &trees {
            if tree.leaves.len() == 1 {
                made.leaves.push(tree.leaves[0]);
            } else {
                made.add(tree, 0, made.leaves.len());
            }
            made.ends.push((made.nodes.len(), made.leaves.len()));
        }
        Some(made)
    }

    /// Adds what is under a split, its leaves from left to right; `first` is the tree's first leaf.
    fn add(&mut self, tree: &Tree, split: usize, first: usize) {
        let kind = &tree.splits[split];
        let column = self.columns.iter().position(|c| kind.is_of(c)).expect("columns are made of all splits");
        let place = self.columns[column].thresholds.partition_point(|t| *t < kind.threshold) as i32;
        let begin = self.leaves.len();
        self.child(tree, kind.left, first);
        let bits = |leaves: usize| (1u64 << leaves) - 1;
        let left = bits(self.leaves.len() - first) & !bits(begin - first);
        self.nodes.push(Node { column: column as u32, place, ruled_out: left as u32 });
        self.child(tree, kind.right, first);
    }

    fn child(&mut self, tree: &Tree, child: i64, first: usize) {
        match usize::try_from(child) {
            Ok(split) => self.add(tree, split, first),
            Err(_) => self.leaves.push(tree.leaves[!child as usize]),
        }
    }

    /// One score a row; `rows` is row-major, `width` values a row.
    pub fn predict(&self, rows: &[f64], width: usize) -> Vec<f64> {
        let mut scores = Vec::with_capacity(rows.len() / width);
        let mut places = vec![[0i32; ROWS]; self.columns.len()];
        for rows in rows.chunks(ROWS * width) {
            for (column, places) in self.columns.iter().zip(&mut places) {
                let values = rows.iter().skip(column.feature).step_by(width);
                places.iter_mut().zip(values).for_each(|(place, &value)| *place = column.place(value));
            }
            scores.extend_from_slice(&self.sums(&places)[..rows.len() / width]);
        }
        scores
    }

    /// Of each row, from its places in all columns.
    fn sums(&self, places: &[[i32; ROWS]]) -> [f64; ROWS] {
        let mut sums = [0f64; ROWS];
        let (mut node, mut leaf) = (0, 0);
        for &(nodes, leaves) in &self.ends {
            let values = &self.leaves[leaf..leaves];
            for (sum, left) in sums.iter_mut().zip(leaves_left(&self.nodes[node..nodes], places)) {
                *sum += values[left.trailing_zeros() as usize];
            }
            (node, leaf) = (nodes, leaves);
        }
        sums
    }
}

/// The leaves of a tree that no node rules out, a row a word.
fn leaves_left(nodes: &[Node], places: &[[i32; ROWS]]) -> [u32; ROWS] {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the instructions.
        return unsafe { leaves_left_avx2(nodes, places) };
    }
    let mut left = [u32::MAX; ROWS];
    for node in nodes {
        for (left, &place) in left.iter_mut().zip(&places[node.column as usize]) {
            if place > node.place {
                *left &= !node.ruled_out;
            }
        }
    }
    left
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[allow(clippy::needless_range_loop)]
fn leaves_left_avx2(nodes: &[Node], places: &[[i32; ROWS]]) -> [u32; ROWS] {
    use std::arch::x86_64::*;
    const EIGHTS: usize = ROWS / 8;
    let mut left = [_mm256_set1_epi32(-1); EIGHTS];
    for node in nodes {
        let places = &places[node.column as usize];
        let (place, ruled_out) = (_mm256_set1_epi32(node.place), _mm256_set1_epi32(node.ruled_out as i32));
        // By index: an iterator is not inlined into a function of other instructions.
        for i in 0..EIGHTS {
            // SAFETY: eight of `ROWS` whole numbers are read.
            let places = unsafe { _mm256_loadu_si256(places.as_ptr().add(8 * i).cast()) };
            let goes_right = _mm256_cmpgt_epi32(places, place);
            left[i] = _mm256_andnot_si256(_mm256_and_si256(goes_right, ruled_out), left[i]);
        }
    }
    let mut words = [0u32; ROWS];
    for i in 0..EIGHTS {
        // SAFETY: eight of `ROWS` words are written.
        unsafe { _mm256_storeu_si256(words.as_mut_ptr().add(8 * i).cast(), left[i]) };
    }
    words
}

impl Column {
    /// How many thresholds are below the value; a missing one is below or above all.
    fn place(&self, value: f64) -> i32 {
        let nan = value.is_nan();
        // LightGBM's rows are sparse: what is near zero is not in them.
        let value = if nan && self.missing != Missing::Nan || value.abs() <= ZERO { 0.0 } else { value };
        let missing = match self.missing {
            Missing::No => false,
            Missing::Zero => value == 0.0,
            Missing::Nan => nan,
        };
        match (missing, self.default_left) {
            (true, true) => -1,
            (true, false) => i32::MAX,
            (false, _) => self.thresholds.partition_point(|t| *t < value) as i32,
        }
    }
}

/// All kinds of splits, with their thresholds; none where a threshold is not a number.
fn columns(trees: &[Tree]) -> Option<Vec<Column>> {
    let mut columns: Vec<Column> = Vec::new();
    for split in trees.iter().flat_map(|tree| &tree.splits) {
        if split.threshold.is_nan() {
            return None;
        }
        let at = columns.iter().position(|c| split.is_of(c)).unwrap_or_else(|| {
            let Split { feature, missing, default_left, .. } = *split;
            columns.push(Column { feature, missing, default_left, thresholds: Vec::new() });
            columns.len() - 1
        });
        columns[at].thresholds.push(split.threshold);
    }
    for column in &mut columns {
        column.thresholds.sort_unstable_by(f64::total_cmp);
        column.thresholds.dedup();
    }
    Some(columns)
}

/// A tree as the text has it.
struct Tree {
    splits: Vec<Split>,
    leaves: Vec<f64>,
}

struct Split {
    feature: usize,
    threshold: f64,
    missing: Missing,
    default_left: bool,
    /// A split, or a leaf as its complement.
    left: i64,
    right: i64,
}

impl Split {
    fn is_of(&self, column: &Column) -> bool {
        (self.feature, self.missing, self.default_left) == (column.feature, column.missing, column.default_left)
    }
}

impl Tree {
    fn read(text: &str) -> Option<Tree> {
        let leaves: Vec<f64> = numbers(text, "leaf_value")?;
        if leaves.len() > LEAVES {
            return None;
        }
        if leaves.len() == 1 {
            return Some(Tree { splits: Vec::new(), leaves });
        }
        let (features, thresholds) = (numbers::<usize>(text, "split_feature")?, numbers::<f64>(text, "threshold")?);
        let kinds = numbers::<u8>(text, "decision_type")?;
        let (left, right) = (numbers::<i64>(text, "left_child")?, numbers::<i64>(text, "right_child")?);
        let split = |i: usize| {
            let missing = match kinds[i] {
                kind if kind & 1 != 0 || kind > 15 => return None,
                kind => [Missing::No, Missing::Zero, Missing::Nan].get(usize::from(kind >> 2)).copied()?,
            };
            let default_left = kinds[i] & 2 != 0;
            let (feature, threshold) = (features[i], thresholds[i]);
            Some(Split { feature, threshold, missing, default_left, left: left[i], right: right[i] })
        };
        Some(Tree { splits: (0..features.len()).map(split).collect::<Option<_>>()?, leaves })
    }
}

fn numbers<T: std::str::FromStr>(text: &str, name: &str) -> Option<Vec<T>> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
    line.split(' ').map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::ffi::Pool;
    use super::*;
    use proptest::prelude::*;

    /// The shipped model, and one with every kind of split over the same thresholds.
    fn models() -> Vec<String> {
        let lite = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/data/ranker/lite.txt")).unwrap();
        let mut kinds = [0u8, 2, 4, 6, 8, 10].iter().cycle();
        let lines = lite.split_inclusive('\n').map(|line| match line.strip_prefix("decision_type=") {
            None => line.to_string(),
            Some(old) => {
                // As many characters as before, so that the sizes of the trees stay right.
                let new = |old: &str| {
                    if old.trim() == "10" { "10".into() } else { kinds.find(|k| **k < 10).unwrap().to_string() }
                };
                let all: Vec<String> = old.trim_end().split(' ').map(new).collect();
                format!("decision_type={}\n", all.join(" "))
            }
        });
        let every_kind = lines.collect();
        vec![lite, every_kind]
    }

    fn assert_equal(text: &str, rows: &[f64]) {
        let (trees, lightgbm) = (Trees::read(text).expect("known"), Pool::load(text.to_string()).unwrap());
        let (ours, theirs) = (trees.predict(rows, 10), lightgbm.predict(rows, 10).unwrap());
        let bits = |scores: &[f64]| scores.iter().map(|s| s.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&ours), bits(&theirs));
    }

    #[test]
    fn scores_at_every_threshold_are_lightgbms() {
        for text in models() {
            let trees = Trees::read(&text).unwrap();
            let mut rows = Vec::new();
            for (n, column) in trees.columns.iter().enumerate() {
                for (m, &t) in column.thresholds.iter().enumerate() {
                    for value in [t.next_down(), t, t.next_up()] {
                        // The other features are thresholds too, here and there.
                        let mut row: [f64; 10] = std::array::from_fn(|i| {
                            let other = &trees.columns[(n + i) % trees.columns.len()].thresholds;
                            other[(m * 7 + i) % other.len()]
                        });
                        row[column.feature] = value;
                        rows.extend(row);
                    }
                }
            }
            assert!(rows.len() > 10_000);
            assert_equal(&text, &rows);
        }
    }

    fn value() -> impl Strategy<Value = f64> {
        let odd = [f64::NAN, 0.0, -0.0, 1e-35, -1e-35, 1e-36, 1.0000001e-35, 2e-35, f64::INFINITY, f64::NEG_INFINITY];
        prop_oneof![
            3 => proptest::sample::select(odd.to_vec()),
            3 => -1.0..1.0f64,
            2 => 0.0..30.0f64,
            2 => (0..300u32).prop_map(f64::from),
            1 => any::<f64>(),
        ]
    }

    #[test]
    fn scores_of_any_rows_are_lightgbms() {
        for text in models() {
            let mut runner = proptest::test_runner::TestRunner::default();
            let rows = prop::collection::vec(prop::array::uniform10(value()), 1..150);
            runner
                .run(&rows, |rows| {
                    assert_equal(&text, &rows.concat());
                    Ok(())
                })
                .unwrap();
        }
    }

    #[test]
    fn what_is_not_known_is_left_to_lightgbm() {
        let lite = &models()[0];
        for (from, to) in [
            ("objective=lambdarank", "objective=binary sigmoid:1"),
            ("objective=lambdarank", "average_output\nobjective=lambdarank"),
            ("decision_type=2 ", "decision_type=1 "),
            ("decision_type=2 ", "decision_type=12 "),
        ] {
            assert!(lite.contains(from) && Trees::read(&lite.replacen(from, to, 1)).is_none(), "{to}");
        }
        let many = lite.replacen("leaf_value=", "leaf_value=0 0 ", 1);
        assert!(Trees::read(&many).is_none(), "33 leaves");
    }
}
