//! One error type: what went wrong, where, and what to do next.

use std::fmt;

use datafusion::error::DataFusionError;

/// Who has to act, and so which exit code a command ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The command line, a job file or a system file is wrong: exit code 2.
    Usage,
    /// An input, a model file or a table is wrong.
    Data,
    /// An accelerator is missing or failed.
    Device,
    /// A batch does not fit into a device's memory; a smaller one may.
    OutOfMemory,
    /// Worth trying again: a network, a lock, a store that answered late.
    Transient,
    /// A fault of ours.
    Internal,
}

/// An error that says what, where and what to do next.
#[derive(Debug)]
pub struct Error {
    pub class: Class,
    what: String,
    places: Vec<String>,
    next: Option<String>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub fn new(class: Class, what: impl Into<String>) -> Self {
        Error { class, what: what.into(), places: Vec::new(), next: None, source: None }
    }
    pub fn usage(what: impl Into<String>) -> Self {
        Self::new(Class::Usage, what)
    }
    pub fn data(what: impl Into<String>) -> Self {
        Self::new(Class::Data, what)
    }
    pub fn device(what: impl Into<String>) -> Self {
        Self::new(Class::Device, what)
    }
    pub fn out_of_memory(what: impl Into<String>) -> Self {
        Self::new(Class::OutOfMemory, what)
    }
    pub fn transient(what: impl Into<String>) -> Self {
        Self::new(Class::Transient, what)
    }
    pub fn internal(what: impl Into<String>) -> Self {
        Self::new(Class::Internal, what)
    }

    /// What went wrong, without where and what to do.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Adds a place, from the inside out: `.at("row 7").at("turns.parquet")` reads "turns.parquet, row 7".
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.places.push(place.into());
        self
    }

    /// What the reader should do next, as a sentence.
    pub fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }

    pub fn source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The exit code of a command that ends with this error.
    pub fn exit_code(&self) -> u8 {
        if self.class == Class::Usage { 2 } else { 1 }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.places.is_empty() {
            let places: Vec<&str> = self.places.iter().rev().map(String::as_str).collect();
            write!(f, "{}: ", places.join(", "))?;
        }
        f.write_str(&self.what)?;
        if let Some(source) = &self.source {
            // Only what it says: some libraries append a stack trace.
            write!(f, ": {}", source.to_string().lines().next().unwrap_or_default())?;
        }
        if let Some(next) = &self.next {
            write!(f, "\n  {next}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// Talks on stderr. A reader that went away must not stop the work, so a failure to talk is no error.
pub fn say(text: impl fmt::Display) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Gives any error a class and a sentence.
pub trait Context<T> {
    fn or_data(self, what: impl Into<String>) -> Result<T>;
    fn or_usage(self, what: impl Into<String>) -> Result<T>;
    fn or_internal(self, what: impl Into<String>) -> Result<T>;
}

impl<T, E: Into<Box<dyn std::error::Error + Send + Sync>>> Context<T> for std::result::Result<T, E> {
    fn or_data(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|e| Error::data(what).source(e))
    }
    fn or_usage(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|e| Error::usage(what).source(e))
    }
    fn or_internal(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|e| Error::internal(what).source(e))
    }
}

/// What is said of a Parquet file whose bytes are not what its footer promises, or do not come.
pub const UNREADABLE_PARQUET: &str = "a Parquet file cannot be read";

impl From<arrow::error::ArrowError> for Error {
    fn from(e: arrow::error::ArrowError) -> Self {
        match e {
            arrow::error::ArrowError::ExternalError(inner) => from_box(inner),
            e => Error::internal("Arrow").source(e),
        }
    }
}

impl From<DataFusionError> for Error {
    /// Our own errors come back out of the engine as they went in.
    fn from(e: DataFusionError) -> Self {
        if let DataFusionError::ResourcesExhausted(said) = e.find_root() {
            return Error::data("a sort or a join needs more memory than its limit leaves it")
                .source(said.clone())
                .next("give it more with --memory-limit, or the job's memory_limit");
        }
        if let Some(said) = of_parquet(&e) {
            return Error::data(UNREADABLE_PARQUET)
                .source(said)
                .next("if the file is damaged, write it again from where it came");
        }
        match e {
            DataFusionError::External(inner) => from_box(inner),
            DataFusionError::ArrowError(inner, _) => Error::from(*inner),
            DataFusionError::Context(what, inner) => Error::from(*inner).at(what),
            DataFusionError::Diagnostic(_, inner) => Error::from(*inner),
            DataFusionError::Shared(inner) => match std::sync::Arc::try_unwrap(inner) {
                Ok(e) => Error::from(e),
                Err(shared) => Error::data(shared.to_string()),
            },
            DataFusionError::Collection(mut all) if !all.is_empty() => Error::from(all.remove(0)),
            e @ (DataFusionError::Plan(_) | DataFusionError::SchemaError(..) | DataFusionError::SQL(..)) => {
                Error::usage(e.strip_backtrace())
            }
            e @ DataFusionError::Internal(_) => Error::internal(e.strip_backtrace()),
            e => Error::data(e.strip_backtrace()),
        }
    }
}

/// What the Parquet reader said, where the error is its.
fn of_parquet(e: &DataFusionError) -> Option<String> {
    match e.find_root() {
        DataFusionError::ParquetError(inner) => Some(inner.to_string()),
        DataFusionError::ArrowError(inner, _) => match &**inner {
            arrow::error::ArrowError::ParquetError(said) => Some(said.clone()),
            _ => None,
        },
        _ => None,
    }
}

fn from_box(inner: Box<dyn std::error::Error + Send + Sync>) -> Error {
    let inner = match inner.downcast::<Error>() {
        Ok(ours) => return *ours,
        Err(other) => other,
    };
    match inner.downcast::<DataFusionError>() {
        Ok(e) => Error::from(*e),
        Err(other) => Error::data(other.to_string()),
    }
}

impl From<Error> for DataFusionError {
    fn from(e: Error) -> Self {
        DataFusionError::External(Box::new(e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_where_what_and_what_to_do() {
        let e =
            Error::data("date \"30/02\" cannot be read").at("row 7").at("turns.parquet").next("write it as 2023-02-28");
        assert_eq!(e.to_string(), "turns.parquet, row 7: date \"30/02\" cannot be read\n  write it as 2023-02-28");
    }

    #[test]
    fn a_limit_that_is_too_small_is_told_by_its_own_name() {
        let e = DataFusionError::ResourcesExhausted("803.5 KB for a sort".into()).context("an external sort");
        let e = Error::from(DataFusionError::Shared(std::sync::Arc::new(e)));
        let said = e.to_string();
        assert!(said.contains("803.5 KB") && said.contains("--memory-limit"), "{said}");
        assert!(!said.contains("an external sort"), "{said}");
    }

    #[test]
    fn passes_through_the_engine_unchanged() {
        let e = Error::device("out of memory").at("shard 3");
        let back = Error::from(DataFusionError::from(e).context("projection"));
        assert_eq!(back.class, Class::Device);
        assert!(back.to_string().contains("shard 3") && back.to_string().contains("out of memory"));
    }
}
