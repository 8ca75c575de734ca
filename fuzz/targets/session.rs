//! The fuzzer's entry point; the check is in `bodies/session.rs`.

#![no_main]

#[path = "../bodies/session.rs"]
mod session;

libfuzzer_sys::fuzz_target!(|input: &[u8]| session::run(input));
