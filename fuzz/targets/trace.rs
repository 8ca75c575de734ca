//! The fuzzer's entry point; the check is in `bodies/trace.rs`.

#![no_main]

#[path = "../bodies/trace.rs"]
mod trace;

libfuzzer_sys::fuzz_target!(|input: &[u8]| trace::run(input));
