//! Every table and column, declared once. Jobs are checked against this before they run; column names are final.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};

/// Written into the lake; a lake of another format is refused.
pub const FORMAT_VERSION: u32 = 2;

/// Changes when a column of the features comes to mean something else: a ranker is used on the features that it learnt from.
pub const FEATURES_VERSION: u32 = 1;

/// A column: its type, and what its values mean, with the unit.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    pub name: &'static str,
    pub kind: Kind,
    pub nullable: bool,
    pub meaning: &'static str,
}

/// The types that a Delta table holds: no unsigned integers, no Float16, no fixed-size lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    Bytes,
    Bool,
    Int,
    Long,
    Float,
    Double,
    /// Microseconds, UTC.
    Time,
    TextList,
    /// `list<struct<name, score, rank>>`: what each recall list said of a turn.
    Lists,
}

/// A table of the lake.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    pub name: &'static str,
    pub columns: &'static [Column],
    /// Columns of the partition, which stand in paths and not in the files.
    pub partition: &'static [&'static str],
    /// Columns that name a row, in the order in which rows are written.
    pub key: &'static [&'static str],
}

const fn col(name: &'static str, kind: Kind, meaning: &'static str) -> Column {
    Column { name, kind, nullable: false, meaning }
}
const fn opt(name: &'static str, kind: Kind, meaning: &'static str) -> Column {
    Column { name, kind, nullable: true, meaning }
}

use Kind::*;

const TENANT: Column = col("tenant_id", Text, "owner of the store; '' where there is one owner");
const STORE: Column = col("store_id", Text, "one history: the past turns of one user or conversation");
const REQUEST: Column = col("request_id", Text, "a question with its reference date; unique in its store");
const TURN: Column = col("turn_id", Text, "one message of a history; unique in its store");
const ORDINAL: Column =
    col("turn_ordinal", Int, "place of the turn in its store, from 0, in time order; settles every tie");
const PRINT: Column = col("store_fingerprint", Long, "hash of all that the store's rows were computed from");

pub const TURNS: Table = Table {
    name: "turns",
    columns: &[
        TENANT,
        STORE,
        col("session_id", Text, "the conversation that the turn was said in"),
        TURN,
        ORDINAL,
        col("session_ordinal", Int, "place of the session in its store, from 0, in time order"),
        col("position", Int, "place of the turn in its session, from 0"),
        opt("spoken_at", Time, "when the turn was said"),
        opt("added_at", Time, "when the turn entered the store; decides whether it is newer than a deletion"),
        col("role", Text, "user, assistant, system or tool"),
        opt("speaker", Text, "the speaker's name, where speakers are named"),
        opt("content", Text, "the turn's line: speaker's name if named, text, image captions; null: nothing to recall"),
        opt("language", Text, "ISO 639-1 code; null where it is not known"),
        opt("content_hash", Bytes, "SHA-256 of content"),
        col("tokens", Int, "o200k tokens of content"),
        PRINT,
    ],
    partition: &["shard"],
    key: &["tenant_id", "store_id", "turn_ordinal"],
};

pub const REQUESTS: Table = Table {
    name: "requests",
    columns: &[
        TENANT,
        STORE,
        REQUEST,
        col("question", Text, "what is asked"),
        opt("asked_at", Time, "reference date; null: standing, the store's watermark is its reference date"),
        opt("split", Text, "dev or test, where the request is for measuring"),
        col("question_hash", Bytes, "SHA-256 of question"),
        PRINT,
    ],
    partition: &["shard"],
    key: &["tenant_id", "store_id", "request_id"],
};

pub const LABELS: Table = Table {
    name: "labels",
    columns: &[TENANT, STORE, REQUEST, TURN, col("relevance", Int, "0: not evidence; 1 or more: evidence"), PRINT],
    partition: &["shard"],
    key: &["tenant_id", "store_id", "request_id", "turn_id"],
};

