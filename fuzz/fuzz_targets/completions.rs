//! A device that completes with any bytes.
#![no_main]

#[path = "../../core/tests/noise/checks.rs"]
#[allow(dead_code, reason = "the other targets use the rest")]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::completions(bytes));
