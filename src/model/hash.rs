//! The hash that names a model in the lake: all that decides the bits of its results.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use super::fetch::file_sha256;
use super::folder::ModelFolder;
use super::shards;
use super::tokenizer::TRUNCATION_RULE;
use crate::config::Precision;
use crate::error::{Context, Result};
use crate::system::hex;

/// Names the type in which the layers compute; another way to quantise gets another name.
fn dtype(precision: Precision) -> &'static str {
    match precision {
        Precision::F32 => "f32",
        Precision::Int8 => "int8, rows 0..127, weights -127..127 by channel, f32 where not finite; 2",
    }
}

/// SHA-256, in hex, over the weights file (or each shard), the tokenizer file, the configuration, the type of numbers, the most tokens,
/// the truncation rule, the pooling, what is read off (`head`) and the device's kernel plan.
pub fn model_hash(folder: &ModelFolder, head: &str, kernel_plan: &str) -> Result<String> {
    let mut sha = Sha256::new();
    let numbers: Vec<String> =
        shards::files(&folder.weights)?.iter().map(|f| cached_sha256(f)).collect::<Result<_>>()?;
    let others = [
        cached_sha256(&folder.tokenizer)?,
        format!("{:?}", folder.config),
        dtype(folder.precision).to_string(),
        folder.max_tokens.to_string(),
        TRUNCATION_RULE.to_string(),
        format!("{:?}", folder.pooling),
        head.to_string(),
        kernel_plan.to_string(),
    ];
    for part in numbers.into_iter().chain(others) {
        // With its length before it, so that no two lists of parts run together to the same bytes.
        sha.update((part.len() as u64).to_le_bytes());
        sha.update(part.as_bytes());
    }
    Ok(hex(&sha.finalize()))
}

type Stamp = (u64, SystemTime);
static CACHE: LazyLock<Mutex<HashMap<PathBuf, (Stamp, String)>>> = LazyLock::new(Mutex::default);

/// The file's hash, read once in a process as long as its size and time stay.
fn cached_sha256(path: &Path) -> Result<String> {
    let cannot = || format!("cannot read {}", path.display());
    let metadata = path.metadata().or_data(cannot())?;
    let stamp = (metadata.len(), metadata.modified().or_data(cannot())?);
    let path = path.canonicalize().or_data(cannot())?;
    if let Some((seen, hash)) = CACHE.lock().expect("no holder panics").get(&path)
        && *seen == stamp
    {
        return Ok(hash.clone());
    }
    let hash = file_sha256(&path)?;
    CACHE.lock().expect("no holder panics").insert(path, (stamp, hash.clone()));
    Ok(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::folder::resolve;
    use crate::model::registry::Pooling;
    use crate::model::weights::fixture;

    #[test]
    fn whatever_decides_the_bits_changes_the_hash() {
        let dir = tempfile::tempdir().unwrap();
        for f in ["config.json", "tokenizer.json", "model.safetensors"] {
            std::fs::copy(fixture("bert_encoder").join(f), dir.path().join(f)).unwrap();
        }
        let folder = resolve(dir.path().to_str().unwrap(), dir.path()).unwrap();
        let mut hashes = vec![model_hash(&folder, "embed", "plan").unwrap()];
        assert_eq!(hashes[0], model_hash(&folder, "embed", "plan").unwrap());
        hashes.push(model_hash(&folder, "embed", "other plan").unwrap());
        hashes.push(model_hash(&folder, "score", "plan").unwrap());
        hashes.push(model_hash(&folder.clone().in_precision(Precision::Int8), "embed", "plan").unwrap());
        hashes.push(model_hash(&ModelFolder { max_tokens: 32, ..folder.clone() }, "embed", "plan").unwrap());
        hashes.push(model_hash(&ModelFolder { pooling: Pooling::Cls, ..folder.clone() }, "embed", "plan").unwrap());
        let path = dir.path().join("model.safetensors");
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        bytes.push(0);
        std::fs::write(&path, bytes).unwrap();
        hashes.push(model_hash(&folder, "embed", "plan").unwrap());
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), 7);
        assert!(hashes.iter().all(|h| h.len() == 64));
    }
}
