//! Checks a model's text before LightGBM reads it.
//!
//! LightGBM trusts the file: it follows sizes and child indices without a look at where they lead, and a file that was
//! cut short takes the process down. What is checked here is all that loading and predicting follow.

use crate::error::{Error, Result};

/// Names of the features that the model's text gives, if the text is a whole model that this program can use: one
/// value a row, numeric splits.
///
/// # Errors
/// A data error that says what is wrong.
pub(super) fn features(text: &str) -> Result<Vec<String>> {
    let head_end = text.find("\nTree=").map(|at| at + 1);
    let head = &text[..head_end.unwrap_or(text.len())];
    if head.lines().next() != Some("tree") {
        return Err(broken("does not begin with \"tree\""));
    }
    if text.contains('\0') || head.contains('\r') {
        return Err(broken("holds characters that LightGBM never writes"));
    }
    let names: Vec<String> = value(head, "feature_names")?.split(' ').map(str::to_string).collect();
    let top: usize = number(head, "max_feature_idx")?;
    let infos = value(head, "feature_infos")?.split(' ').count();
    if top.checked_add(1) != Some(names.len()) || infos != names.len() {
        return Err(broken("has another number of feature_names than of features"));
    }
    for name in ["num_class", "num_tree_per_iteration"] {
        if number::<usize>(head, name)? != 1 {
            return Err(broken(&format!("gives more than one value a row ({name})")));
        }
    }
    number::<i64>(head, "label_index")?;
    let sizes = value(head, "tree_sizes")?.split(' ').map(str::parse::<usize>);
    let sizes = sizes.collect::<Result<Vec<_>, _>>().map_err(|_| broken("has tree_sizes that are no numbers"))?;
    let mut rest = &text[head_end.ok_or_else(|| broken("holds no tree"))?..];
    for (i, size) in sizes.iter().enumerate() {
        let tree = rest.get(..*size).ok_or_else(|| broken(&format!("ends in tree {i}")))?;
        check_tree(tree, i, names.len()).map_err(|e| e.at(format!("tree {i}")))?;
        rest = &rest[*size..];
    }
    if !rest.starts_with("end of trees\n") {
        return Err(broken("lacks \"end of trees\" where its trees should end"));
    }
    Ok(names)
}

fn check_tree(tree: &str, index: usize, columns: usize) -> Result<()> {
    let body = tree.strip_prefix(&format!("Tree={index}\n")).ok_or_else(|| broken("does not begin where it should"))?;
    let body = body.strip_suffix("\n\n").ok_or_else(|| broken("does not end where it should"))?.trim_end_matches('\n');
    if body.contains("\n\n") || body.lines().any(|line| !line.contains('=')) {
        return Err(broken("has a line that is no setting"));
    }
    let leaves: usize = number(body, "num_leaves")?;
    if number::<usize>(body, "num_cat")? != 0 || value(body, "is_linear").is_ok_and(|v| v != "0") {
        return Err(broken("has categorical splits or linear leaves")
            .next("train with numeric features only: no categorical_feature, no linear_tree"));
    }
    if leaves == 0 {
        return Err(broken("has no leaf"));
    }
    if numbers::<f64>(body, "leaf_value", leaves)?.iter().any(|v| !v.is_finite()) {
        return Err(broken("has a leaf_value that is not finite"));
    }
    if leaves == 1 {
        return Ok(());
    }
    let splits = leaves - 1;
    numbers::<f64>(body, "threshold", splits)?;
    if numbers::<usize>(body, "split_feature", splits)?.iter().any(|f| *f >= columns) {
        return Err(broken("splits on a feature that is not there"));
    }
    if numbers::<i8>(body, "decision_type", splits)?.iter().any(|d| d & 1 != 0) {
        return Err(broken("has a categorical split"));
    }
    for side in ["left_child", "right_child"] {
        for (node, child) in numbers::<i64>(body, side, splits)?.into_iter().enumerate() {
            // A negative child is a leaf; another is a node made later, so that no walk goes round in a circle.
            let good = if child < 0 { !child < leaves as i64 } else { child > node as i64 && child < splits as i64 };
            if !good {
                return Err(broken(&format!("has a {side} that leads nowhere")));
            }
        }
    }
    Ok(())
}

fn value<'a>(lines: &'a str, name: &str) -> Result<&'a str> {
    let found = lines.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    found.ok_or_else(|| broken(&format!("lacks {name}")))
}

fn number<T: std::str::FromStr>(lines: &str, name: &str) -> Result<T> {
    value(lines, name)?.parse().map_err(|_| broken(&format!("has a {name} that is no number")))
}

fn numbers<T: std::str::FromStr>(lines: &str, name: &str, count: usize) -> Result<Vec<T>> {
    let found = value(lines, name)?.split(' ').map(str::parse).collect::<Result<Vec<T>, _>>();
    match found {
        Ok(all) if all.len() == count => Ok(all),
        _ => Err(broken(&format!("has not {count} numbers as its {name}"))),
    }
}

fn broken(what: &str) -> Error {
    Error::data(format!("not a whole LightGBM model: it {what}"))
}
