//! A training set: rows of features with labels, in groups that are ranked each for itself.

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};
use crate::system::hex;

/// LightGBM ranks at most this many rows in one group.
pub const MAX_GROUP_ROWS: usize = 10_000;

/// A labelled training set. One order of groups and rows is canonical, see [`Dataset::from_rows`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Dataset {
    /// Names of the columns, in the model's order.
    pub features: Vec<String>,
    /// Row-major, `features.len()` values a row; NaN: missing.
    pub values: Vec<f64>,
    /// One a row: whole numbers from 0, an index into the label gains.
    pub labels: Vec<f32>,
    /// One a row: the row's key within its group (the turn ordinal).
    pub ordinals: Vec<i64>,
    /// Runs of rows, in order; their sizes sum to the number of rows.
    pub groups: Vec<Group>,
}

/// Rows that are ranked together: the pool of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Names the group in errors and in the canonical order; unique in its dataset.
    pub name: String,
    pub rows: usize,
}

/// One labelled row, as a table gives it.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Tenant, store and request, joined so that two groups never share a name.
    pub group: String,
    /// The row's key within its group: the turn ordinal.
    pub ordinal: i64,
    pub label: f32,
    /// One value a feature; NaN: missing.
    pub values: Vec<f64>,
}

impl Dataset {
    /// Groups rows that came in any order: groups by name, rows of a group by ordinal (then by values and label, so
    /// that even rows with equal keys have one order). The same rows give the same dataset, whatever their order.
    ///
    /// # Errors
    /// A row that has more or fewer values than there are features: a data error that names the group.
    pub fn from_rows(features: Vec<String>, mut rows: Vec<Row>) -> Result<Self> {
        rows.sort_by(|a, b| a.group.cmp(&b.group).then_with(|| order(a.key(), b.key())));
        let mut set = Dataset { features, ..Dataset::default() };
        for row in rows {
            if row.values.len() != set.features.len() {
                return Err(Error::data(format!(
                    "a row has {} values for {} features",
                    row.values.len(),
                    set.features.len()
                ))
                .at(format!("group {:?}", row.group)));
            }
            set.values.extend_from_slice(&row.values);
            set.labels.push(row.label);
            set.ordinals.push(row.ordinal);
            match set.groups.last_mut() {
                Some(group) if group.name == row.group => group.rows += 1,
                _ => set.groups.push(Group { name: row.group, rows: 1 }),
            }
        }
        Ok(set)
    }

    /// Rows of all groups.
    pub fn rows(&self) -> usize {
        self.labels.len()
    }

    /// Checks all that LightGBM would stop at, or get wrong, before it is asked.
    ///
    /// `gains` is the number of label gains: labels are 0 to `gains - 1`.
    ///
    /// # Errors
    /// A data error that names the group at fault.
    pub fn check(&self, gains: usize) -> Result<()> {
        self.check_shape()?;
        let mut start = 0;
        for group in &self.groups {
            let at = |e: Error| e.at(format!("group {:?}", group.name));
            if group.rows > MAX_GROUP_ROWS {
                return Err(at(Error::data(format!("{} rows, more than {MAX_GROUP_ROWS}", group.rows))
                    .next("train on smaller pools: recall.pool_size")));
            }
            for label in &self.labels[start..start + group.rows] {
                if !(label.fract() == 0.0 && *label >= 0.0) {
                    return Err(at(Error::data(format!("label {label} is not a whole number from 0"))));
                }
                if *label as usize >= gains {
                    let top = gains.saturating_sub(1);
                    return Err(at(Error::data(format!("label {label} is above {top}, the last label with a gain"))
                        .next("map the labels to fewer grades, or give a gain for each of them")));
                }
            }
            start += group.rows;
        }
        Ok(())
    }

