//! The fuzzer's entry point; the check is in `bodies/submit.rs`.

#![no_main]

#[path = "../bodies/submit.rs"]
mod submit;

libfuzzer_sys::fuzz_target!(|input: &[u8]| submit::run(input));
