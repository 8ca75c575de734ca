//! The log of a command: the beginning and the end of its output, of bounded size.
//!
//! Invalid UTF-8 is replaced, and control characters are kept: programs that print the log escape
//! them.

use super::Stream;

/// Bytes kept of the beginning, and of the end.
const HEAD_BYTES: usize = 16 << 10;
const TAIL_BYTES: usize = 48 << 10;

/// Collects the output of a command, in the order in which it was read.
#[derive(Default)]
pub(super) struct Log {
    head: String,
    head_is_full: bool,
    /// Up to twice as long as what is kept of it, so that it is seldom cut.
    tail: String,
    left_out: u64,
    stdout: Decoder,
    stderr: Decoder,
    notes: String,
}

impl Log {
    pub(super) fn push(&mut self, stream: Stream, bytes: &[u8]) {
        let decoder = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let text = decoder.decode(bytes);
        self.push_text(&text);
    }

    /// Adds a line by filch itself; these come at the end and are always kept.
    pub(super) fn note(&mut self, line: &str) {
        self.notes.push_str("filch: ");
        self.notes.push_str(line);
        self.notes.push('\n');
    }

    pub(super) fn finish(mut self) -> String {
        for rest in [self.stdout.finish(), self.stderr.finish()] {
            self.push_text(rest);
        }
        self.cut_tail();
        let mut log = self.head;
        if self.left_out > 0 {
            end_line(&mut log);
            log.push_str(&format!("[filch: {} bytes left out here]\n", self.left_out));
        }
        log.push_str(&self.tail);
        if !self.notes.is_empty() {
            end_line(&mut log);
            log.push_str(&self.notes);
        }
        log
    }

    fn push_text(&mut self, mut text: &str) {
        if !self.head_is_full {
            let end = text.floor_char_boundary(HEAD_BYTES - self.head.len());
            self.head.push_str(&text[..end]);
            text = &text[end..];
            self.head_is_full = !text.is_empty();
        }
        self.tail.push_str(text);
        if self.tail.len() > 2 * TAIL_BYTES {
            self.cut_tail();
        }
    }

    fn cut_tail(&mut self) {
        let start = self.tail.ceil_char_boundary(self.tail.len().saturating_sub(TAIL_BYTES));
        self.tail.drain(..start);
        self.left_out += start as u64;
    }
}

fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

/// Bytes of one stream into text; a character may come in two pieces.
#[derive(Default)]
struct Decoder {
    incomplete: Vec<u8>,
}

impl Decoder {
    fn decode(&mut self, bytes: &[u8]) -> String {
        let mut rest = std::mem::take(&mut self.incomplete);
        rest.extend_from_slice(bytes);
        let complete = rest.len() - incomplete_bytes(&rest);
        self.incomplete = rest.split_off(complete);
        String::from_utf8(rest)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    /// The replacement for a character that was never completed.
    fn finish(&mut self) -> &'static str {
        if std::mem::take(&mut self.incomplete).is_empty() { "" } else { "\u{fffd}" }
    }
}

/// How many bytes at the end are the beginning of a character.
fn incomplete_bytes(bytes: &[u8]) -> usize {
    let Some(last) = bytes.utf8_chunks().last() else { return 0 };
    match std::str::from_utf8(last.invalid()) {
        Err(error) if error.error_len().is_none() => last.invalid().len(),
        Ok(_) | Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(pieces: &[(Stream, &[u8])]) -> String {
        let mut log = Log::default();
        for (stream, bytes) in pieces {
            log.push(*stream, bytes);
        }
        log.finish()
    }

    #[test]
    fn short_output_is_kept_whole_and_in_order() {
        assert_eq!(log(&[]), "");
        assert_eq!(log(&[(Stream::Stdout, b"a\n"), (Stream::Stderr, b"b\x1b[0m")]), "a\nb\x1b[0m");
        let text = "x".repeat(HEAD_BYTES + TAIL_BYTES);
        assert_eq!(log(&[(Stream::Stdout, text.as_bytes())]), text);
    }

    #[test]
    fn the_middle_is_left_out_and_counted() {
        let text = "0123456789".repeat(100_000);
        for size in [1, 1000, 70_000] {
            let mut log = Log::default();
            for piece in text.as_bytes().chunks(size) {
                log.push(Stream::Stdout, piece);
            }
            let log = log.finish();
            let left_out = text.len() - HEAD_BYTES - TAIL_BYTES;
            let between = format!("\n[filch: {left_out} bytes left out here]\n");
            let (head, tail) = log.split_once(&between).unwrap();
            assert_eq!(head, &text[..HEAD_BYTES]);
            assert_eq!(tail, &text[text.len() - TAIL_BYTES..]);
        }
    }

    #[test]
    fn no_character_is_cut_in_two() {
        let text = "€".repeat(40_000);
        let log = log(&[(Stream::Stdout, text.as_bytes())]);
        assert!(!log.contains('\u{fffd}'));
        let kept = log.chars().filter(|character| *character == '€').count();
        assert_eq!(kept, HEAD_BYTES / 3 + TAIL_BYTES / 3);
    }

    #[test]
    fn a_character_may_be_split_around_output_of_the_other_stream() {
        let euro = "€".as_bytes();
        let pieces = [
            (Stream::Stdout, &euro[..1]),
            (Stream::Stderr, b"!"),
            (Stream::Stdout, &euro[1..2]),
            (Stream::Stdout, &euro[2..]),
        ];
        assert_eq!(log(&pieces), "!€");
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        assert_eq!(log(&[(Stream::Stdout, b"a\xffb\xe2\x82")]), "a\u{fffd}b\u{fffd}");
        let noise = vec![0xff; 1 << 20];
        assert!(log(&[(Stream::Stdout, &noise)]).len() < HEAD_BYTES + TAIL_BYTES + 100);
    }

    #[test]
    fn notes_come_at_the_end_on_separate_lines() {
        let mut log = Log::default();
        log.note("the result is not JSON");
        log.push(Stream::Stdout, b"no newline");
        assert_eq!(log.finish(), "no newline\nfilch: the result is not JSON\n");
    }
}
