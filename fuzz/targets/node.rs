//! The fuzzer's entry point; the check is in `bodies/node.rs`.

#![no_main]

#[path = "../bodies/node.rs"]
mod node;

libfuzzer_sys::fuzz_target!(|input: &[u8]| node::run(input));
