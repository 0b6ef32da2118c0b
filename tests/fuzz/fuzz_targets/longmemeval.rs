//! See `targets::longmemeval`.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use memslate_fuzz::{json, targets};

fuzz_target!(|data: &[u8]| targets::longmemeval(data));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let new = if seed % 8 == 0 { None } else { json::mutate(data, size, max_size, seed, None) };
    new.unwrap_or_else(|| fuzzer_mutate(data, size, max_size))
});
