//! See `targets::slates`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use memslate_fuzz::targets;

// A decoder's panic is an error to the engine: libFuzzer's hook, which ends the process at once, would forestall that. What
// comes out of the target as a panic ends it all the same.
fuzz_target!(init: std::panic::set_hook(Box::new(|panic| eprintln!("{panic}"))), |data: &[u8]| targets::slates(data));
