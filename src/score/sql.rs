//! `embed(text, purpose)` and `cross_score(question, content)`.
//!
//! Both are volatile: the engine must not run them again below another expression. They compare by name and model hash.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryBuilder, BooleanArray, Float32Array, StringArray, StructArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::Result as EngineResult;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;

use super::cross_encoder::CrossEncoder;
use super::encoder::{Encoder, Purpose, vector_bytes};
use crate::error::{Error, Result};

/// `struct<vector: binary (little-endian f16 of the unit vector; empty: no token; null: failed), truncated: boolean>`.
pub fn embed_type() -> DataType {
    DataType::Struct(embed_fields())
}

/// `struct<logit: float (null: blank or not finite), truncated: boolean>`.
pub fn cross_score_type() -> DataType {
    DataType::Struct(cross_score_fields())
}

fn embed_fields() -> Fields {
    vec![Field::new("vector", DataType::Binary, true), Field::new("truncated", DataType::Boolean, false)].into()
}

fn cross_score_fields() -> Fields {
    vec![Field::new("logit", DataType::Float32, true), Field::new("truncated", DataType::Boolean, false)].into()
}

/// `embed(text, purpose)` by this encoder; purpose is `'query'` or `'passage'`.
pub fn embed_function(encoder: Arc<Encoder>) -> ScalarUDF {
    function("embed", encoder.hash().to_string(), Some(Arc::new(move |args: &[StringArray]| embed(&encoder, args))))
}

/// `embed` for planning: the same types, but running it is an error that says that the model `name` is missing.
pub fn embed_signature_only(name: &str) -> ScalarUDF {
    function("embed", name.to_string(), None)
}

/// `cross_score(question, content)` by this cross-encoder.
pub fn cross_score_function(scorer: Arc<CrossEncoder>) -> ScalarUDF {
    function("cross_score", scorer.hash().to_string(), Some(Arc::new(move |args: &[StringArray]| score(&scorer, args))))
}

/// `cross_score` for planning, as [`embed_signature_only`].
pub fn cross_score_signature_only(name: &str) -> ScalarUDF {
    function("cross_score", name.to_string(), None)
}

type Compute = Arc<dyn Fn(&[StringArray]) -> Result<ArrayRef> + Send + Sync>;

/// A function of two texts by a model.
struct ModelFunction {
    name: &'static str,
    /// The model's hash, or its name where only types are needed.
    model: String,
    compute: Option<Compute>,
    signature: Signature,
}

fn function(name: &'static str, model: String, compute: Option<Compute>) -> ScalarUDF {
    let signature = Signature::user_defined(Volatility::Volatile);
    ScalarUDF::from(ModelFunction { name, model, compute, signature })
}

impl ModelFunction {
    fn identity(&self) -> (&str, &str, bool) {
        (self.name, &self.model, self.compute.is_some())
    }

    fn fields(&self) -> Fields {
        if self.name == "embed" { embed_fields() } else { cross_score_fields() }
    }
}

impl PartialEq for ModelFunction {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}
impl Eq for ModelFunction {}
impl Hash for ModelFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}
impl fmt::Debug for ModelFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.name, self.model)
    }
}

impl ScalarUDFImpl for ModelFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> EngineResult<Vec<DataType>> {
        if types.len() != 2 || !types.iter().all(is_text) {
            return Err(Error::usage(format!("{} takes two texts, not {types:?}", self.name)).into());
        }
        Ok(types.to_vec())
    }

    fn return_type(&self, _: &[DataType]) -> EngineResult<DataType> {
        Ok(DataType::Struct(self.fields()))
    }

    /// The struct itself is never null. A purpose that is written out is checked before anything runs.
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> EngineResult<FieldRef> {
        if self.name == "embed"
            && let Some(Some(purpose)) = args.scalar_arguments.get(1)
            && let Some(text) = purpose.try_as_str()
        {
            text.unwrap_or("null").parse::<Purpose>()?;
        }
        Ok(Arc::new(Field::new(self.name, DataType::Struct(self.fields()), false)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> EngineResult<ColumnarValue> {
        let Some(compute) = &self.compute else {
            return Err(Error::data(format!("{} cannot run: model {} is not loaded", self.name, self.model))
                .next("name a model in the job file, and fetch it")
                .into());
        };
        let texts: Vec<StringArray> =
            args.args.iter().map(|a| Ok(as_text(&a.to_array(args.number_rows)?)?)).collect::<EngineResult<_>>()?;
        let array = compute(&texts).map_err(|e| e.at(self.name))?;
        // A constant call in a plan gives one value.
        if args.number_rows == 1 && args.args.iter().all(|a| matches!(a, ColumnarValue::Scalar(_))) {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?));
        }
        Ok(ColumnarValue::Array(array))
    }
}

fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => true,
        DataType::Dictionary(_, value) => is_text(value),
        _ => false,
    }
}

fn as_text(array: &ArrayRef) -> Result<StringArray> {
    Ok(cast(array, &DataType::Utf8)?.as_string::<i32>().clone())
}

fn embed(encoder: &Encoder, args: &[StringArray]) -> Result<ArrayRef> {
    let (texts, purposes) = (&args[0], &args[1]);
    let parsed: Vec<Purpose> = purposes.iter().map(|p| p.unwrap_or("null").parse()).collect::<Result<_>>()?;
    let mut results = vec![None; texts.len()];
    for purpose in [Purpose::Query, Purpose::Passage] {
        let rows: Vec<usize> = (0..texts.len()).filter(|&i| parsed[i] == purpose).collect();
        let wanted: Vec<Option<&str>> = rows.iter().map(|&i| texts.is_valid(i).then(|| texts.value(i))).collect();
        for (row, embedded) in rows.into_iter().zip(encoder.embed(&wanted, purpose)?) {
            results[row] = Some(embedded);
        }
    }
    let mut vectors = BinaryBuilder::with_capacity(texts.len(), texts.len() * encoder.dim() * 2);
    for embedded in results.iter().flatten() {
        vectors.append_option(embedded.vector.as_deref().map(vector_bytes));
    }
    let truncated: BooleanArray = results.iter().flatten().map(|e| Some(e.truncated)).collect();
    Ok(Arc::new(StructArray::try_new(embed_fields(), vec![Arc::new(vectors.finish()), Arc::new(truncated)], None)?))
}

fn score(scorer: &CrossEncoder, args: &[StringArray]) -> Result<ArrayRef> {
    let pairs: Vec<_> = args[0].iter().zip(args[1].iter()).collect();
    let scored = scorer.score(&pairs)?;
    let logits: Float32Array = scored.iter().map(|s| s.logit).collect();
    let truncated: BooleanArray = scored.iter().map(|s| Some(s.truncated)).collect();
    Ok(Arc::new(StructArray::try_new(cross_score_fields(), vec![Arc::new(logits), Arc::new(truncated)], None)?))
}

#[cfg(test)]
mod tests;
