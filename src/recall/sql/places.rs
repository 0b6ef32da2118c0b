//! `list_score(lists, name)` and `list_rank(lists, name)`: what one recall list said of a turn.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int32Array, ListArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int32Type};
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};

use crate::schema;

pub fn functions() -> Vec<ScalarUDF> {
    [What::Score, What::Rank].into_iter().map(|what| ScalarUDF::from(PlaceFunction::new(what))).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum What {
    /// Float64; null where the list does not hold the turn.
    Score,
    /// Int32, from 1; null where the list does not hold the turn.
    Rank,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct PlaceFunction {
    what: What,
    signature: Signature,
}

impl PlaceFunction {
    fn new(what: What) -> Self {
        PlaceFunction { what, signature: Signature::new(TypeSignature::Any(2), Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for PlaceFunction {
    fn name(&self) -> &str {
        match self.what {
            What::Score => "list_score",
            What::Rank => "list_rank",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        if !matches!(types[0], DataType::List(_) | DataType::LargeList(_) | DataType::Null) {
            return plan_err!("{}(lists, name) takes the lists of a pool, not {}", self.name(), types[0]);
        }
        Ok(match self.what {
            What::Score => DataType::Float64,
            What::Rank => DataType::Int32,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let lists = cast(&args.args[0].to_array(args.number_rows)?, &schema::lists())?;
        let names = cast(&args.args[1].to_array(args.number_rows)?, &DataType::Utf8)?;
        let lists = lists.as_list::<i32>();
        let places = places(lists, &names);
        let values = lists.values().as_struct();
        let result: ArrayRef = match self.what {
            What::Score => {
                let scores = values.column(1).as_primitive::<Float64Type>();
                Arc::new(
                    places
                        .map(|at| at.filter(|&at| scores.is_valid(at)).map(|at| scores.value(at)))
                        .collect::<Float64Array>(),
                )
            }
            What::Rank => {
                let ranks = values.column(2).as_primitive::<Int32Type>();
                Arc::new(
                    places
                        .map(|at| at.filter(|&at| ranks.is_valid(at)).map(|at| ranks.value(at)))
                        .collect::<Int32Array>(),
                )
            }
        };
        Ok(ColumnarValue::Array(result))
    }
}

/// For each row, where among the values the list of that name stands.
fn places<'a>(lists: &'a ListArray, names: &'a ArrayRef) -> impl Iterator<Item = Option<usize>> + 'a {
    let (names, values) = (names.as_string::<i32>(), lists.values().as_struct());
    let of = values.column(0).as_string::<i32>();
    (0..lists.len()).map(move |row| {
        if lists.is_null(row) || names.is_null(row) {
            return None;
        }
        let (start, end) = (lists.value_offsets()[row] as usize, lists.value_offsets()[row + 1] as usize);
        (start..end).find(|&at| values.is_valid(at) && of.is_valid(at) && of.value(at) == names.value(row))
    })
}
