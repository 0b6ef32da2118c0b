//! The functions of the features job.
//!
//! | function | gives |
//! |---|---|
//! | `context_cosine(question, previous, vector, next)` | Float32: cosine with the mean of a turn and its neighbours |
//! | `role_code(role)` | Int32: 0 user, 1 assistant, 2 tool, 3 system |
//! | `age_days(spoken_at, reference_at)` | Float64: days from the turn to the reference date |
//! | `sigmoid(logit)` | Float32: a probability |
//!
//! A value that cannot be computed, and one that is not a finite number, is null.

use std::sync::Arc;

use super::cosine::ContextCosine;
use crate::error::{Error, Result};
use crate::schema;
use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, Float32Array, Float64Array, Int32Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type, TimestampMicrosecondType};
use datafusion::error::Result as SqlResult;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

const MICROSECONDS_A_DAY: f64 = 86_400_000_000.0;

/// Vectors are Binary, little-endian f16, of one length. `previous` and `next` may be null (the ends of a session);
/// the mean is over those that are there. Null where the question's or the turn's own vector is.
///
/// # Errors
/// Vectors of different or odd lengths: a data error.
pub fn context_cosine() -> ScalarUDF {
    Formula::ContextCosine.function()
}

/// Null for a role that has no code.
pub fn role_code() -> ScalarUDF {
    Formula::RoleCode.function()
}

/// A fraction; negative where the turn is newer. Null where either time is.
pub fn age_days() -> ScalarUDF {
    Formula::AgeDays.function()
}

