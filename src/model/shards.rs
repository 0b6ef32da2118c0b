//! Weights in several files, as large models come: `model.safetensors.index.json` says which file holds which tensor.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use super::folder::read_json;
use super::stored::{self, Stored, short};
use super::weights::FETCH_AGAIN;
use crate::error::{Error, Result};

/// The file's name in a model's folder.
pub const INDEX: &str = "model.safetensors.index.json";

pub fn is_index(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == INDEX)
}

/// The files that hold the numbers: the file itself, or the shards of an index, each of which must be there.
pub fn files(weights: &Path) -> Result<Vec<PathBuf>> {
    if !is_index(weights) {
        return Ok(vec![weights.to_path_buf()]);
    }
    Ok(shards(weights)?.into_keys().collect())
}

/// The tensors of all shards, each from the shard that the index names.
pub fn read_all(index: &Path) -> Result<Stored> {
    let mut all = Stored::default();
    for (file, names) in shards(index)? {
        let one = stored::read(&file)?;
        if let Some(missing) = names.iter().find(|n| !one.tensors.contains_key(*n) && !one.unread.contains_key(*n)) {
            return Err(Error::data(format!("there is no tensor {missing}, which {INDEX} seeks here"))
                .at(file.display().to_string())
                .next(FETCH_AGAIN));
        }
        all.tensors.extend(one.tensors.into_iter().filter(|(name, _)| names.contains(name)));
        all.unread.extend(one.unread.into_iter().filter(|(name, _)| names.contains(name)));
    }
    Ok(all)
}

/// By shard, the names of its tensors.
fn shards(index: &Path) -> Result<BTreeMap<PathBuf, BTreeSet<String>>> {
    let wrong = |what: String| Error::data(what).at(index.display().to_string()).next(FETCH_AGAIN);
    let json = read_json(index)?.ok_or_else(|| wrong("cannot be read".into()))?;
    let map = json.get("weight_map").and_then(Value::as_object).filter(|map| !map.is_empty());
    let map = map.ok_or_else(|| wrong("there is no weight_map".into()))?;
    let folder = index.parent().unwrap_or(Path::new(""));
    let mut shards: BTreeMap<PathBuf, BTreeSet<String>> = BTreeMap::new();
    for (tensor, file) in map {
        let file = file.as_str().ok_or_else(|| wrong(format!("the shard of tensor {tensor} is not a name")))?;
        if !is_plain(file) {
            return Err(wrong(format!(
                "tensor {tensor} is sought in {file:?}, which is no file of the model's folder"
            )));
        }
        shards.entry(folder.join(file)).or_default().insert(short(tensor).to_string());
    }
    if let Some(missing) = shards.keys().find(|file| !file.is_file()) {
        return Err(wrong(format!("shard {} is not in the folder", missing.file_name().unwrap_or_default().display())));
    }
    Ok(shards)
}

