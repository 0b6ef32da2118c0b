//! Reads from a lake what is measured and explained.

use std::collections::BTreeMap;

use arrow::array::{AsArray, RecordBatch};
use datafusion::common::ScalarValue;
use datafusion::prelude::SessionContext;

use super::{Bootstrap, Explanation, Inputs, Report, Tables, TurnLine, completeness, explain};
use crate::engine::{self, Functions, Models, Settings};
use crate::error::{Context, Error, Result};
use crate::lake::Lake;
use crate::schema;
use crate::slate::{Costs, gap, render};
use crate::system::{Slate, System};

/// A lake opened for reading the tables of one system.
pub struct Reader {
    context: SessionContext,
    /// The system's name and hash.
    pub system: String,
    slate: Slate,
}

/// One request of one store.
#[derive(Debug, Clone, Copy)]
pub struct RequestKey<'a> {
    pub tenant: &'a str,
    pub store: &'a str,
    pub request: &'a str,
}

/// A slate as it is printed.
#[derive(Debug, Clone)]
pub struct Shown {
    pub question: String,
    pub status: String,
    pub tokens: String,
    pub text: String,
}

impl Reader {
    /// Opens the lake at `url`; `system` is a name, a name with its hash, or nothing where the lake has one system.
    pub async fn open(url: &str, system: Option<&str>) -> Result<Reader> {
        let lake = Lake::open(url).await?;
        let system = choose(&lake, system).await.map_err(|e| e.at(url.to_string()))?;
        Self::of(lake, system).await
    }

    /// Opens the lake at `url` for a system by its name and hash, whatever it has of it.
    pub async fn of_system(url: &str, partition: String) -> Result<Reader> {
        Self::of(Lake::open(url).await?, partition).await
    }

    async fn of(lake: Lake, system: String) -> Result<Reader> {
        let context = engine::session(&Settings::default(), &Functions::new(Models::default()))?;
        for table in schema::TABLES {
            let prefix: &[&str] = if table.partition.first() == Some(&"system") { &[&system] } else { &[] };
            engine::register(&context, &lake, table, prefix).await?;
        }
        let slate = match lake.get(&format!("_systems/{system}.json")).await? {
            Some(bytes) => {
                serde_json::from_slice::<System>(&bytes).or_data(format!("_systems/{system}.json is damaged"))?.slate
            }
            None => Slate::default(),
        };
        Ok(Reader { context, system, slate })
    }

    /// Completeness of the system's slates, over all stores or those named.
    pub async fn eval(&self, stores: &[String]) -> Result<Report> {
        self.measure(stores, None).await
    }

    /// As [`Reader::eval`], of other slates of the system's pools: `tenant_id, store_id, request_id, status, turn_ids, tokens,
    /// budget_tokens`.
    pub async fn eval_slates(&self, stores: &[String], slates: &[RecordBatch]) -> Result<Report> {
        self.measure(stores, Some(slates)).await
    }

    async fn measure(&self, stores: &[String], slates: Option<&[RecordBatch]>) -> Result<Report> {
        let of = |columns: &str, table: &str| {
            let filter = if stores.is_empty() {
                String::new()
            } else {
                let names: Vec<_> = stores.iter().map(|s| format!("'{}'", s.replace('\'', "''"))).collect();
                format!(" WHERE store_id IN ({})", names.join(", "))
            };
            format!("SELECT {columns} FROM {table}{filter}")
        };
        let keys = "tenant_id, store_id, request_id";
        let rows = |sql: String| async move { engine::collect(&self.context, &sql, &[]).await };
        let requests = rows(of(&format!("{keys}, split"), "requests")).await?;
        let labels = rows(of(&format!("{keys}, turn_id, relevance"), "labels")).await?;
        let turns = rows(of("tenant_id, store_id, turn_id, session_id, content_hash", "turns")).await?;
        let pools = rows(of(&format!("{keys}, turn_id"), "pools")).await?;
        let of_lake;
        let slates = match slates {
            Some(slates) => slates,
            None => {
                of_lake = rows(of(&format!("{keys}, status, turn_ids, tokens, budget_tokens"), "slates")).await?;
                &of_lake[..]
            }
        };
        let tables = Tables { requests: &requests, labels: &labels, turns: &turns, pools: &pools, slates };
        completeness(&tables, Bootstrap::default())
    }