    fn check_shape(&self) -> Result<()> {
        let (rows, columns) = (self.rows(), self.features.len());
        if rows == 0 || columns == 0 {
            return Err(Error::data(format!("nothing to train on: {rows} rows, {columns} features"))
                .next("check that the labels name turns that are in the pools"));
        }
        if self.values.len() != rows * columns || self.ordinals.len() != rows {
            return Err(Error::data(format!(
                "{rows} labels, {} ordinals and {} values do not make {rows} rows of {columns} features",
                self.ordinals.len(),
                self.values.len()
            )));
        }
        for (i, name) in self.features.iter().enumerate() {
            if self.features[..i].contains(name) {
                return Err(Error::data(format!("the feature {name:?} is named twice")));
            }
            // What LightGBM's text format and its JSON keep apart by.
            if name.is_empty() || name.chars().any(|c| c.is_whitespace() || c.is_control() || "\",:[]{}=".contains(c)) {
                return Err(Error::data(format!("{name:?} cannot be the name of a feature")));
            }
        }
        let mut left = rows;
        let mut names = std::collections::HashSet::new();
        for group in &self.groups {
            let at = |what: String| Error::data(what).at(format!("group {:?}", group.name));
            if !names.insert(&group.name) {
                return Err(at("stands in the dataset twice".into()));
            }
            if group.rows == 0 {
                return Err(at("has no rows".into()));
            }
            left = left.checked_sub(group.rows).ok_or_else(|| {
                at(format!("the group sizes do not sum to the {rows} rows: {} rows where {left} are left", group.rows))
            })?;
        }
        if left > 0 {
            let last = self.groups.last().map_or("", |g| &g.name);
            return Err(Error::data(format!(
                "the group sizes do not sum to the {rows} rows: {left} are left after the last group, {last:?}"
            )));
        }
        Ok(())
    }

    /// The dataset in canonical order. Call [`Dataset::check`] first.
    pub fn canonical(&self) -> Dataset {
        let mut groups = Vec::with_capacity(self.groups.len());
        let mut start = 0;
        for group in &self.groups {
            groups.push((group, start..start + group.rows));
            start += group.rows;
        }
        groups.sort_by(|a, b| a.0.name.cmp(&b.0.name));
        let mut out = Dataset { features: self.features.clone(), ..Dataset::default() };
        for (group, range) in groups {
            let mut rows: Vec<usize> = range.collect();
            rows.sort_by(|a, b| order(self.key(*a), self.key(*b)));
            for row in rows {
                out.push(self, row);
            }
            out.groups.push(group.clone());
        }
        out
    }

    /// The dataset without the groups in which no label is above 0, and how many they were: nothing is learnt from
    /// them, and LightGBM gives them no weight.
    pub fn with_positives(&self) -> (Dataset, usize) {
        let mut out = Dataset { features: self.features.clone(), ..Dataset::default() };
        let (mut start, mut dropped) = (0, 0);
        for group in &self.groups {
            let range = start..start + group.rows;
            start += group.rows;
            if self.labels[range.clone()].iter().any(|l| *l > 0.0) {
                range.for_each(|row| out.push(self, row));
                out.groups.push(group.clone());
            } else {
                dropped += 1;
            }
        }
        (out, dropped)
    }

    /// SHA-256, in hex, over features, groups, ordinals, labels and values of the canonical order.
    pub fn fingerprint(&self) -> String {
        let set = self.canonical();
        let mut hash = Sha256::new();
        let mut text = |s: &str| {
            hash.update((s.len() as u64).to_le_bytes());
            hash.update(s);
        };
        set.features.iter().for_each(|f| text(f));
        set.groups.iter().for_each(|g| text(&format!("{} {}", g.rows, g.name)));
        set.ordinals.iter().for_each(|o| hash.update(o.to_le_bytes()));
        set.labels.iter().for_each(|l| hash.update(l.to_le_bytes()));
        set.values.iter().for_each(|v| hash.update(bits(*v).to_le_bytes()));
        hex(&hash.finalize())
    }

    fn push(&mut self, from: &Dataset, row: usize) {
        self.values.extend_from_slice(from.row(row));
        self.labels.push(from.labels[row]);
        self.ordinals.push(from.ordinals[row]);
    }

    fn row(&self, row: usize) -> &[f64] {
        let columns = self.features.len();
        &self.values[row * columns..(row + 1) * columns]
    }

    fn key(&self, row: usize) -> (i64, f32, &[f64]) {
        (self.ordinals[row], self.labels[row], self.row(row))
    }
}

impl Row {
    fn key(&self) -> (i64, f32, &[f64]) {
        (self.ordinal, self.label, &self.values)
    }
}

