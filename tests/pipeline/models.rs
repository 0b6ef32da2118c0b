//! A model's files that are damaged or do not belong together: one error, and nothing is written.

use std::path::{Path, PathBuf};

use super::support::{Night, Ran, copy, history, model};

/// A night whose encoder is a copy of the seeded model.
fn night() -> (Night, PathBuf) {
    let night = Night::new();
    night.turns(&history("a", 5)).requests(&[("a", "q", "kettle", None)]);
    let folder = night.path().join("model");
    copy(Path::new(&model("bert_encoder")), &folder);
    (night, folder)
}

#[track_caller]
fn refuses(night: &Night, folder: &Path, said: &[&str]) {
    let Ran { code, stderr, .. } = night.run(&["--set", &format!("encoder={}", folder.display())]);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(said.iter().all(|part| stderr.contains(part)), "{stderr}");
    assert_eq!(stderr.matches("fetch the model again").count(), 1, "one remedy: {stderr}");
    assert!(!night.lake().exists(), "something was written");
}

#[test]
fn a_model_that_is_not_whole_is_an_error_before_anything_is_written() {
    let (night, folder) = night();
    let weights = folder.join("model.safetensors");
    let whole = std::fs::read(&weights).unwrap();
    std::fs::write(&weights, &whole[..whole.len() / 2]).unwrap();
    refuses(&night, &folder, &["model.safetensors", "bytes"]);
    std::fs::write(&weights, &whole).unwrap();
    std::fs::write(folder.join("config.json"), "{\"model_type\": \"bert\", \"hidden").unwrap();
    refuses(&night, &folder, &["config.json", "not JSON"]);
    // With its own files again it runs.
    copy(Path::new(&model("bert_encoder")), &folder);
    night.run(&["--set", &format!("encoder={}", folder.display())]).ends_with(0);
}

#[test]
fn a_tokenizer_of_another_model_is_an_error_before_anything_is_written() {
    let (night, folder) = night();
    std::fs::copy(Path::new(&model("xlmr_encoder")).join("tokenizer.json"), folder.join("tokenizer.json")).unwrap();
    refuses(&night, &folder, &["tokenizer.json", "[CLS]", "<s>"]);
}
