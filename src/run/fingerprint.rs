//! Fingerprints: 64 bits of SHA-256 over all that a thing depends on.

use std::collections::BTreeMap;

use arrow::array::AsArray;
use arrow::datatypes::{Int32Type, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::prelude::SessionContext;
use sha2::{Digest, Sha256};

use super::graph;
use crate::engine;
use crate::error::Result;

/// Changes when a function's results change with no change in its SELECT or parameters.
const FUNCTIONS_VERSION: i64 = 2;

/// Tenant and store.
pub type Store = (String, String);
/// By shard, by store.
pub type Prints = BTreeMap<i32, BTreeMap<Store, i64>>;

/// A fingerprint in the making: parts cannot run into each other.
pub struct Print(Sha256);

impl Print {
    pub fn new(of: &str) -> Self {
        Print(Sha256::new()).text(of).long(FUNCTIONS_VERSION)
    }
    pub fn text(mut self, text: &str) -> Self {
        self.0.update((text.len() as u64).to_le_bytes());
        self.0.update(text);
        self
    }
    pub fn long(mut self, value: i64) -> Self {
        self.0.update(value.to_le_bytes());
        self
    }
    pub fn end(self) -> i64 {
        i64::from_le_bytes(self.0.finalize()[..8].try_into().expect("a digest has 32 bytes"))
    }
}

/// Of a table's SELECT with the parameters that it names and the models that it calls.
pub fn of_select(table: &str, sql: &str, parameters: &[(&str, ScalarValue)], models: &[(&str, String)]) -> i64 {
    let mut print = Print::new(table).text(sql);
    for (name, value) in parameters {
        if engine::names_parameter(sql, name) {
            print = print.text(name).text(&format!("{value:?}"));
        }
    }
    for (function, hash) in models {
        if engine::calls(sql, function) {
            print = print.text(function).text(hash);
        }
    }
    print.end()
}

/// The fingerprints of a derived table's stores: its SELECT and the fingerprints of all that it reads.
///
/// Tables by content add nothing here: their rows are settled by the texts and by the model's hash, which is a
/// parameter. Stores are those that have requests.
pub fn of_stores(select: i64, reads: &[&str], upstream: &BTreeMap<&str, Prints>) -> Prints {
    let mut out = Prints::new();
    let Some(requests) = upstream.get("requests") else { return out };
    for (shard, stores) in requests {
        let prints = stores.keys().map(|store| {
            let mut print = Print::new("store").long(select);
            for table in reads.iter().filter(|t| !graph::by_content(t)) {
                let of = upstream.get(table).and_then(|p| p.get(shard)).and_then(|s| s.get(store));
                print = print.text(table).long(of.copied().unwrap_or(0));
            }
            (store.clone(), print.end())
        });
        out.insert(*shard, prints.collect());
    }
    out
}

/// Of a whole shard.
pub fn of_shard(select: i64, stores: &[&BTreeMap<Store, i64>]) -> i64 {
    let mut print = Print::new("shard").long(select);
    for part in stores {
        print = print.long(part.len() as i64);
        for ((tenant, store), of) in *part {
            print = print.text(tenant).text(store).long(*of);
        }
    }
    print.end()
}

/// The fingerprint of each store in `rows`: a table's name, or a SELECT in brackets.
pub async fn of_table(context: &SessionContext, rows: &str, parameters: &[(&str, ScalarValue)]) -> Result<Prints> {
    let sql = format!(
        "SELECT shard, tenant_id, store_id, max(store_fingerprint) FROM {rows} GROUP BY shard, tenant_id, store_id"
    );
    from_rows(&engine::collect(context, &sql, parameters).await?)
}

/// Reads `shard, tenant_id, store_id, fingerprint` rows.
pub fn from_rows(batches: &[arrow::array::RecordBatch]) -> Result<Prints> {
    let mut out = Prints::new();
    for batch in batches {
        let shards = batch.column(0).as_primitive::<Int32Type>();
        let (tenants, stores) = (batch.column(1).as_string::<i32>(), batch.column(2).as_string::<i32>());
        let prints = batch.column(3).as_primitive::<Int64Type>();
        for row in 0..batch.num_rows() {
            let store = (tenants.value(row).to_string(), stores.value(row).to_string());
            out.entry(shards.value(row)).or_default().insert(store, prints.value(row));
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_named_counts() {
        let budget = |n| [("budget_tokens", ScalarValue::Int32(Some(n)))];
        let ranking = "SELECT rank_score(x) FROM features";
        assert_eq!(of_select("r", ranking, &budget(1), &[]), of_select("r", ranking, &budget(2), &[]));
        let slate = "SELECT $budget_tokens";
        assert_ne!(of_select("s", slate, &budget(1), &[]), of_select("s", slate, &budget(2), &[]));
        let model = |h: &str| [("rank_score", h.to_string())];
        assert_ne!(of_select("r", ranking, &[], &model("a")), of_select("r", ranking, &[], &model("b")));
        assert_eq!(of_select("s", slate, &[], &model("a")), of_select("s", slate, &[], &model("b")));
    }

    #[test]
    fn a_store_depends_on_its_own_turns_only() {
        let prints =
            |a, b| Prints::from([(0, BTreeMap::from([(("".into(), "a".into()), a), (("".into(), "b".into()), b)]))]);
        let upstream = |a, b| BTreeMap::from([("turns", prints(a, b)), ("requests", prints(7, 7))]);
        let one = of_stores(1, &["turns", "requests", "embeddings"], &upstream(1, 2));
        let two = of_stores(1, &["turns", "requests", "embeddings"], &upstream(1, 3));
        let key = |s: &str| ("".to_string(), s.to_string());
        assert_eq!(one[&0][&key("a")], two[&0][&key("a")]);
        assert_ne!(one[&0][&key("b")], two[&0][&key("b")]);
        assert_ne!(of_shard(1, &[&one[&0]]), of_shard(1, &[&two[&0]]));
    }
}
