//! A plain text table with aligned columns.

use std::fmt;

/// Rows of cells; the first row is the head.
pub struct Grid {
    rows: Vec<Vec<String>>,
    left: Vec<bool>,
}

impl Grid {
    /// A head; a column whose name begins with `<` is aligned to the left, the others to the right.
    pub fn new<S: AsRef<str>>(head: impl IntoIterator<Item = S>) -> Self {
        let (mut cells, mut left) = (Vec::new(), Vec::new());
        for name in head {
            let name = name.as_ref();
            left.push(name.starts_with('<'));
            cells.push(name.trim_start_matches('<').to_string());
        }
        Grid { rows: vec![cells], left }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.left.len());
        self.rows.push(cells);
    }
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| self.rows.iter().map(|r| r[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.left.len()).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (i, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[i] - cell.chars().count());
                let gap = if i == 0 { "" } else { "  " };
                line += &if self.left[i] { format!("{gap}{cell}{pad}") } else { format!("{gap}{pad}{cell}") };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_characters() {
        let mut grid = Grid::new(["<name", "n"]);
        grid.row(vec!["é".into(), "10".into()]);
        grid.row(vec!["longer".into(), "7".into()]);
        assert_eq!(grid.to_string(), "name     n\né       10\nlonger   7\n");
    }
}
