//! The node fed with any bytes: nothing panics, every answer is a line of ASCII JSON, and how the bytes
//! arrive makes no difference. The fuzzer's own limit of memory is the judge of growth.

#![no_main]

use std::io::{Read, Result};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((&piece, input)) = input.split_first() else { return };
    let answers = serve(input);
    for line in answers.split_inclusive(|&byte| byte == b'\n') {
        assert!(line.is_ascii() && line.ends_with(b"\n"));
        serde_json::from_slice::<serde_json::Value>(line).expect("an answer is JSON");
    }
    assert_eq!(answers, serve(Pieces { bytes: input, length: 1 + usize::from(piece) }));
});

fn serve(input: impl Read) -> Vec<u8> {
    let mut answers = Vec::new();
    filch_node::serve(input, &mut answers, std::io::sink(), 0).expect("nothing breaks");
    answers
}

/// Hands out its bytes a few at a time.
struct Pieces<'a> {
    bytes: &'a [u8],
    length: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let length = self.length.min(self.bytes.len()).min(buffer.len());
        let (piece, rest) = self.bytes.split_at(length);
        buffer[..length].copy_from_slice(piece);
        self.bytes = rest;
        Ok(length)
    }
}