/// Addressed by content: a row belongs to a text and an encoder, not to a store.
pub const EMBEDDINGS: Table = Table {
    name: "embeddings",
    columns: &[
        col("content_hash", Bytes, "SHA-256 of the text"),
        col("purpose", Text, "passage (a turn) or query (a question)"),
        col("encoder_hash", Text, "hash of the encoder: weights, tokenizer, pooling, limits, kernels"),
        opt("vector", Bytes, "unit vector, little-endian f16; empty: no token to embed; null: the encoder failed"),
        col("truncated", Bool, "the text was longer than the encoder reads"),
    ],
    partition: &["shard"],
    key: &["encoder_hash", "purpose", "content_hash"],
};

pub const POOLS: Table = Table {
    name: "pools",
    columns: &[
        TENANT,
        STORE,
        REQUEST,
        TURN,
        ORDINAL,
        opt("reference_at", Time, "the request's date: nothing after it is recalled; null: the store has no times"),
        col("pool_position", Int, "rank in the fused order, from 1"),
        col("rrf_score", Double, "weighted sum of 1/(k + rank) over the lists"),
        col("lists", Lists, "the turn's score and rank (from 1) in each list that holds it"),
        PRINT,
    ],
    partition: &["system", "shard"],
    key: &["tenant_id", "store_id", "request_id", "pool_position"],
};

/// Addressed by content, as embeddings are.
pub const SCORES: Table = Table {
    name: "scores",
    columns: &[
        col("question_hash", Bytes, "SHA-256 of the question"),
        col("content_hash", Bytes, "SHA-256 of the turn's content"),
        col("scorer_hash", Text, "hash of the cross-encoder"),
        opt("logit", Float, "the cross-encoder's logit; null where it failed"),
        col("truncated", Bool, "the turn was cut to fit; the question never is"),
    ],
    partition: &["shard"],
    key: &["scorer_hash", "question_hash", "content_hash"],
};

/// Addressed by content and teacher, for whichever store or system asks.
pub const JUDGEMENTS: Table = Table {
    name: "judgements",
    columns: &[
        col("judgement_key", Bytes, "SHA-256 of the messages that were sent and of teacher_hash"),
        col("question_hash", Bytes, "SHA-256 of the question"),
        col("content_hash", Bytes, "SHA-256 of the turn's content"),
        opt("grade", Double, "from 0 to 10; null: the answer was set aside"),
        opt("reason", Text, "why the answer was set aside"),
        col("answer", Text, "what the teacher said, cut to its beginning"),
        col("prompt_tokens", Long, "what was sent, by the teacher's own count"),
        col("completion_tokens", Long, "what was answered, by the same count"),
    ],
    partition: &["teacher_hash"],
    key: &["judgement_key"],
};

pub const FEATURES: Table = Table {
    name: "features",
    columns: &[
        TENANT,
        STORE,
        REQUEST,
        TURN,
        ORDINAL,
        col("pool_position", Int, "rank in the fused order, from 1"),
        opt("bm25_score", Double, "BM25; null: not in the list"),
        opt("bm25_rank", Int, "rank in the BM25 list, from 1"),
        opt("dense_score", Double, "cosine of question and turn"),
        opt("dense_rank", Int, "rank in the dense list, from 1"),
        opt("ce_prob", Float, "sigmoid of the cross-encoder's logit"),
        opt("context_cosine", Float, "cosine of the question with the mean vector of the turn and its two neighbours"),
        col("role", Int, "0 user, 1 assistant, 2 tool, 3 system"),
        col("position", Int, "place of the turn in its session, from 0"),
        opt("age_days", Double, "days from the turn to the reference date"),
        col("length_tokens", Int, "o200k tokens of the turn's content"),
        opt("teacher_grade", Double, "a teacher's grade, 0 to 10, for systems that rank by it; null: not graded"),
        PRINT,
    ],
    partition: &["system", "shard"],
    key: &["tenant_id", "store_id", "request_id", "pool_position"],
};

pub const RANKINGS: Table = Table {
    name: "rankings",
    columns: &[
        TENANT,
        STORE,
        REQUEST,
        TURN,
        ORDINAL,
        opt("score", Double, "the ranker's score; null: could not be scored, comes last"),
        col("rank", Int, "from 1"),
        PRINT,
    ],
    partition: &["system", "shard"],
    key: &["tenant_id", "store_id", "request_id", "rank"],
};

