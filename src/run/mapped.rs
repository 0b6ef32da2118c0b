//! What a first SELECT gives: its columns, their types, and the SELECTs that check and number its rows.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::ScalarValue;
use datafusion::functions::expr_fn::isnan;
use datafusion::logical_expr::{cast, lit, when};
use datafusion::prelude::{DataFrame, Expr, SessionContext, ident};

use crate::error::{Error, Result};
use crate::schema::Kind;

/// The columns that a first SELECT gives, and whether it must.
pub struct Mapped {
    columns: &'static [(&'static str, Kind, bool)],
    pub id: &'static str,
    /// Names, as `checked`, the rows with their problem.
    pub checked: &'static str,
    /// After `checked`: the table's rows, with their shard.
    pub rows: &'static str,
}

use Kind::{Int, Text, Time};

const TURNS: Mapped = Mapped {
    columns: &[
        ("tenant_id", Text, false),
        ("store_id", Text, true),
        ("session_id", Text, false),
        ("turn_id", Text, true),
        ("turn_ordinal", Int, false),
        ("session_ordinal", Int, false),
        ("position", Int, false),
        ("spoken_at", Time, false),
        ("added_at", Time, false),
        ("role", Text, true),
        ("speaker", Text, false),
        ("content", Text, true),
        ("language", Text, false),
    ],
    id: "turn_id",
    checked: include_str!("sql/turns.sql"),
    rows: include_str!("sql/turns_rows.sql"),
};

const REQUESTS: Mapped = Mapped {
    columns: &[
        ("tenant_id", Text, false),
        ("store_id", Text, true),
        ("request_id", Text, true),
        ("question", Text, true),
        ("asked_at", Time, false),
        ("split", Text, false),
    ],
    id: "request_id",
    checked: include_str!("sql/requests.sql"),
    rows: include_str!("sql/requests_rows.sql"),
};

const LABELS: Mapped = Mapped {
    columns: &[
        ("tenant_id", Text, false),
        ("store_id", Text, true),
        ("request_id", Text, true),
        ("turn_id", Text, true),
        ("relevance", Int, true),
    ],
    id: "request_id",
    checked: include_str!("sql/labels.sql"),
    rows: include_str!("sql/labels_rows.sql"),
};

/// The input table of this name.
pub fn mapped(table: &str) -> &'static Mapped {
    match table {
        "turns" => &TURNS,
        "requests" => &REQUESTS,
        _ => &LABELS,
    }
}

/// No rows, with the right columns.
pub fn nothing(context: &SessionContext, m: &Mapped) -> Result<DataFrame> {
    let fields: Vec<_> = m.columns.iter().map(|(n, k, _)| Field::new(*n, k.data_type(), true)).collect();
    Ok(context.read_batch(RecordBatch::new_empty(Arc::new(Schema::new(fields))))?)
}

/// Checks the columns of a first SELECT, and adds those it leaves out as NULL.
pub fn complete(frame: DataFrame, m: &Mapped, name: &str) -> Result<DataFrame> {
    let given = frame.schema().as_arrow().clone();
    let known = || m.columns.iter().map(|c| c.0).collect::<Vec<_>>().join(", ");
    for field in given.fields() {
        if !m.columns.iter().any(|c| c.0 == field.name()) {
            return Err(Error::usage(format!("{name} has no column {:?}", field.name()))
                .next(format!("its columns: {}", known())));
        }
    }
    let mut columns: Vec<Expr> = Vec::new();
    for (column, kind, required) in m.columns {
        let expression = match given.field_with_name(column) {
            Ok(field) => convert(column, field.data_type(), *kind, name)?,
            Err(_) if *required => {
                return Err(Error::usage(format!("the SELECT gives no column {column:?}, which {name} needs"))
                    .next(format!("its columns: {}", known())));
            }
            Err(_) => lit(ScalarValue::try_from(&kind.data_type())?),
        };
        columns.push(expression.alias(*column));
    }
    Ok(frame.select(columns)?)
}

/// A column as the type that it needs. Times stay as they are: text, numbers and timestamps are read row by row.
fn convert(column: &str, given: &DataType, kind: Kind, name: &str) -> Result<Expr> {
    let text = |t: &DataType| matches!(t, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null);
    let is_text = text(given) || matches!(given, DataType::Dictionary(_, value) if text(value));
    let expression = ident(column);
    let wrong = |wanted: &str| {
        Err(Error::usage(format!("column {column:?} is {given}, but {name} needs {wanted}"))
            .next(format!("write CAST({column} AS ...) in the SELECT")))
    };
    match kind {
        // Ids may be numbers; what is read as words may not.
        Kind::Text if is_text => Ok(cast(expression, DataType::Utf8)),
        Kind::Text if column.ends_with("_id") && given.is_integer() => Ok(cast(expression, DataType::Utf8)),
        Kind::Text => wrong("text"),
        Kind::Int if given.is_integer() || given == &DataType::Null => Ok(cast(expression, DataType::Int64)),
        // Whole numbers with gaps, as pandas writes them: a gap is no number. Whether one is whole is checked row by row.
        Kind::Int if given.is_floating() || matches!(given, DataType::Decimal128(..)) => {
            let number = cast(expression, DataType::Float64);
            Ok(when(isnan(number.clone()), lit(ScalarValue::Float64(None))).otherwise(number)?)
        }
        Kind::Int => wrong("a whole number"),
        _ if is_text => Ok(cast(expression, DataType::Utf8)),
        _ => {
            let time = matches!(given, DataType::Timestamp(..) | DataType::Date32 | DataType::Date64);
            if time || given.is_integer() || given.is_floating() {
                Ok(expression)
            } else {
                wrong("a time, as text, timestamp or seconds")
            }
        }
    }
}
