//! Single kernels on operands from a file.
//!
//! The file's header has a list `cases` in JSON: objects with `op` and its settings. The operands of the case at place `i` are the
//! tensors `i.name`, its results `i.out` (of products `i.out.TILE`, one for each kernel that the chip runs).
//!
//! | op | settings | operands (bf16 unless said) | result |
//! |---|---|---|---|
//! | `gemm` | `epilogue`: `bias`, `gelu`, `residual` | `a` (rows, depth), `w` (columns, depth), `bias` f32, `residual` | bf16 |
//! | `layer_norm` | `epsilon` | `x`, `gain` f32, `shift` f32 | bf16 |
//! | `embed` | `epsilon` | `words`, `positions`, `types`, `gain` f32, `shift` f32; `ids`, `segments`, `places` whole | bf16 |
//! | `attention` | `heads`, `lengths` | `qkv` (tokens, 3 hidden) | bf16 |
//! | `gather` | | `x`, `rows` whole | bf16 |
//! | `pool` | `mean`: true or false | `x`, `starts` whole | f32 |
//! | `score_head` | | `x`, `dense_weight`, `dense_bias` f32, `projection_weight` (1, hidden), `projection_bias` f32 | f32 |
//! | `top_k` | `k`, `groups`: `[[queries from, to, items from, to]]` | `queries` f32, `items` f32 | `i.out` f32, `i.indices` whole |

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::super::cuda;
use super::super::cuda::runtime::Runtime;
use super::super::select::{Choice, parse};
use super::file::{Operands, Results, cases};
use super::operations::Case;
use crate::error::{Error, Result};

/// Runs every case of a file on a GPU; gives how many there were.
pub fn kernels(device: &str, input: &Path, output: &Path) -> Result<usize> {
    let runtime = match parse(device)? {
        Choice::Cuda(ordinal) => cuda::runtime(ordinal)?,
        Choice::Auto => cuda::runtime(0)?,
        #[cfg(feature = "emulated")]
        Choice::Emulated => cuda::emulated::runtime()?,
        Choice::Cpu => return Err(Error::usage("a CPU has none of these kernels").next("--device cuda")),
    };
    on(&runtime, input, output)
}

/// The same on a GPU that is open.
pub fn on(runtime: &Arc<dyn Runtime>, input: &Path, output: &Path) -> Result<usize> {
    let operands = Operands::read(input)?;
    let cases = cases(&operands).map_err(|e| e.at(input.display().to_string()))?;
    let mut results = Results::default();
    for (place, settings) in cases.iter().enumerate() {
        let op = settings.get("op").and_then(Value::as_str).unwrap_or_default();
        let case = Case { runtime, operands: &operands, settings, place };
        case.run(op, &mut results).map_err(|e| e.at(format!("case {place}, {op}")).at(input.display().to_string()))?;
    }
    results.write(output)?;
    Ok(cases.len())
}
