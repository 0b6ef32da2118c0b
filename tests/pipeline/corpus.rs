//! The fuzz targets over their corpus: what a fuzzer once found stays found, without a fuzzer.

use std::path::Path;

#[path = "../fuzz/targets.rs"]
mod targets;

#[test]
fn every_input_of_the_corpus_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus");
    for (name, target) in targets::ALL {
        let folder = corpus.join(name);
        let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
        assert!(!files.is_empty(), "{}", folder.display());
        for file in files {
            println!("{}", file.display());
            target(&std::fs::read(file).unwrap());
        }
    }
}