/// 1 / (1 + exp(-logit)).
pub fn sigmoid() -> ScalarUDF {
    Formula::Sigmoid.function()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Formula {
    ContextCosine,
    RoleCode,
    AgeDays,
    Sigmoid,
}

impl Formula {
    fn function(self) -> ScalarUDF {
        let signature = Signature::any(self.arguments().len(), Volatility::Immutable);
        ScalarUDF::from(FeatureFunction { formula: self, signature })
    }

    fn name(self) -> &'static str {
        match self {
            Formula::ContextCosine => "context_cosine",
            Formula::RoleCode => "role_code",
            Formula::AgeDays => "age_days",
            Formula::Sigmoid => "sigmoid",
        }
    }

    /// What the arguments are read as.
    fn arguments(self) -> Vec<DataType> {
        match self {
            Formula::ContextCosine => vec![DataType::Binary; 4],
            Formula::RoleCode => vec![DataType::Utf8],
            Formula::AgeDays => vec![schema::time(); 2],
            Formula::Sigmoid => vec![DataType::Float32],
        }
    }

    fn takes(self, given: &DataType) -> bool {
        let text = matches!(given, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
        *given == DataType::Null
            || match self {
                Formula::ContextCosine => {
                    matches!(given, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
                }
                Formula::RoleCode => text,
                Formula::AgeDays => matches!(given, DataType::Timestamp(..) | DataType::Date32 | DataType::Date64),
                Formula::Sigmoid => given.is_numeric(),
            }
    }

    fn gives(self) -> DataType {
        match self {
            Formula::ContextCosine | Formula::Sigmoid => DataType::Float32,
            Formula::RoleCode => DataType::Int32,
            Formula::AgeDays => DataType::Float64,
        }
    }

    fn compute(self, columns: &[ArrayRef]) -> Result<ArrayRef> {
        Ok(match self {
            Formula::ContextCosine => {
                let column = |i: usize| columns[i].as_binary::<i32>();
                Arc::new(cosines(column(0), column(1), column(2), column(3))?)
            }
            Formula::RoleCode => {
                Arc::new(columns[0].as_string::<i32>().iter().map(|r| r.and_then(code)).collect::<Int32Array>())
            }
            Formula::AgeDays => {
                let time = |i: usize| columns[i].as_primitive::<TimestampMicrosecondType>();
                let days = |(spoken, reference): (Option<i64>, Option<i64>)| {
                    // As i128: the difference of any two times fits.
                    let apart = i128::from(reference?) - i128::from(spoken?);
                    Some(apart as f64 / MICROSECONDS_A_DAY)
                };
                Arc::new(time(0).iter().zip(time(1)).map(days).collect::<Float64Array>())
            }
            Formula::Sigmoid => {
                let logits = columns[0].as_primitive::<Float32Type>();
                Arc::new(logits.iter().map(|l| l.and_then(probability)).collect::<Float32Array>())
            }
        })
    }
}

fn code(role: &str) -> Option<i32> {
    match role {
        "user" => Some(0),
        "assistant" => Some(1),
        "tool" => Some(2),
        "system" => Some(3),
        _ => None,
    }
}

/// Null for a logit that is not a finite number: the model failed.
fn probability(logit: f32) -> Option<f32> {
    logit.is_finite().then(|| (1.0 / (1.0 + f64::from(-logit).exp())) as f32)
}

fn cosines(
    question: &BinaryArray,
    previous: &BinaryArray,
    vector: &BinaryArray,
    next: &BinaryArray,
) -> Result<Float32Array> {
    let mut cosine = ContextCosine::default();
    (0..question.len())
        .map(|row| {
            let (Some(question), Some(own)) = (value(question, row), value(vector, row)) else { return Ok(None) };
            cosine.of(question, [value(previous, row), Some(own), value(next, row)])
        })
        .collect()
}

fn value(column: &BinaryArray, row: usize) -> Option<&[u8]> {
    column.is_valid(row).then(|| column.value(row))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct FeatureFunction {
    formula: Formula,
    signature: Signature,
}

impl ScalarUDFImpl for FeatureFunction {
    fn name(&self) -> &str {
        self.formula.name()
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, arguments: &[DataType]) -> SqlResult<DataType> {
        for (i, given) in arguments.iter().enumerate() {
            if !self.formula.takes(given) {
                let (name, wanted) = (self.name(), self.formula.arguments());
                let what = format!("{name}: argument {} is {given}, not {}", i + 1, wanted[i]);
                return Err(Error::usage(what).into());
            }
        }
        Ok(self.formula.gives())
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> SqlResult<ColumnarValue> {
        let read = |(value, kind): (&ColumnarValue, DataType)| -> SqlResult<ArrayRef> {
            Ok(cast(&value.to_array(args.number_rows)?, &kind)?)
        };
        let columns = args.args.iter().zip(self.formula.arguments()).map(read).collect::<SqlResult<Vec<_>>>()?;
        Ok(ColumnarValue::Array(self.formula.compute(&columns)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::RecordBatch;
    use datafusion::prelude::SessionContext;
    use half::f16;

    async fn run(sql: &str) -> Result<RecordBatch> {
        let context = SessionContext::new();
        super::super::functions().into_iter().for_each(|f| context.register_udf(f));
        let batches = context.sql(sql).await?.collect().await?;
        Ok(arrow::compute::concat_batches(&batches[0].schema(), &batches)?)
    }

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect()
    }

    fn one(question: &[f32], turns: [Option<&[f32]>; 3]) -> Result<Option<f32>> {
        let column = |v: Option<&[f32]>| BinaryArray::from_opt_vec(vec![v.map(bytes).as_deref()]);
        let [p, v, n] = turns.map(column);
        cosines(&column(Some(question)), &p, &v, &n).map(|a| a.iter().next().unwrap())
    }

    #[test]
    fn the_cosine_is_with_the_mean_of_those_that_are_there() {
        let (x, y): (&[f32], &[f32]) = (&[1.0, 0.0], &[0.0, 1.0]);
        let close =
            |got: Option<f32>, want: f64| assert!((f64::from(got.unwrap()) - want).abs() < 1e-6, "{got:?} {want}");
        close(one(x, [None, Some(x), None]).unwrap(), 1.0);
        close(one(x, [None, Some(y), None]).unwrap(), 0.0);
        // (1/2, 1/2): 45 degrees.
        close(one(x, [Some(y), Some(x), None]).unwrap(), 0.5f64.sqrt());
        // (1/3, 2/3): 1 / sqrt(1 + 4).
        close(one(x, [Some(y), Some(x), Some(y)]).unwrap(), 1.0 / 5.0f64.sqrt());
        close(one(x, [None, Some(y), Some(x)]).unwrap(), 0.5f64.sqrt());
    }

    #[test]
    fn what_is_missing_is_null_and_what_is_wrong_an_error() {
        let x: &[f32] = &[1.0, 0.0];
        assert_eq!(one(x, [Some(x), None, Some(x)]).unwrap(), None);
        assert_eq!(one(&[0.0, 0.0], [None, Some(x), None]).unwrap(), None);
        assert_eq!(one(x, [Some(&[-1.0, 0.0]), Some(x), None]).unwrap(), None, "a mean of zero has no direction");
        assert_eq!(one(&[f32::NAN, 0.0], [None, Some(x), None]).unwrap(), None);
        for wrong in [[None, Some(&[1.0f32, 0.0, 0.0][..]), None], [None, Some(x), Some(&[1.0])]] {
            let e = one(x, wrong).unwrap_err();
            assert!(e.to_string().contains("the question's vector has 4 bytes"), "{e}");
        }
        let odd = BinaryArray::from_vec(vec![b"abc"]);
        assert!(cosines(&odd, &odd, &odd, &odd).unwrap_err().to_string().contains("3 bytes"));
    }

    #[tokio::test]
    async fn vectors_of_a_query_may_be_null() {
        let batch = run("SELECT context_cosine(q, NULL, v, arrow_cast(NULL, 'BinaryView')) FROM
            (VALUES (X'003c0000', X'003c0000'), (X'003c0000', NULL), (NULL, X'003c0000')) AS t(q, v)")
        .await
        .unwrap();
        let got: Vec<_> = batch.column(0).as_primitive::<Float32Type>().iter().collect();
        // 0x3c00 is 1 in f16.
        assert_eq!(got, [Some(1.0), None, None]);
    }

    #[tokio::test]
    async fn roles_have_codes() {
        let batch =
            run("SELECT role_code(r) FROM (VALUES ('user'), ('assistant'), ('tool'), ('system'), ('User'), (NULL))
            AS t(r)")
            .await
            .unwrap();
        let got: Vec<_> = batch.column(0).as_primitive::<arrow::datatypes::Int32Type>().iter().collect();
        assert_eq!(got, [Some(0), Some(1), Some(2), Some(3), None, None]);
    }

    #[tokio::test]
    async fn ages_are_days_before_the_reference_date() {
        let batch =
            run("SELECT age_days(CAST(s AS TIMESTAMP), arrow_cast(r, 'Timestamp(Microsecond, Some(\"UTC\"))')) FROM
            (VALUES ('2023-05-08T12:00:00', '2023-05-10T00:00:00Z'), ('2023-03-01T00:00:00', '2023-02-28T00:00:00Z'),
            ('2024-02-28T00:00:00', '2024-03-01T06:00:00Z'), (NULL, '2023-05-10T00:00:00Z'),
            ('2023-05-08T12:00:00', NULL)) AS t(s, r)")
            .await
            .unwrap();
        let got: Vec<_> = batch.column(0).as_primitive::<arrow::datatypes::Float64Type>().iter().collect();
        assert_eq!(got, [Some(1.5), Some(-1.0), Some(2.25), None, None]);
    }

    #[tokio::test]
    async fn a_logit_becomes_a_probability() {
        let batch = run("SELECT sigmoid(CAST(l AS FLOAT)) FROM
            (VALUES ('0'), ('1.0986123'), ('-100'), ('100'), ('NaN'), ('inf'), ('-inf'), (NULL)) AS t(l)")
        .await
        .unwrap();
        let got: Vec<_> = batch.column(0).as_primitive::<Float32Type>().iter().collect();
        assert_eq!(got[0], Some(0.5));
        // ln 3: 3 / (3 + 1).
        assert!((got[1].unwrap() - 0.75).abs() < 1e-7);
        assert!(got[2].unwrap() >= 0.0 && got[2].unwrap() < 1e-40);
        assert_eq!(got[3], Some(1.0));
        assert_eq!(got[4..], [None, None, None, None]);
    }

    #[tokio::test]
    async fn arguments_of_a_wrong_type_are_named_when_the_query_is_planned() {
        for (sql, says) in [
            ("SELECT sigmoid('x')", "sigmoid: argument 1 is"),
            ("SELECT role_code(1)", "role_code"),
            ("SELECT age_days(now(), 'yesterday')", "age_days: argument 2"),
            ("SELECT context_cosine(X'00', NULL, 'text', NULL)", "context_cosine: argument 3"),
        ] {
            let e = run(sql).await.unwrap_err();
            assert!(e.to_string().contains(says), "{e}");
        }
    }
}
