//! Every kernel, in every case.

use memslate_kernel_checks::build::{self, Build, Sanitizer};
use memslate_kernel_checks::trial::{self, Outcome};
use std::path::Path;

#[test]
fn all_kernels_are_right() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libraries");
    build::clean(&folder).unwrap();
    let library = build::library(&folder, Build { bug: 0, sanitizer: Sanitizer::None }).unwrap();
    let checker = Path::new(env!("CARGO_BIN_EXE_kernel-check"));
    let trial = trial::run(checker, &library, Sanitizer::None, &[], &folder).unwrap();
    assert_eq!(trial.outcome, Outcome::Right, "\n{}", trial.output);
    println!("{}", trial.output);
}
