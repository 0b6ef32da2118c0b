//! No two rows of a table may have one key.

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::row::{OwnedRow, RowConverter, SortField};

use crate::error::{Error, Result};
use crate::schema::Table;

/// Watches rows that come in the order of their keys.
#[derive(Default)]
pub struct Keys {
    converter: Option<RowConverter>,
    last: Option<OwnedRow>,
}

impl Keys {
    /// Fails on the first key that stands twice.
    pub fn check(&mut self, batch: &RecordBatch, table: &Table) -> Result<()> {
        let columns: Vec<ArrayRef> = table.key.iter().filter_map(|k| batch.column_by_name(k).cloned()).collect();
        if batch.num_rows() == 0 || columns.len() != table.key.len() {
            return Ok(());
        }
        if self.converter.is_none() {
            let fields = columns.iter().map(|c| SortField::new(c.data_type().clone())).collect();
            self.converter = Some(RowConverter::new(fields)?);
        }
        let Some(converter) = &mut self.converter else { return Ok(()) };
        let rows = converter.convert_columns(&columns)?;
        for (i, row) in rows.iter().enumerate() {
            if self.last.as_ref().is_some_and(|last| last.row() == row) || (i > 0 && rows.row(i - 1) == row) {
                return Err(twice(&columns, i, table));
            }
        }
        self.last = Some(rows.row(rows.num_rows() - 1).owned());
        Ok(())
    }
}

fn twice(columns: &[ArrayRef], row: usize, table: &Table) -> Error {
    let show = |c: &ArrayRef| arrow::util::display::array_value_to_string(c, row).unwrap_or_default();
    let key: Vec<String> = table.key.iter().zip(columns).map(|(k, c)| format!("{k} {:?}", show(c))).collect();
    Error::data(format!("the SELECT gives two rows for {}", key.join(", ")))
        .next("a SELECT must give one row a key: look for a join that doubles rows")
}
