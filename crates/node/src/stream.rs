//! The input as a stream of JSON values, with or without white space between them.
//!
//! An invalid value is skipped up to the first newline after its *start*, so that an invalid line
//! never affects the next one. At most one message and one read are held in memory.

use std::io::{ErrorKind, Read, Result};

use crate::limits;
use crate::scan::{Flaw, Progress, Scan};

pub(crate) struct Stream<R> {
    input: R,
    /// Bytes that were read; those from `start` on are not consumed yet.
    buffer: Vec<u8>,
    /// The bytes of the buffer before this index are consumed.
    start: usize,
    /// How many bytes of the input came before the buffer.
    before: u64,
    /// Whether input is skipped up to the next newline.
    skipping: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    Value(&'a str),
    /// At this byte of the input an invalid value starts.
    Bad {
        at: u64,
        flaw: Flaw,
    },
}

const READ_BYTES: usize = 64 << 10;

/// A byte order mark is skipped like white space.
const MARK: &[u8] = "\u{feff}".as_bytes();

impl<R: Read> Stream<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, buffer: Vec::new(), start: 0, before: 0, skipping: false }
    }

    /// The next value, valid or not; `None` at the end of the input.
    pub(crate) fn next(&mut self) -> Result<Option<Item<'_>>> {
        if !self.find_start()? {
            return Ok(None);
        }
        let at = self.before + self.start as u64;
        let flaw = match self.find_end()? {
            Ok(length) => {
                let value = &self.buffer[self.start..self.start + length];
                if let Ok(value) = std::str::from_utf8(value) {
                    self.start += length;
                    return Ok(Some(Item::Value(value)));
                }
                Flaw::NotUtf8
            }
            Err(flaw) => flaw,
        };
        self.skipping = true;
        Ok(Some(Item::Bad { at, flaw }))
    }

    /// Advances to the first byte of the next value. Returns whether there is one.
    fn find_start(&mut self) -> Result<bool> {
        loop {
            if self.skipping {
                let rest = &self.buffer[self.start..];
                let newline = rest.iter().position(|&byte| byte == b'\n');
                self.start += newline.unwrap_or(rest.len());
                self.skipping = newline.is_none();
            }
            let is_space = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
            self.start += self.buffer[self.start..].iter().take_while(is_space).count();

            let rest = &self.buffer[self.start..];
            let may_be_mark = MARK.starts_with(&rest[..rest.len().min(MARK.len())]);
            if may_be_mark && rest.len() >= MARK.len() {
                self.start += MARK.len();
            } else if !may_be_mark {
                return Ok(true);
            } else if !self.fill()? {
                return Ok(self.start < self.buffer.len());
            }
        }
    }

    /// The length of the value that starts here, or why it is invalid.
    fn find_end(&mut self) -> Result<std::result::Result<usize, Flaw>> {
        let mut scan = Scan::new();
        let mut scanned = 0;
        loop {
            let unread = &self.buffer[self.start + scanned..];
            let progress = scan.read(unread);
            let length = scanned
                + match progress {
                    Progress::Ends(length) => length,
                    Progress::More => unread.len(),
                    Progress::Bad(flaw) => return Ok(Err(flaw)),
                };
            if length > limits::MESSAGE_BYTES {
                return Ok(Err(Flaw::TooLong));
            }
            if progress != Progress::More {
                return Ok(Ok(length));
            }
            scanned = length;
            if !self.fill()? {
                return Ok(if scan.ends_here() { Ok(length) } else { Err(Flaw::CutShort) });
            }
        }
    }

    /// Waits for input and reads what is available. Returns false at the end of the input.
    fn fill(&mut self) -> Result<bool> {
        self.buffer.drain(..self.start);
        self.before += self.start as u64;
        self.start = 0;

        let length = self.buffer.len();
        self.buffer.resize(length + READ_BYTES, 0);
        let read = loop {
            match self.input.read(&mut self.buffer[length..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.buffer.truncate(length + *read.as_ref().unwrap_or(&0));
        Ok(read? > 0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns its bytes in pieces of the given lengths, repeated.
    struct Pieces<'a> {
        bytes: &'a [u8],
        lengths: std::iter::Cycle<std::slice::Iter<'a, usize>>,
    }

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
            let length = *self.lengths.next().expect("the cycle does not end");
            let (piece, rest) = self.bytes.split_at(length.min(self.bytes.len()).min(buffer.len()));
            buffer[..piece.len()].copy_from_slice(piece);
            self.bytes = rest;
            Ok(piece.len())
        }
    }

    fn items<R: Read>(input: R) -> Vec<String> {
        let mut stream = Stream::new(input);
        let mut items = Vec::new();
        while let Some(item) = stream.next().expect("reading does not fail") {
            items.push(format!("{item:?}"));
        }
        items
    }

    fn values(input: &[u8]) -> Vec<String> {
        let mut stream = Stream::new(input);
        let mut values = Vec::new();
        while let Some(item) = stream.next().expect("reading does not fail") {
            if let Item::Value(value) = item {
                values.push(value.to_owned());
            }
        }
        values
    }

    #[test]
    fn an_invalid_value_is_skipped_up_to_the_first_newline_after_its_start() {
        assert_eq!(values(b"{bad} 1\n2\n"), ["2"]);
        assert_eq!(
            values(b"[1,\n2\n3"),
            ["2", "3"],
            "incomplete, so reading continues on the next line"
        );
        assert_eq!(values(b"[1,\n{\"a\":\n2,}\n3"), ["2", "3"]);
        assert_eq!(values(b"\"\xff\n\" 1\n2"), ["2"], "a string cannot contain a newline");
        assert_eq!(
            values(b"[\"\xff\",\n1] 2\n3"),
            ["1", "3"],
            "invalid UTF-8 is skipped from its start as well"
        );
        assert_eq!(values(b"1 \xef\xbb2\n3"), ["1", "3"], "half a byte order mark");
    }

    #[test]
    fn a_message_may_be_one_mebibyte_long() {
        let message = |length: usize| format!("\"{}\"", "x".repeat(length - 2));
        let longest = message(limits::MESSAGE_BYTES);
        let input = format!("  {longest} \n{}\n1", message(limits::MESSAGE_BYTES + 1));
        assert_eq!(values(input.as_bytes()), [longest.as_str(), "1"]);
    }

    #[test]
    fn memory_does_not_grow_with_the_input() {
        let endless: [&[u8]; 6] = [b"x", b"[1,", b"\"x", b"[", b"{\"a\":\n", b"[1,\n"];
        for piece in endless {
            // Few before the spaces: after each of their newlines, the spaces are scanned again.
            let (few, many) = (piece.repeat(10), piece.repeat(1 + 200_000 / piece.len()));
            let spaces = std::io::repeat(b' ').take(3 << 20);
            let input = few.chain(spaces).chain(&many[..]);
            let mut stream = Stream::new(input);
            while stream.next().expect("reading does not fail").is_some() {
                assert!(stream.buffer.capacity() <= 2 * (limits::MESSAGE_BYTES + READ_BYTES));
            }
        }
    }

    proptest! {
        #[test]
        fn the_pieces_of_the_input_do_not_matter(
            pieces in proptest::collection::vec(
                prop_oneof![
                    proptest::sample::select(vec![
                        &b"{\"a\": [1, \"\xc3\xa9\"]}"[..], b"\n", b"\r\n", b" ", b"\xef\xbb\xbf", b"{", b"}", b"[",
                        b"]", b"12", b"\"", b"null", b"\xff", b",", b"\\u12",
                    ])
                    .prop_map(<[u8]>::to_vec),
                    proptest::collection::vec(any::<u8>(), 0..5),
                ],
                0..30,
            ),
            lengths in proptest::collection::vec(1_usize..9, 1..5),
        ) {
            let bytes = pieces.concat();
            let cut = Pieces { bytes: &bytes, lengths: lengths.iter().cycle() };
            prop_assert_eq!(items(cut), items(&bytes[..]));
        }

        /// For any bytes: nothing panics, and a value on its own line after them is read.
        #[test]
        fn a_valid_line_after_any_bytes_is_read(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut bytes = bytes;
            bytes.retain(|byte| !matches!(byte, b'{' | b'['));
            bytes.extend_from_slice(b"\n{\"last\": 1}");
            prop_assert_eq!(values(&bytes).pop().expect("one value"), "{\"last\": 1}");
        }
    }
}
