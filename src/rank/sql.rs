//! `rank_score(named_struct('bm25_score', bm25_score, ...)) -> Float64`: the ranker's score of one turn.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::array::{Array, ArrayRef, Float64Array, StructArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Fields, Float64Type};
use datafusion::error::Result as SqlResult;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

use crate::error::Error;
use crate::ranker::Ranker;

/// Features that a model gives to every turn: one that is null says that the model failed on the turn, or was not asked.
const BY_MODEL: [&str; 3] = ["ce_prob", "context_cosine", "teacher_grade"];

/// How a turn's features become its score.
#[derive(Debug, Clone)]
pub enum Scorer {
    /// One column as it is, or negated where its smallest value is the best. A turn without a value, such as one that
    /// is in no lexical list, gets the lowest score.
    Column { name: String, descending: bool },
    /// A trained ranker; a null feature is a missing one. Where the training fell back to the fused order, the pool
    /// position ranks.
    Lightgbm(Arc<Ranker>),
}

impl Scorer {
    /// The features that the score is made of, in the ranker's order.
    pub fn inputs(&self) -> &[String] {
        match self {
            Scorer::Column { name, .. } => std::slice::from_ref(name),
            Scorer::Lightgbm(ranker) => ranker.inputs(),
        }
    }

    /// Scores rows of features, one column an input. Where a model failed on a feature that the ranking uses, the
    /// score is null, so that the slate says so. A score that is not a finite number is null: no order may
    /// depend on it. A negative zero becomes zero, so that the two are a tie.
    fn score(&self, columns: &[Float64Array], rows: usize) -> SqlResult<Float64Array> {
        let scores = match self {
            Scorer::Column { descending, .. } => {
                let sign = if *descending { 1.0 } else { -1.0 };
                columns[0].iter().map(|v| Some(v.map_or(f64::MIN, |v| sign * v))).collect()
            }
            Scorer::Lightgbm(ranker) => {
                let values: Vec<f64> = (0..rows)
                    .flat_map(|row| columns.iter().map(move |c| if c.is_null(row) { f64::NAN } else { c.value(row) }))
                    .collect();
                Float64Array::from(ranker.predict(&values, columns.len())?)
            }
        };
        let models: Vec<&Float64Array> = self
            .inputs()
            .iter()
            .zip(columns)
            .filter(|(name, _)| BY_MODEL.contains(&name.as_str()))
            .map(|(_, c)| c)
            .collect();
        let score = |(row, score): (usize, Option<f64>)| {
            let failed = models.iter().any(|column| column.is_null(row));
            score.filter(|s| s.is_finite() && !failed).map(|s| s + 0.0)
        };
        Ok(scores.iter().enumerate().map(score).collect())
    }
}

impl PartialEq for Scorer {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Scorer::Column { name: a, descending: x }, Scorer::Column { name: b, descending: y }) => a == b && x == y,
            (Scorer::Lightgbm(a), Scorer::Lightgbm(b)) => a.hash() == b.hash() && a.inputs() == b.inputs(),
            _ => false,
        }
    }
}

impl Eq for Scorer {}

impl Hash for Scorer {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Scorer::Column { name, descending } => (0, name, descending).hash(state),
            Scorer::Lightgbm(ranker) => (1, ranker.hash()).hash(state),
        }
    }
}

