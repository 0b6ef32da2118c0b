//! The one list of functions that jobs may call.

use std::sync::Arc;

use datafusion::logical_expr::ScalarUDF;
use datafusion::prelude::SessionContext;

use crate::rank::Scorer;
use crate::score::{CrossEncoder, Encoder};
use crate::{engine, features, rank, recall, score, slate, text};

/// Changes when a function's results change with no change in its SELECT or parameters.
pub const FUNCTIONS_VERSION: i64 = 2;

/// What a run has loaded. Jobs are planned without models; a function whose model is missing fails when it is called.
#[derive(Clone, Default)]
pub struct Models {
    pub encoder: Option<Arc<Encoder>>,
    pub cross_encoder: Option<Arc<CrossEncoder>>,
    pub scorer: Option<Scorer>,
}

/// The functions of a session.
#[derive(Clone)]
pub struct Functions {
    models: Models,
}

impl Functions {
    pub fn new(models: Models) -> Self {
        Functions { models }
    }

    pub fn models(&self) -> &Models {
        &self.models
    }

    pub(super) fn register(&self, context: &SessionContext) {
        for function in self.scalars() {
            context.register_udf(function);
        }
        context.register_udaf(recall::aggregate());
    }

    fn scalars(&self) -> Vec<ScalarUDF> {
        let models = &self.models;
        let mut all = engine::inputs::all();
        all.extend(text::functions());
        all.extend(recall::functions());
        all.extend(features::functions());
        all.extend(slate::functions());
        all.push(match &models.encoder {
            Some(encoder) => score::embed_function(encoder.clone()),
            None => score::embed_signature_only("the job's encoder"),
        });
        all.push(match &models.cross_encoder {
            Some(scorer) => score::cross_score_function(scorer.clone()),
            None => score::cross_score_signature_only("the job's scorer"),
        });
        all.push(rank::rank_score(models.scorer.clone().unwrap_or_else(fused_order)));
        all
    }
}

/// What stands in for a ranker where a job is planned without one.
fn fused_order() -> Scorer {
    Scorer::Column { name: "pool_position".into(), descending: false }
}