pub const SLATES: Table = Table {
    name: "slates",
    columns: &[
        TENANT,
        STORE,
        REQUEST,
        opt("reference_at", Time, "the request's date"),
        opt("watermark", Time, "time of the store's latest turn when the slate was made"),
        col("status", Text, "ok, empty, unknown_store or degraded (a model failed on some turn)"),
        col("turn_ids", TextList, "the chosen turns, best first"),
        col("tokens", Int, "o200k tokens of text"),
        col("budget_tokens", Int, "what text may cost at most"),
        col("text", Text, "the slate as it is rendered for the reader"),
        PRINT,
    ],
    partition: &["system", "shard"],
    key: &["tenant_id", "store_id", "request_id"],
};

pub const REJECTS: Table = Table {
    name: "rejects",
    columns: &[
        opt("tenant_id", Text, "as in the row"),
        opt("store_id", Text, "as in the row"),
        opt("row_id", Text, "the row's turn_id or request_id"),
        col("reason", Text, "why the row was set aside"),
    ],
    partition: &["source"],
    key: &["tenant_id", "store_id", "row_id", "reason"],
};

pub const RUNS: Table = Table {
    name: "runs",
    columns: &[
        col("run_id", Text, "start time and process"),
        col("job", Text, "the job file's name"),
        col("system", Text, "the system's name and hash"),
        col("started_at", Time, "by the clock of the machine that ran it"),
        col("ended_at", Time, "by the same clock"),
        col("summary", Text, "JSON: what was kept and computed, and the versions of the tables that belong together"),
    ],
    partition: &[],
    key: &["started_at", "run_id"],
};

/// All tables, upstream before downstream.
pub const TABLES: &[Table] =
    &[TURNS, REQUESTS, LABELS, REJECTS, EMBEDDINGS, POOLS, SCORES, JUDGEMENTS, FEATURES, RANKINGS, SLATES, RUNS];

pub fn table(name: &str) -> Option<&'static Table> {
    TABLES.iter().find(|t| t.name == name)
}

impl Kind {
    pub fn data_type(self) -> DataType {
        match self {
            Text => DataType::Utf8,
            Bytes => DataType::Binary,
            Bool => DataType::Boolean,
            Int => DataType::Int32,
            Long => DataType::Int64,
            Float => DataType::Float32,
            Double => DataType::Float64,
            Time => time(),
            TextList => DataType::List(item(DataType::Utf8)),
            Lists => lists(),
        }
    }
}

/// Timestamp in microseconds, UTC.
pub fn time() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// What each recall list said of one turn.
pub fn lists() -> DataType {
    DataType::List(item(DataType::Struct(
        vec![
            Field::new("name", DataType::Utf8, true),
            Field::new("score", DataType::Float64, true),
            Field::new("rank", DataType::Int32, true),
        ]
        .into(),
    )))
}

/// The item of a list, named and nullable as Delta reads it back.
pub fn item(data_type: DataType) -> Arc<Field> {
    Arc::new(Field::new("element", data_type, true))
}

impl Table {
    /// The columns of the files, without the partition's.
    pub fn file_schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.fields()))
    }

    /// The columns of the files, then the partition's.
    pub fn full_schema(&self) -> SchemaRef {
        let mut fields = self.fields();
        fields.extend(self.partition.iter().map(|p| Field::new(*p, partition_type(p), false)));
        Arc::new(Schema::new(fields))
    }

    fn fields(&self) -> Vec<Field> {
        self.columns.iter().map(|c| Field::new(c.name, c.kind.data_type(), c.nullable)).collect()
    }
}

/// The type of a partition column: `shard` is an Int32, the others are text.
pub fn partition_type(name: &str) -> DataType {
    if name == "shard" { DataType::Int32 } else { DataType::Utf8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_partitions_are_columns_once() {
        for t in TABLES {
            let full = t.full_schema();
            for key in t.key {
                assert!(full.index_of(key).is_ok(), "{}.{key}", t.name);
            }
            let mut names: Vec<_> = full.fields().iter().map(|f| f.name().clone()).collect();
            names.sort();
            let n = names.len();
            names.dedup();
            assert_eq!(names.len(), n, "{}", t.name);
        }
    }
}