/// The function `rank_score` of one system. Its argument is a struct of feature columns, from which it takes what the
/// ranking needs by name.
pub fn rank_score(scorer: Scorer) -> ScalarUDF {
    ScalarUDF::from(RankScore { scorer, signature: Signature::any(1, Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct RankScore {
    scorer: Scorer,
    signature: Signature,
}

impl RankScore {
    fn check(&self, argument: &DataType) -> SqlResult<()> {
        let DataType::Struct(fields) = argument else {
            return Err(Error::usage(format!("rank_score takes a struct of named features, not {argument}"))
                .next("write rank_score(named_struct('bm25_score', bm25_score, ...))")
                .into());
        };
        self.scorer.inputs().iter().try_for_each(|name| feature(fields, name))
    }
}

fn feature(fields: &Fields, name: &str) -> SqlResult<()> {
    let Some((_, field)) = fields.find(name) else {
        let given: Vec<&str> = fields.iter().map(|f| f.name().as_str()).collect();
        return Err(Error::usage(format!("rank_score: the ranking needs the feature {name:?}"))
            .next(format!("the struct holds {}", given.join(", ")))
            .into());
    };
    let kind = field.data_type();
    if kind.is_numeric() || matches!(kind, DataType::Boolean | DataType::Null) {
        return Ok(());
    }
    Err(Error::usage(format!("rank_score: the feature {name:?} is {kind}, not a number")).into())
}

impl ScalarUDFImpl for RankScore {
    fn name(&self) -> &str {
        "rank_score"
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn return_type(&self, arguments: &[DataType]) -> SqlResult<DataType> {
        self.check(&arguments[0])?;
        Ok(DataType::Float64)
    }
    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> SqlResult<ColumnarValue> {
        let rows = args.args[0].to_array(args.number_rows)?;
        self.check(rows.data_type())?;
        let rows = rows.as_struct();
        let columns = self.scorer.inputs().iter().map(|name| numbers(rows, name)).collect::<SqlResult<Vec<_>>>()?;
        let scores: ArrayRef = Arc::new(self.scorer.score(&columns, rows.len())?);
        Ok(ColumnarValue::Array(scores))
    }
}

/// A feature as Float64, null where the whole struct is null.
fn numbers(rows: &StructArray, name: &str) -> SqlResult<Float64Array> {
    let (index, _) =
        rows.fields().find(name).ok_or_else(|| Error::internal(format!("the feature {name:?} is gone")))?;
    let column = cast(rows.column(index), &DataType::Float64)?;
    let column = column.as_primitive::<Float64Type>();
    match rows.nulls() {
        Some(outer) => {
            let nulls = arrow::buffer::NullBuffer::union(Some(outer), column.nulls());
            Ok(Float64Array::new(column.values().clone(), nulls))
        }
        None => Ok(column.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranker::{Dataset, Params, Row, train};
    use datafusion::prelude::SessionContext;

    fn column(name: &str, descending: bool) -> Scorer {
        Scorer::Column { name: name.into(), descending }
    }

    fn ranker(rows: Vec<Row>) -> Arc<Ranker> {
        let names = vec!["bm25_score".to_string(), "age_days".to_string()];
        let trained = train(&Dataset::from_rows(names.clone(), rows).unwrap(), &Params::default()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.txt");
        trained.save(&path).unwrap();
        Arc::new(Ranker::load(&path, &names).unwrap())
    }

    /// Positive where the BM25 score is above 5 of 0 to 9, negative where it is missing.
    fn rows(groups: usize) -> Vec<Row> {
        let row = |group: usize, i: i64| {
            let bm25 = if i % 10 == 0 { f64::NAN } else { (i % 10) as f64 };
            Row { group: format!("{group}"), ordinal: i, label: f32::from(bm25 > 5.0), values: vec![bm25, i as f64] }
        };
        (0..groups).flat_map(|g| (0..30).map(move |i| row(g, i))).collect()
    }

    async fn scores(scorer: Scorer, sql: &str) -> crate::error::Result<Vec<Option<f64>>> {
        let context = SessionContext::new();
        context.register_udf(rank_score(scorer));
        let batches = context.sql(sql).await?.collect().await?;
        Ok(batches.iter().flat_map(|b| b.column(0).as_primitive::<Float64Type>().iter().collect::<Vec<_>>()).collect())
    }

    #[tokio::test]
    async fn a_column_is_taken_by_name_and_turned_so_that_larger_is_better() {
        let sql = "SELECT rank_score(named_struct('bm25_score', b, 'pool_position', p)) FROM
            (VALUES (2.5, 1), (NULL, 2), (0.5, 3)) AS t(b, p)";
        let up = scores(column("bm25_score", true), sql).await.unwrap();
        // A turn that the list does not hold comes last, and is no failure.
        assert_eq!(up, [Some(2.5), Some(f64::MIN), Some(0.5)]);
        let models = "SELECT rank_score(named_struct('context_cosine', c)) FROM (VALUES (0.5), (NULL)) AS t(c)";
        assert_eq!(scores(column("context_cosine", true), models).await.unwrap(), [Some(0.5), None]);
        let down = scores(column("pool_position", false), sql).await.unwrap();
        assert_eq!(down, [Some(-1.0), Some(-2.0), Some(-3.0)]);
    }

    #[tokio::test]
    async fn what_is_not_a_finite_number_is_null_and_comes_last() {
        let sql = "SELECT rank_score(named_struct('ce_prob', s)) AS score, o FROM
            (VALUES (CAST('NaN' AS FLOAT), 10), (0.5, 2), (CAST('inf' AS FLOAT), 1), (NULL, 0), (0.5, 1), (0.9, 7),
            (0.0, 4), (-0.0, 3)) AS t(s, o)
            ORDER BY score DESC NULLS LAST, o";
        let context = SessionContext::new();
        context.register_udf(rank_score(column("ce_prob", true)));
        let batches = context.sql(sql).await.unwrap().collect().await.unwrap();
        let order: Vec<i64> = batches
            .iter()
            .flat_map(|b| b.column(1).as_primitive::<arrow::datatypes::Int64Type>().values().to_vec())
            .collect();
        // Equal scores by their ordinal, the null scores (NaN, infinite, null) last, also by their ordinal.
        assert_eq!(order, [7, 1, 2, 3, 4, 0, 1, 10]);
    }

    #[tokio::test]
    async fn a_ranker_takes_its_features_by_name_and_nulls_as_missing() {
        let ranker = ranker(rows(20));
        // The struct holds them in another order, and more of them.
        let sql = "SELECT rank_score(named_struct('pool_position', 1, 'age_days', a, 'bm25_score', b)) FROM
            (VALUES (1.0, 9.0), (1.0, 2.0), (1.0, NULL)) AS t(a, b)";
        let got = scores(Scorer::Lightgbm(ranker.clone()), sql).await.unwrap();
        let expected = ranker.predict(&[9.0, 1.0, 2.0, 1.0, f64::NAN, 1.0], 2).unwrap();
        assert_eq!(got, expected.iter().map(|s| Some(*s)).collect::<Vec<_>>());
        assert!(got[0] > got[1] && got[0] > got[2]);
    }

    #[tokio::test]
    async fn without_a_model_the_fused_order_ranks() {
        let fused = ranker(rows(1).into_iter().map(|r| Row { label: 0.0, ..r }).collect());
        let sql = "SELECT rank_score(named_struct('pool_position', p, 'bm25_score', 0.0)) FROM
            (VALUES (3), (1)) AS t(p)";
        assert_eq!(scores(Scorer::Lightgbm(fused), sql).await.unwrap(), [Some(-3.0), Some(-1.0)]);
    }

    #[tokio::test]
    async fn a_feature_that_is_not_there_is_named_when_the_query_is_planned() {
        let context = SessionContext::new();
        context.register_udf(rank_score(column("ce_prob", true)));
        for (argument, says) in [
            ("named_struct('bm25_score', 1.0)", "\"ce_prob\""),
            ("named_struct('ce_prob', 'high')", "not a number"),
            ("1.0", "named_struct"),
        ] {
            // `sql` plans and does not run.
            let e = context.sql(&format!("SELECT rank_score({argument})")).await.unwrap_err();
            assert!(e.to_string().contains(says), "{e}");
        }
    }

    #[test]
    fn functions_are_equal_by_what_they_compute() {
        assert_eq!(rank_score(column("a", true)), rank_score(column("a", true)));
        assert_ne!(rank_score(column("a", true)), rank_score(column("a", false)));
        let (a, b) = (ranker(rows(20)), ranker(rows(20)));
        assert_eq!(rank_score(Scorer::Lightgbm(a.clone())), rank_score(Scorer::Lightgbm(b)));
        assert_ne!(rank_score(Scorer::Lightgbm(a)), rank_score(Scorer::Lightgbm(ranker(rows(10)))));
    }
}
