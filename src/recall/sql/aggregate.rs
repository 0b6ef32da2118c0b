//! The aggregate function `recall`.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, StructArray};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, ReversedUDAF, Signature, Volatility,
};

use super::rows;
use crate::error::Error;
use crate::recall::{StoreBuilder, output, pool};
use crate::system;

pub fn udaf() -> AggregateUDF {
    AggregateUDF::from(Recall { signature: Signature::user_defined(Volatility::Immutable) })
}

/// Names of the arguments, for messages.
const ARGUMENTS: &str = "kind, ordinal, id, text, language, content_hash, vector, at, rn, settings";
const RN: usize = 8;
const SETTINGS: usize = 9;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Recall {
    signature: Signature,
}

impl AggregateUDFImpl for Recall {
    fn name(&self) -> &str {
        "recall"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        if types.len() != SETTINGS + 1 {
            return plan_err!("recall({ARGUMENTS}) takes {} arguments, not {}", SETTINGS + 1, types.len());
        }
        let mut wanted = rows::types();
        // Only there so that the plan sorts: any type will do.
        wanted.push(types[RN].clone());
        wanted.push(DataType::Utf8);
        Ok(wanted)
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(output::data_type())
    }

    fn is_nullable(&self) -> bool {
        false
    }

    fn default_value(&self, _: &DataType) -> Result<ScalarValue> {
        empty()
    }

    /// The rows are put in order at the end.
    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(OneStore { settings: settings(&args)?, rows: StoreBuilder::default() }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(format_state_name(args.name, "rows"), rows::list_type(), false))])
    }
}

/// The system's choices: the last argument, a literal.
fn settings(args: &AccumulatorArgs) -> Result<system::Recall> {
    let wrong = |what: &str| {
        Error::usage(format!("the settings of recall, its last argument, {what}"))
            .next("give the JSON of the system's [recall] as a text literal")
    };
    let Some(expr) = args.exprs.get(SETTINGS) else { return Err(wrong("are missing").into()) };
    // A literal has its value without any row; a column has none.
    let value = match expr.evaluate(&RecordBatch::new_empty(Arc::new(args.schema.clone())))? {
        ColumnarValue::Scalar(value) => value,
        ColumnarValue::Array(_) => return Err(wrong("must be the same for all rows").into()),
    };
    let Some(Some(json)) = value.try_as_str() else { return Err(wrong("are no text").into()) };
    Ok(serde_json::from_str(json).map_err(|e| wrong(&format!("cannot be read: {e}")))?)
}

fn empty() -> Result<ScalarValue> {
    let store = StoreBuilder::default().finish();
    Ok(ScalarValue::List(Arc::new(output::to_arrow(&store, &[], &[])?)))
}

/// Gathers the rows of one store.
#[derive(Debug)]
struct OneStore {
    settings: system::Recall,
    rows: StoreBuilder,
}

impl Accumulator for OneStore {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        Ok(rows::push(&values[..RN], &mut self.rows)?)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let store = std::mem::take(&mut self.rows).finish();
        let pooled = pool(&store, &self.settings)?;
        Ok(ScalarValue::List(Arc::new(output::to_arrow(&store, &self.settings.lists, &pooled)?)))
    }

    fn size(&self) -> usize {
        size_of_val(self) - size_of::<StoreBuilder>()
            + self.rows.size()
            + self.settings.lists.capacity() * size_of::<system::List>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let rows = rows::to_arrow(&std::mem::take(&mut self.rows))?;
        Ok(vec![ScalarValue::List(Arc::new(output::one_list(rows)?))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for rows in states[0].as_list::<i32>().iter().flatten() {
            let rows: &StructArray = rows.as_struct();
            rows::push(rows.columns(), &mut self.rows)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a state is read back as.
    #[test]
    fn the_state_has_the_declared_type() {
        let mut state = OneStore { settings: system::Recall::default(), rows: StoreBuilder::default() };
        assert_eq!(state.state().unwrap()[0].data_type(), rows::list_type());
        assert_eq!(empty().unwrap().data_type(), output::data_type());
    }
}
