//! The node with arbitrary input: it does not panic, every answer is a line of ASCII JSON, and the
//! answers do not depend on how the input is split into reads. The fuzzer's memory limit catches
//! unbounded growth.

use std::io::{Read, Result};

pub(crate) fn run(input: &[u8]) {
    let Some((&piece, input)) = input.split_first() else { return };
    let answers = serve(input);
    for line in answers.split_inclusive(|&byte| byte == b'\n') {
        assert!(line.is_ascii() && line.ends_with(b"\n"));
        serde_json::from_slice::<serde_json::Value>(line).expect("an answer is JSON");
    }
    assert_eq!(answers, serve(Pieces { bytes: input, length: 1 + usize::from(piece) }));
}

fn serve(input: impl Read) -> Vec<u8> {
    let mut answers = Vec::new();
    filch_node::serve(input, &mut answers, std::io::sink(), 0)
        .expect("reading from memory does not fail");
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