/// The canonical order within a group.
fn order(a: (i64, f32, &[f64]), b: (i64, f32, &[f64])) -> std::cmp::Ordering {
    a.0.cmp(&b.0)
        .then_with(|| a.1.total_cmp(&b.1))
        .then_with(|| a.2.iter().map(|v| bits(*v)).cmp(b.2.iter().map(|v| bits(*v))))
}

/// The bits of a value; every NaN is the same "missing".
fn bits(value: f64) -> u64 {
    if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(groups: &[(&str, usize)], labels: &[f32]) -> Dataset {
        Dataset {
            features: vec!["a".into()],
            values: labels.iter().map(|l| *l as f64).collect(),
            labels: labels.to_vec(),
            ordinals: (0..labels.len() as i64).collect(),
            groups: groups.iter().map(|(name, rows)| Group { name: name.to_string(), rows: *rows }).collect(),
        }
    }

    fn says(set: &Dataset, words: &[&str]) {
        let e = set.check(32).unwrap_err();
        assert_eq!(e.class, crate::error::Class::Data);
        for word in words {
            assert!(e.to_string().contains(word), "{e} lacks {word:?}");
        }
    }

    #[test]
    fn a_wrong_group_is_named_before_training() {
        let many = vec![0.0; 10_001];
        says(&set(&[("t/s/big", 10_001)], &many), &["t/s/big", "10001 rows"]);
        assert!(set(&[("t/s/big", 10_000)], &many[1..]).check(32).is_ok());
        says(&set(&[("q1", 2), ("q2", 1)], &[0.0, 31.0, 32.0]), &["q2", "label 32", "31"]);
        says(&set(&[("q1", 1), ("q2", 1)], &[0.0, -1.0]), &["q2", "label -1"]);
        says(&set(&[("q1", 1), ("q2", 1)], &[0.5, 1.0]), &["q1", "label 0.5"]);
        says(&set(&[("q1", 1)], &[f32::NAN]), &["q1", "NaN"]);
        says(&set(&[("q1", 2), ("q2", 1)], &[0.0, 1.0]), &["q2", "do not sum to the 2 rows"]);
        says(&set(&[("q1", 2)], &[0.0, 1.0, 1.0]), &["q1", "do not sum to the 3 rows", "1 are left"]);
        says(&set(&[("q1", 1), ("q1", 1)], &[0.0, 1.0]), &["q1", "twice"]);
        says(&set(&[], &[]), &["nothing to train on"]);
    }

    #[test]
    fn rows_in_any_order_make_one_dataset() {
        let row = |group: &str, ordinal, label, value| Row { group: group.into(), ordinal, label, values: vec![value] };
        let rows = vec![
            row("b", 10, 0.0, 1.0),
            row("a", 2, 1.0, 2.0),
            row("b", 2, 1.0, f64::NAN),
            row("a", 2, 1.0, 1.5),
            row("a", 1, 0.0, 9.0),
        ];
        let first = Dataset::from_rows(vec!["x".into()], rows.clone()).unwrap();
        assert_eq!(first.groups, vec![Group { name: "a".into(), rows: 3 }, Group { name: "b".into(), rows: 2 }]);
        assert_eq!(first.ordinals, [1, 2, 2, 2, 10]);
        assert_eq!(first.values[..3], [9.0, 1.5, 2.0]);
        let second = Dataset::from_rows(vec!["x".into()], rows.into_iter().rev().collect()).unwrap();
        assert_eq!(format!("{first:?}"), format!("{second:?}"));
        assert_eq!(first.fingerprint(), second.fingerprint());
        assert_ne!(first.fingerprint(), Dataset { features: vec!["y".into()], ..first.clone() }.fingerprint());
    }

    #[test]
    fn groups_without_a_positive_are_dropped_and_counted() {
        let (kept, dropped) = set(&[("q1", 2), ("q2", 2), ("q3", 1)], &[0.0, 0.0, 0.0, 2.0, 0.0]).with_positives();
        assert_eq!((kept.groups.len(), kept.groups[0].name.as_str(), dropped), (1, "q2", 2));
        assert_eq!((kept.labels, kept.ordinals), (vec![0.0, 2.0], vec![2, 3]));
    }
}
