//! The fuzzer's entry point; the check is in `bodies/flow.rs`.

#![no_main]

#[path = "../bodies/flow.rs"]
mod flow;

libfuzzer_sys::fuzz_target!(|input: &[u8]| flow::run(input));
