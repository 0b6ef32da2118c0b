//! A job's inputs: where their files lie, and the first SELECTs over them.

use datafusion::common::ScalarValue;
use datafusion::prelude::SessionContext;
use object_store::ObjectMeta;

use super::graph;
use super::mapped::{complete, mapped, nothing};
use super::prepare::Prepared;
use crate::config::Job;
use crate::engine::{self, Functions, Settings};
use crate::error::{Error, Result};
use crate::lake::Place;

/// Registers the job's inputs and, as `mapped`, the first SELECT with all its columns in place.
pub async fn map(
    job: &Job,
    parameters: &[(&'static str, ScalarValue)],
    context: &SessionContext,
    name: &'static str,
) -> Result<()> {
    let select = &job.sql[name];
    let m = mapped(name);
    let inputs = inputs(job, context, name).await?;
    context.sql("CREATE SCHEMA input").await?.collect().await?;
    let absent = inputs.iter().any(|i| i.files.is_empty() && i.optional);
    for input in inputs.iter().filter(|i| !i.files.is_empty()) {
        let provider = engine::input(context, &input.place).await;
        let provider = provider.map_err(|e| e.at(format!("input {}", input.name)))?;
        context.register_table(format!("input.{}", input.name), provider)?;
    }
    let frame = if absent {
        nothing(context, m)?
    } else {
        let frame = engine::bind(context, &select.text, parameters).await;
        frame.and_then(|f| complete(f, m, name)).map_err(|e| e.at(select.file.display().to_string()))?
    };
    context.register_table("mapped", frame.into_view())?;
    Ok(())
}

/// An input that a first SELECT reads.
pub struct InputFiles {
    pub name: String,
    place: Place,
    pub files: Vec<ObjectMeta>,
    optional: bool,
}

/// The inputs that a first SELECT reads, with their files as they are now.
pub async fn inputs(job: &Job, context: &SessionContext, name: &str) -> Result<Vec<InputFiles>> {
    let mut all = Vec::new();
    for reference in engine::refers_to(context, &job.sql[name].text)? {
        let Some(input) = reference.strip_prefix("input.") else { continue };
        let spec = &job.inputs[input];
        let place = Place::parse(&locate(job.input.as_deref(), &spec.path)?)?;
        let files = place.files().await.map_err(|e| e.at(format!("input {input}")))?;
        if files.is_empty() && !spec.optional {
            return Err(Error::data(format!("there is no Parquet file at {place}"))
                .at(format!("input {input}"))
                .next("name the folder with --input DIR, or the file under [inputs] in the job file"));
        }
        all.push(InputFiles { name: input.to_string(), place, files, optional: spec.optional });
    }
    Ok(all)
}

/// The inputs of a table and where they lie, for a message.
pub async fn told(run: &Prepared, name: &str) -> String {
    let inputs = match run.session() {
        Ok(context) => inputs(&run.job, &context, name).await.unwrap_or_default(),
        Err(_) => Vec::new(),
    };
    let each: Vec<String> = inputs.iter().map(|i| format!("input {} at {}", i.name, i.place)).collect();
    if each.is_empty() { format!("the input of {name}") } else { each.join(", ") }
}

/// Whether every input that the tables up to `last` need is there, can be read, and fits its SELECT.
pub async fn check(
    job: &Job,
    parameters: &[(&'static str, ScalarValue)],
    functions: (&Settings, &Functions),
    last: &str,
) -> Result<()> {
    for name in graph::until(last).filter(|t| graph::from_input(t)) {
        map(job, parameters, &engine::session(functions.0, functions.1)?, name).await?;
    }
    Ok(())
}

fn locate(folder: Option<&str>, path: &str) -> Result<String> {
    if path.contains("://") || path.starts_with('/') {
        return Ok(path.to_string());
    }
    match folder {
        Some(folder) => Ok(format!("{}/{path}", folder.trim_end_matches('/'))),
        None => {
            Err(Error::usage(format!("where does the input {path:?} lie?")).next("name its folder with --input DIR"))
        }
    }
}