    /// Why each turn of a request's pool is in its slate or out.
    pub async fn explain(&self, key: RequestKey<'_>) -> Result<Explanation> {
        let rendering = self.slate.rendering;
        let mut tables = BTreeMap::new();
        for table in ["requests", "labels", "pools", "features", "rankings", "slates"] {
            tables.insert(table, self.rows(table, key, true).await?);
        }
        tables.insert("turns", self.rows("turns", key, false).await?);
        let all = |name: &str| -> &[RecordBatch] { &tables[name] };
        if all("requests").iter().all(|b| b.num_rows() == 0) {
            return Err(unknown(key));
        }
        let kept = self.slate.gap_cut.map(|cut| gap::keep(&scores(all("rankings")), cut));
        let inputs = Inputs {
            requests: all("requests"),
            turns: all("turns"),
            labels: all("labels"),
            pools: all("pools"),
            features: all("features"),
            rankings: all("rankings"),
            slates: all("slates"),
            kept,
            beyond_pool: None,
        };
        let mut costs = Costs::default();
        explain(&inputs, |turn: &TurnLine, session_first| {
            let line = render::line(rendering, Some(&turn.role), turn.content.as_deref().unwrap_or_default());
            let mut cost = costs.tokens(&line);
            if session_first {
                let ordinal = i32::try_from(turn.session_ordinal).unwrap_or(i32::MAX);
                cost += costs.tokens(&render::header(ordinal, turn.session_started_at, self.slate.zone_minutes));
            }
            Ok(cost)
        })
    }

    /// The rendered slate of a request.
    pub async fn show(&self, key: RequestKey<'_>) -> Result<Shown> {
        let slates = self.rows("slates", key, true).await?;
        let requests = self.rows("requests", key, true).await?;
        let first = |batches: &[RecordBatch], name: &str| {
            let batch = batches.iter().find(|b| b.num_rows() > 0)?;
            arrow::util::display::array_value_to_string(batch.column_by_name(name)?, 0).ok()
        };
        let question = first(&requests, "question").ok_or_else(|| unknown(key))?;
        let of = |batches: &[RecordBatch], name: &str| {
            first(batches, name).ok_or_else(|| {
                Error::data(format!("request {:?} of store {:?} has no slate yet", key.request, key.store))
                    .next("make it with `memslate run`, without --until")
            })
        };
        Ok(Shown {
            question,
            status: of(&slates, "status")?,
            tokens: of(&slates, "tokens")?,
            text: of(&slates, "text")?,
        })
    }

    async fn rows(&self, table: &str, key: RequestKey<'_>, of_request: bool) -> Result<Vec<RecordBatch>> {
        let request = if of_request { " AND request_id = $request" } else { "" };
        let sql = format!("SELECT * FROM {table} WHERE tenant_id = $tenant AND store_id = $store{request}");
        let text = |s: &str| ScalarValue::Utf8(Some(s.to_string()));
        let parameters = [("tenant", text(key.tenant)), ("store", text(key.store)), ("request", text(key.request))];
        engine::collect(&self.context, &sql, &parameters).await
    }
}

fn unknown(key: RequestKey<'_>) -> Error {
    Error::data(format!("store {:?} has no request {:?} in this lake", key.store, key.request))
        .next("the requests table lists them; --tenant names the owner where there are several")
}

/// A ranking's scores, best first.
fn scores(rankings: &[RecordBatch]) -> Vec<f64> {
    let mut all: Vec<f64> = Vec::new();
    for batch in rankings {
        if let Some(column) = batch.column_by_name("score") {
            all.extend(column.as_primitive::<arrow::datatypes::Float64Type>().iter().flatten());
        }
    }
    all.sort_by(|a, b| b.total_cmp(a));
    all
}

/// The system's partition: the one that is named, or the only one.
async fn choose(lake: &Lake, system: Option<&str>) -> Result<String> {
    let mut all: Vec<String> = Vec::new();
    // A system whose run stopped before its slates counts only where there is nothing else.
    for table in [&schema::SLATES, &schema::POOLS] {
        if let (true, Some(snapshot)) = (all.is_empty(), lake.existing(table).await?) {
            all.extend(snapshot.partitions()?.into_iter().map(|p| p[0].clone()));
        }
    }
    all.dedup();
    let found: Vec<&String> = match system {
        None => all.iter().collect(),
        Some(name) => all.iter().filter(|s| *s == name || s.rsplit_once('-').is_some_and(|(n, _)| n == name)).collect(),
    };
    match found.as_slice() {
        [one] => Ok((*one).clone()),
        [] => {
            let have = if all.is_empty() { "none".to_string() } else { all.join(", ") };
            let what = system
                .map_or_else(|| "the lake has no slates yet".to_string(), |s| format!("the lake has no system {s:?}"));
            Err(Error::data(what).next(format!("systems in the lake: {have}; `memslate run` makes them")))
        }
        many => {
            let many: Vec<_> = many.iter().map(|s| s.as_str()).collect();
            Err(Error::usage("the lake has more than one system")
                .next(format!("name one with --system: {}", many.join(", "))))
        }
    }
}
