//! All cases at small sizes under sanitizers, which must find nothing.

use memslate_kernel_checks::build::{self, Build, Sanitizer};
use memslate_kernel_checks::trial::{self, Outcome};
use std::path::Path;

fn clean_under(sanitizer: Sanitizer) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libraries");
    let library = build::library(&folder, Build { bug: 0, sanitizer }).unwrap();
    let checker = Path::new(env!("CARGO_BIN_EXE_kernel-check"));
    let trial = trial::run(checker, &library, sanitizer, &["--small"], &folder).unwrap();
    assert_eq!(trial.outcome, Outcome::Right, "\n{}", trial.output);
}

#[test]
fn no_access_is_out_of_bounds_and_no_behaviour_undefined() {
    clean_under(Sanitizer::Address);
}

#[test]
fn there_is_no_race() {
    clean_under(Sanitizer::Thread);
}
