//! SQL functions over texts: `count_tokens(text)` and `detect_language(text)`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, StringArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{Result, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};

use crate::error::Error;

/// The SQL functions of this folder.
pub fn functions() -> Vec<ScalarUDF> {
    [What::CountTokens, What::DetectLanguage].into_iter().map(|what| ScalarUDF::from(TextFunction::new(what))).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum What {
    /// o200k tokens, Int32; 0 for null.
    CountTokens,
    /// ISO 639-1 code, Utf8; null where it is not known.
    DetectLanguage,
}

/// A function of one text: Utf8, LargeUtf8 or Utf8View.
#[derive(Debug, PartialEq, Eq, Hash)]
struct TextFunction {
    what: What,
    signature: Signature,
}

impl TextFunction {
    fn new(what: What) -> Self {
        TextFunction { what, signature: Signature::new(TypeSignature::Any(1), Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for TextFunction {
    fn name(&self) -> &str {
        match self.what {
            What::CountTokens => "count_tokens",
            What::DetectLanguage => "detect_language",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        match types {
            [DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null] => {}
            _ => return plan_err!("{}(text) takes one text, not {types:?}", self.name()),
        }
        Ok(match self.what {
            What::CountTokens => DataType::Int32,
            What::DetectLanguage => DataType::Utf8,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let array = args.args[0].to_array(args.number_rows)?;
        // Large offsets hold any batch, so that the cast never fails.
        let texts = cast(&array, &DataType::LargeUtf8)?;
        let texts = texts.as_string::<i64>();
        let result: ArrayRef = match self.what {
            What::CountTokens => {
                let counts: Result<Int32Array, Error> = texts.iter().map(|text| count(text).map(Some)).collect();
                Arc::new(counts?)
            }
            What::DetectLanguage => {
                Arc::new(texts.iter().map(|t| t.and_then(super::detect_language)).collect::<StringArray>())
            }
        };
        debug_assert_eq!(result.len(), args.number_rows);
        Ok(ColumnarValue::Array(result))
    }
}

fn count(text: Option<&str>) -> Result<i32, Error> {
    let tokens = text.map_or(0, super::count_tokens);
    i32::try_from(tokens).map_err(|_| Error::data(format!("a text has {tokens} tokens, more than an Int32 holds")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::RecordBatch;
    use datafusion::prelude::SessionContext;

    async fn run(sql: &str) -> RecordBatch {
        let context = SessionContext::new();
        functions().into_iter().for_each(|f| context.register_udf(f));
        let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
        arrow::compute::concat_batches(&batches[0].schema(), &batches).unwrap()
    }

    #[tokio::test]
    async fn counts_and_languages_of_every_kind_of_text() {
        for kind in ["Utf8", "LargeUtf8", "Utf8View"] {
            let rows = run(&format!(
                "SELECT count_tokens(t), detect_language(t) FROM (SELECT arrow_cast(column1, '{kind}') AS t, column2 AS n
                 FROM (VALUES ('hello world', 1), (NULL, 2), ('', 3), ('今天玩成语接龙游戏', 4))) ORDER BY n"
            ))
            .await;
            let counts = rows.column(0).as_primitive::<arrow::datatypes::Int32Type>();
            assert_eq!((counts.value(0), counts.value(1), counts.value(2), counts.null_count()), (2, 0, 0, 0));
            let languages: Vec<_> = rows.column(1).as_string::<i32>().iter().collect();
            assert_eq!(languages, [None, None, None, Some("zh")]);
        }
    }

    #[tokio::test]
    async fn another_type_is_refused_when_planned() {
        let context = SessionContext::new();
        functions().into_iter().for_each(|f| context.register_udf(f));
        let e = context.sql("SELECT count_tokens(1)").await.unwrap_err();
        assert!(e.to_string().contains("count_tokens(text) takes one text"), "{e}");
    }
}
