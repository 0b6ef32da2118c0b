//! See `targets::slates`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use memslate_fuzz::targets;

fuzz_target!(|data: &[u8]| targets::slates(data));