/// One name of a safetensors file, with no way out of its folder on any system. A link of that name is its owner's choice.
fn is_plain(name: &str) -> bool {
    let mut components = Path::new(name).components();
    let one = matches!((components.next(), components.next()), (Some(Component::Normal(_)), None));
    one && name.ends_with(".safetensors") && !name.contains(['/', '\\', ':', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::weights::{Tensor, fixture, write_safetensors};
    use crate::model::{Weights, hash::model_hash, resolve};

    /// The seeded model with its tensors in two files, and the index over them.
    fn sharded() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for f in ["config.json", "tokenizer.json"] {
            std::fs::copy(fixture("bert_encoder").join(f), dir.path().join(f)).unwrap();
        }
        let whole = stored::read(&fixture("bert_encoder").join("model.safetensors")).unwrap();
        let mut parts: [Vec<(String, Tensor)>; 2] = Default::default();
        let mut map = serde_json::Map::new();
        for (i, (name, tensor)) in whole.tensors.into_iter().collect::<BTreeMap<_, _>>().into_iter().enumerate() {
            map.insert(name.clone(), format!("part-{}.safetensors", i % 2).into());
            parts[i % 2].push((name, tensor));
        }
        for (i, part) in parts.iter().enumerate() {
            write_safetensors(&dir.path().join(format!("part-{i}.safetensors")), part.iter().map(|(n, t)| (n, t)));
        }
        write_index(dir.path(), &map.into());
        dir
    }

    fn write_index(dir: &Path, map: &Value) {
        let index = serde_json::json!({"metadata": {"total_size": 1}, "weight_map": map});
        std::fs::write(dir.join(INDEX), index.to_string()).unwrap();
    }

    #[test]
    fn shards_are_the_whole_model_and_each_is_part_of_its_hash() {
        let dir = sharded();
        let folder = resolve(dir.path().to_str().unwrap(), Path::new("")).unwrap();
        assert!(folder.weights.ends_with(INDEX));
        let weights = Weights::read(&folder).unwrap();
        let whole = Weights::read(&resolve(fixture("bert_encoder").to_str().unwrap(), Path::new("")).unwrap()).unwrap();
        assert_eq!(weights.tensors().len(), whole.tensors().len());
        for (name, tensor) in whole.tensors() {
            assert_eq!(weights.tensor(name, &tensor.shape).unwrap(), tensor.values, "{name}");
        }
        let before = model_hash(&folder, "embed", "plan").unwrap();
        let part = dir.path().join("part-1.safetensors");
        let mut bytes = std::fs::read(&part).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        bytes.push(0);
        std::fs::write(&part, bytes).unwrap();
        assert_ne!(model_hash(&folder, "embed", "plan").unwrap(), before);
    }

    #[test]
    fn a_shard_outside_the_folder_is_refused_by_name() {
        let dir = sharded();
        let inner = dir.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        for f in ["config.json", "tokenizer.json", "part-0.safetensors"] {
            std::fs::copy(dir.path().join(f), inner.join(f)).unwrap();
        }
        let absolute = dir.path().join("part-0.safetensors").display().to_string();
        for name in
            ["../part-0.safetensors", "..\\part-0.safetensors", &absolute, "C:part.safetensors", "./a/../b.safetensors"]
        {
            write_index(&inner, &serde_json::json!({"embeddings.LayerNorm.bias": name}));
            let e = resolve(inner.to_str().unwrap(), Path::new("")).unwrap_err().to_string();
            assert!(e.contains(INDEX) && e.contains(&format!("{name:?}")) && e.contains("fetch"), "{e}");
        }
    }

    #[test]
    fn what_an_index_lacks_is_named() {
        let dir = sharded();
        let spec = dir.path().to_str().unwrap();
        let index = std::fs::read_to_string(dir.path().join(INDEX)).unwrap();
        for broken in ["", "[]", "{}", r#"{"weight_map": {}}"#, r#"{"weight_map": {"a": 1}}"#] {
            std::fs::write(dir.path().join(INDEX), broken).unwrap();
            let e = resolve(spec, Path::new("")).unwrap_err().to_string();
            assert!(e.contains(INDEX) && e.contains("fetch the model again"), "{broken}: {e}");
        }
        // A tensor that stands in the other shard.
        std::fs::write(dir.path().join(INDEX), index.replacen("part-0", "part-1", 1)).unwrap();
        let e = Weights::read(&resolve(spec, Path::new("")).unwrap()).unwrap_err().to_string();
        assert!(e.contains("part-1.safetensors") && e.contains("there is no tensor"), "{e}");
        std::fs::write(dir.path().join(INDEX), index).unwrap();
        std::fs::remove_file(dir.path().join("part-1.safetensors")).unwrap();
        let e = resolve(spec, Path::new("")).unwrap_err().to_string();
        assert!(e.contains(INDEX) && e.contains("part-1.safetensors"), "{e}");
    }
}
