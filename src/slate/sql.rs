//! `fill_slate(items, budget_tokens, settings)`: a request's ranking becomes its slate.
//!
//! ```sql
//! fill_slate(array_agg(named_struct('turn_id', turn_id, ...) ORDER BY rank), 2700, '{"rendering":"sessions"}')
//! ```

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, Float64Array, Int32Array, ListBuilder, PrimitiveArray, StringArray,
    StringBuilder, StructArray,
};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Field, FieldRef, Fields, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use datafusion::error::Result as SqlResult;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;

use super::cost::Costs;
use super::fill::{Filled, Item, fill};
use crate::error::{Context, Error, Result};
use crate::schema;
use crate::system;

/// The function `fill_slate(items, budget_tokens, settings)`.
///
/// - `items`: a list of structs, the request's ranking, with fields found by name: `turn_id`, `turn_ordinal`,
///   `session_ordinal`, `session_started_at`, `role`, `content`, `content_hash`, `score`, `rank`; null: no items.
/// - `budget_tokens`: o200k tokens that the rendered text may take.
/// - `settings`: the slate's part of a system as a JSON literal.
///
/// Gives a struct of `status`, `turn_ids` (best first), `tokens` and `text`.
pub fn fill_slate() -> ScalarUDF {
    ScalarUDF::from(FillSlate { signature: Signature::any(3, Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct FillSlate {
    signature: Signature,
}

/// The fields of an item and the types that they are read as.
fn columns() -> [(&'static str, DataType); 9] {
    [
        ("turn_id", DataType::Utf8),
        ("turn_ordinal", DataType::Int32),
        ("session_ordinal", DataType::Int32),
        ("session_started_at", schema::time()),
        ("role", DataType::Utf8),
        ("content", DataType::Utf8),
        ("content_hash", DataType::Binary),
        ("score", DataType::Float64),
        ("rank", DataType::Int32),
    ]
}

fn slate_fields() -> Fields {
    vec![
        Field::new("status", DataType::Utf8, false),
        Field::new("turn_ids", DataType::List(schema::item(DataType::Utf8)), false),
        Field::new("tokens", DataType::Int32, false),
        Field::new("text", DataType::Utf8, false),
    ]
    .into()
}

impl ScalarUDFImpl for FillSlate {
    fn name(&self) -> &str {
        "fill_slate"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, arguments: &[DataType]) -> SqlResult<DataType> {
        check_items(&arguments[0])?;
        Ok(DataType::Struct(slate_fields()))
    }
    /// A slate is never null. A wrong setting is found when the query is planned.
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> SqlResult<FieldRef> {
        check_items(args.arg_fields[0].data_type())?;
        // A parameter has neither value nor type until it is bound.
        if args.arg_fields[2].data_type() != &DataType::Null {
            settings(args.scalar_arguments[2])?;
        }
        Ok(Arc::new(Field::new(self.name(), DataType::Struct(slate_fields()), false)))
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> SqlResult<ColumnarValue> {
        let settings = match &args.args[2] {
            ColumnarValue::Scalar(value) => settings(Some(value))?,
            ColumnarValue::Array(_) => settings(None)?,
        };
        let lists = args.args[0].to_array(args.number_rows)?;
        let budgets = cast(&args.args[1].to_array(args.number_rows)?, &DataType::Int64)?;
        let slates = fill_all(&lists, budgets.as_primitive::<Int64Type>(), &settings)?;
        Ok(ColumnarValue::Array(Arc::new(slates)))
    }
}

fn settings(argument: Option<&ScalarValue>) -> Result<system::Slate> {
    let text = argument.and_then(|value| value.try_as_str().flatten());
    let text = text.ok_or_else(|| Error::usage("fill_slate: the settings must be a text literal of JSON"))?;
    serde_json::from_str(text).or_usage("fill_slate: the settings cannot be read")
}

/// Checks that the list holds structs with all fields, each of a type that can be read.
fn check_items(argument: &DataType) -> Result<()> {
    let inner = match argument {
        DataType::Null => return Ok(()),
        DataType::List(inner) | DataType::LargeList(inner) => inner.data_type(),
        other => return Err(Error::usage(format!("fill_slate takes a list of structs, not {other}"))),
    };
    let DataType::Struct(fields) = inner else {
        return Err(Error::usage(format!("fill_slate takes a list of structs, not of {inner}")));
    };
    for (name, kind) in columns() {
        let Some((_, field)) = fields.find(name) else {
            let given: Vec<&str> = fields.iter().map(|f| f.name().as_str()).collect();
            return Err(Error::usage(format!("fill_slate: the items lack the field {name:?}"))
                .next(format!("they hold {}", given.join(", "))));
        };
        if !arrow::compute::can_cast_types(field.data_type(), &kind) {
            return Err(Error::usage(format!("fill_slate: {name:?} is {}, not {kind}", field.data_type())));
        }
    }
    Ok(())
}

fn fill_all(lists: &ArrayRef, budgets: &PrimitiveArray<Int64Type>, settings: &system::Slate) -> Result<StructArray> {
    check_items(lists.data_type())?;
    let mut out = Slates::default();
    let mut costs = Costs::default();
    for row in 0..lists.len() {
        if budgets.is_null(row) || budgets.value(row) < 0 {
            return Err(Error::usage("fill_slate: budget_tokens must be 0 or more"));
        }
        let items = match lists.data_type() {
            _ if lists.is_null(row) => None,
            DataType::List(_) => Some(lists.as_list::<i32>().value(row)),
            DataType::LargeList(_) => Some(lists.as_list::<i64>().value(row)),
            _ => None,
        };
        let ranking = items.map(|items| Ranking::read(items.as_struct())).transpose()?;
        let items = ranking.as_ref().map_or_else(Vec::new, Ranking::items);
        out.push(&items, fill(&items, budgets.value(row), settings, &mut costs))?;
    }
    out.finish()
}

/// The columns of one request's items.
struct Ranking {
    items: StructArray,
    turn_id: StringArray,
    turn_ordinal: Int32Array,
    session_ordinal: Int32Array,
    session_started_at: PrimitiveArray<TimestampMicrosecondType>,
    role: StringArray,
    content: StringArray,
    content_hash: BinaryArray,
    score: Float64Array,
    rank: Int32Array,
}

impl Ranking {
    fn read(items: &StructArray) -> Result<Ranking> {
        let [a, b, c, d, e, f, g, h, i] = columns();
        let read = |(name, kind): (&str, DataType)| -> Result<ArrayRef> {
            let column = items
                .column_by_name(name)
                .ok_or_else(|| Error::internal(format!("fill_slate: the field {name:?} is gone")))?;
            Ok(cast(column, &kind)?)
        };
        let ranking = Ranking {
            turn_id: read(a)?.as_string().clone(),
            turn_ordinal: read(b)?.as_primitive::<Int32Type>().clone(),
            session_ordinal: read(c)?.as_primitive::<Int32Type>().clone(),
            session_started_at: read(d)?.as_primitive::<TimestampMicrosecondType>().clone(),
            role: read(e)?.as_string().clone(),
            content: read(f)?.as_string().clone(),
            content_hash: read(g)?.as_binary().clone(),
            score: read(h)?.as_primitive::<Float64Type>().clone(),
            rank: read(i)?.as_primitive::<Int32Type>().clone(),
            items: items.clone(),
        };
        for (name, column) in [
            ("turn_id", &ranking.turn_id as &dyn Array),
            ("turn_ordinal", &ranking.turn_ordinal),
            ("session_ordinal", &ranking.session_ordinal),
            ("rank", &ranking.rank),
        ] {
            if (0..items.len()).any(|i| items.is_valid(i) && column.is_null(i)) {
                return Err(Error::data(format!("fill_slate: {name} is null in an item")));
            }
        }
        Ok(ranking)
    }

    /// The items by rank: the result does not depend on how the list was put together.
    fn items(&self) -> Vec<Item<'_>> {
        let mut order: Vec<usize> = (0..self.rank.len()).filter(|i| self.items.is_valid(*i)).collect();
        order.sort_by_key(|i| (self.rank.value(*i), self.turn_ordinal.value(*i)));
        order.into_iter().map(|i| self.item(i)).collect()
    }

    fn item(&self, i: usize) -> Item<'_> {
        Item {
            turn_id: self.turn_id.value(i),
            turn_ordinal: self.turn_ordinal.value(i),
            session_ordinal: self.session_ordinal.value(i),
            session_started_at: self.session_started_at.is_valid(i).then(|| self.session_started_at.value(i)),
            role: self.role.is_valid(i).then(|| self.role.value(i)),
            content: self.content.is_valid(i).then(|| self.content.value(i)),
            content_hash: self.content_hash.is_valid(i).then(|| self.content_hash.value(i)),
            score: self.score.is_valid(i).then(|| self.score.value(i)).filter(|s| s.is_finite()),
        }
    }
}

struct Slates {
    status: StringBuilder,
    turn_ids: ListBuilder<StringBuilder>,
    tokens: Vec<i32>,
    text: StringBuilder,
}

impl Default for Slates {
    fn default() -> Self {
        let turn_ids = ListBuilder::new(StringBuilder::new()).with_field(schema::item(DataType::Utf8));
        Slates { status: StringBuilder::new(), turn_ids, tokens: Vec::new(), text: StringBuilder::new() }
    }
}

impl Slates {
    fn push(&mut self, items: &[Item], slate: Filled) -> Result<()> {
        self.status.append_value(slate.status.name());
        for i in slate.chosen {
            self.turn_ids.values().append_value(items[i].turn_id);
        }
        self.turn_ids.append(true);
        self.tokens.push(i32::try_from(slate.tokens).or_data("fill_slate: a slate of more than 2^31 tokens")?);
        self.text.append_value(slate.text);
        Ok(())
    }

    fn finish(mut self) -> Result<StructArray> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.status.finish()),
            Arc::new(self.turn_ids.finish()),
            Arc::new(Int32Array::from(self.tokens)),
            Arc::new(self.text.finish()),
        ];
        Ok(StructArray::try_new(slate_fields(), columns, None)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::RecordBatch;
    use datafusion::prelude::SessionContext;

    const TURNS: &str = "(VALUES
        (1, 'D10:1', 20, 1, 'user', 'the cat is called Momo', 'a', 0.9, 1),
        (1, 'D2:1', 3, 0, 'assistant', 'noted', 'b', 0.7, 2),
        (1, 'D10:2', 21, 1, 'user', 'noted', 'b', 0.7, 3),
        (1, 'D10:3', 22, 1, 'tool', NULL, NULL, NULL, 4),
        (2, 'x', 0, 0, 'user', 'hi', 'c', NULL, 1)
        ) AS t(q, turn_id, turn_ordinal, session_ordinal, role, content, content_hash, score, rank)";

    fn query(order: &str, budget: &str) -> String {
        format!(
            "SELECT q, s['status'] AS status, s['turn_ids'] AS turn_ids, s['tokens'] AS tokens, s['text'] AS text FROM (
                SELECT q, fill_slate(array_agg(named_struct('turn_id', turn_id, 'turn_ordinal', turn_ordinal,
                    'session_ordinal', session_ordinal, 'rank', rank, 'session_started_at',
                    to_timestamp('2023-05-08T13:56:00Z'), 'role', role, 'content', content, 'content_hash',
                    arrow_cast(content_hash, 'Binary'), 'score', score) ORDER BY {order}), {budget},
                    '{{\"rendering\":\"sessions\"}}') AS s
                FROM {TURNS} GROUP BY q) ORDER BY q"
        )
    }

    async fn rows(sql: &str) -> Result<RecordBatch> {
        let context = SessionContext::new();
        context.register_udf(fill_slate());
        let batches = context.sql(sql).await?.collect().await?;
        Ok(arrow::compute::concat_batches(&batches[0].schema(), &batches)?)
    }

    #[tokio::test]
    async fn a_ranking_becomes_its_slate() {
        let first = rows(&query("rank", "2700")).await.unwrap();
        let text = |name: &str, row: usize| {
            let column = cast(first.column_by_name(name).unwrap(), &DataType::Utf8).unwrap();
            column.as_string::<i32>().value(row).to_string()
        };
        assert_eq!((text("status", 0).as_str(), text("status", 1).as_str()), ("ok", "degraded"));
        assert_eq!(
            text("text", 0),
            "### Session 1 (2023-05-08 13:56)\nassistant: noted\n### Session 2 (2023-05-08 13:56)\n\
             user: the cat is called Momo\n"
        );
        let ids = first.column_by_name("turn_ids").unwrap().as_list::<i32>();
        assert_eq!(ids.value(0).as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["D10:1", "D2:1"]);
        let tokens = first.column_by_name("tokens").unwrap().as_primitive::<Int32Type>();
        assert_eq!(tokens.value(0) as usize, crate::text::count_tokens(&text("text", 0)));
        assert_eq!(
            first.schema().field_with_name("turn_ids").unwrap().data_type(),
            schema::SLATES.full_schema().field_with_name("turn_ids").unwrap().data_type()
        );
        assert_eq!(rows(&query("turn_id DESC", "2700")).await.unwrap(), first, "the list's own order does not matter");
    }

    #[tokio::test]
    async fn no_items_are_an_empty_slate() {
        let sql = "SELECT s['status'] AS status, s['text'] AS text, cardinality(s['turn_ids']) AS n FROM
            (SELECT fill_slate(NULL, 2700, '{}') AS s)";
        let batch = rows(sql).await.unwrap();
        assert_eq!(batch.column(0).as_string::<i32>().value(0), "empty");
        assert_eq!(batch.column(1).as_string::<i32>().value(0), "");
    }

    #[tokio::test]
    async fn wrong_arguments_are_named_when_the_query_is_planned() {
        let context = SessionContext::new();
        context.register_udf(fill_slate());
        let query = query("rank", "2700");
        for (sql, says) in [
            (query.replace("'content_hash',", "'hash',"), "\"content_hash\""),
            (query.replace("sessions\"", "session\""), "settings"),
            (query.replace("'{\"rendering\":\"sessions\"}'", "role"), "settings"),
            (query.replace("array_agg(", "first_value("), "list of structs"),
        ] {
            let e = context.sql(&sql.replace("GROUP BY q", "GROUP BY q, role")).await.unwrap_err();
            assert!(e.to_string().contains(says), "{e} lacks {says}");
        }
        for budget in ["-1", "NULL"] {
            let e = rows(&super::tests::query("rank", budget)).await.unwrap_err();
            assert!(e.to_string().contains("budget_tokens"), "{e}");
        }
    }
}
