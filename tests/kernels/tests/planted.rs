//! Each bug that is planted in a kernel is found by the check named here.
//!
//! A bug is planted as `#if BUG == n` beside the right code, with a comment that says what is wrong. One that has no row
//! below fails the test: nothing would show that the checks can see its kind.

use memslate_kernel_checks::build::{self, Build, Sanitizer};
use memslate_kernel_checks::trial::{self, Outcome, Trial};
use std::collections::BTreeSet;
use std::path::Path;

/// How a bug shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shows {
    /// A result is wrong, or the emulation aborts.
    Plainly,
    /// AddressSanitizer reports an access.
    OutOfBounds,
    /// ThreadSanitizer reports a race.
    AsRace,
}
use Shows::{AsRace, OutOfBounds, Plainly};

const PLANTED: &[(u32, Shows, &str)] = &[
    (10, Plainly, "embed/sizes"),
    (11, Plainly, "layer_norm/plain"),
    (12, Plainly, "layer_norm/residual"),
    (13, Plainly, "gather/sizes"),
    (14, Plainly, "pool/schedules"),
    (14, AsRace, "pool/schedules"),
    (15, Plainly, "pool/mean"),
    (15, OutOfBounds, "pool/mean"),
    (16, Plainly, "score_head/schedules"),
    (16, AsRace, "score_head/schedules"),
    (17, Plainly, "score_head/sizes"),
    (18, Plainly, "top_k/ties"),
    (19, Plainly, "top_k/schedules"),
    (19, AsRace, "top_k/schedules"),
    (20, Plainly, "gemm_bias_128x128/sizes"),
    (21, Plainly, "gemm_bias_128x128/sizes"),
    (21, OutOfBounds, "gemm_bias_128x128/sizes"),
    (22, Plainly, "gemm_gelu_64x64/sizes"),
    (22, OutOfBounds, "gemm_gelu_64x64/sizes"),
    (23, Plainly, "gemm_bias_128x128/schedules"),
    (24, Plainly, "gemm_bias_64x64/schedules"),
    (25, Plainly, "gemm_bias_128x128/schedules"),
    (25, AsRace, "gemm_bias_128x128/schedules"),
    (26, Plainly, "gemm_residual_64x64/schedules"),
    (26, AsRace, "gemm_residual_64x64/schedules"),
    (27, Plainly, "gemm_bias_128x128/schedules"),
    (27, AsRace, "gemm_bias_64x64/sizes"),
    (30, Plainly, "attention_64/lengths"),
    (31, Plainly, "attention_64/causal_lengths"),
    (32, Plainly, "attention_64/mix"),
    (32, AsRace, "attention_64/mix"),
    (33, Plainly, "attention_32/causal_lengths"),
    (34, Plainly, "attention_64/schedules"),
    (34, AsRace, "attention_64/schedules"),
    (35, Plainly, "attention_64/schedules"),
    (36, Plainly, "attention_64/lengths"),
    (37, Plainly, "attention_32/schedules"),
    (37, AsRace, "attention_32/schedules"),
    (38, Plainly, "attention_64/spoiled_neighbour"),
    (38, OutOfBounds, "attention_64/lengths"),
    (40, Plainly, "gemm90_bias_128x128/schedules"),
    (41, Plainly, "gemm90_bias_128x128/schedules"),
    (42, Plainly, "gemm90_bias_128x128/schedules"),
    (43, Plainly, "gemm90_bias_128x256/schedules"),
    (44, Plainly, "gemm90_bias_128x128/sizes"),
    (45, Plainly, "gemm90_gelu_128x128/sizes"),
    (45, OutOfBounds, "gemm90_bias_128x128/sizes"),
    (46, Plainly, "gemm90_residual_128x128/sizes"),
    (46, AsRace, "gemm90_bias_128x128/sizes"),
    (47, Plainly, "gemm90_bias_128x128/many_tiles"),
    (48, Plainly, "gemm90_bias_128x256/any_grid"),
    (49, Plainly, "gemm90_bias_128x128/any_grid"),
    (50, Plainly, "gemm90_bias_128x128/sizes"),
    (51, Plainly, "gemm90_bias_128x128/schedules"),
    (60, Plainly, "attention90_64/lengths"),
    (61, Plainly, "attention90_64/schedules"),
    (61, AsRace, "attention90_64/schedules"),
    (62, Plainly, "attention90_64/schedules"),
    (63, Plainly, "attention90_64/spoiled_neighbour"),
    (64, Plainly, "attention90_64/schedules"),
    (64, AsRace, "attention90_64/schedules"),
    (65, Plainly, "attention90_64/causal_lengths"),
    (66, Plainly, "attention90_64/causal_lengths"),
    (67, Plainly, "attention90_64/mix"),
    (67, AsRace, "attention90_64/mix"),
    (68, Plainly, "attention90_64/schedules"),
    (69, Plainly, "attention90_64/schedules"),
];

#[test]
fn every_planted_bug_has_a_check() {
    let named: BTreeSet<u32> = PLANTED.iter().map(|(bug, ..)| *bug).collect();
    assert_eq!(named, build::planted_bugs().unwrap());
}

#[test]
fn every_planted_bug_is_found() {
    let failures = build::in_pairs(PLANTED, |&(bug, shows, case)| {
        let trial = with_bug(bug, shows, case)?;
        let found = match shows {
            Plainly => matches!(trial.outcome, Outcome::Wrong | Outcome::Aborted),
            OutOfBounds | AsRace => trial.outcome == Outcome::Reported,
        };
        if found {
            return Ok(());
        }
        Err(format!("bug {bug} should show {shows:?} in {case}, but: {:?}\n{}", trial.outcome, trial.output))
    });
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

fn with_bug(bug: u32, shows: Shows, case: &str) -> Result<Trial, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libraries");
    let (sanitizer, arguments): (_, &[&str]) = match shows {
        Plainly => (Sanitizer::None, &[case]),
        OutOfBounds => (Sanitizer::Address, &["--small", case]),
        AsRace => (Sanitizer::Thread, &["--small", case]),
    };
    let library = build::library(&folder, Build { bug, sanitizer })?;
    trial::run(Path::new(env!("CARGO_BIN_EXE_kernel-check")), &library, sanitizer, arguments, &folder)
}
