//! The last non-blank line that a command prints to stderr, which is most often the reason for its
//! failure.
//!
//! Only its text is kept, without colours and other terminal sequences.

/// How many bytes of a line are kept.
const LINE_BYTES: usize = 512;

/// Finds the last line of the output that is not blank.
#[derive(Default)]
pub(super) struct LastWords {
    current: Vec<u8>,
    last: Option<String>,
}

impl LastWords {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        // Progress bars overwrite a line again and again.
        for piece in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            // Long lines are cut; one byte more shows that there was something.
            let room = (LINE_BYTES + 1).saturating_sub(self.current.len());
            self.current.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") || piece.ends_with(b"\r") {
                self.end_line();
            }
        }
    }

    pub(super) fn finish(mut self) -> Option<String> {
        self.end_line();
        self.last
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.current);
        let kept = &line[..line.len().min(LINE_BYTES)];
        let mut text = plain(&String::from_utf8_lossy(kept));
        if line.trim_ascii_end().len() > LINE_BYTES {
            // The cut may be in the middle of a character.
            text.truncate(text.trim_end_matches('\u{fffd}').len());
            text.push('…');
        }
        if !text.is_empty() {
            self.last = Some(text);
        }
    }
}

/// The text without sequences for terminals and without control characters.
fn plain(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '\u{1b}' => match rest.next() {
                // Skips the sequence up to its final byte: a letter or one of a few other
                // characters.
                Some('[') => {
                    while rest.next().is_some_and(|inside| !('@'..='~').contains(&inside)) {}
                }
                // Titles and links end with a bell, or with another escape and a backslash.
                Some(']') => {
                    while let Some(inside) = rest.next() {
                        if inside == '\u{7}' || (inside == '\u{1b}' && rest.next().is_some()) {
                            break;
                        }
                    }
                }
                _ => {}
            },
            '\t' => text.push(' '),
            character if character.is_control() => {}
            character => text.push(character),
        }
    }
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pieces: &[&[u8]]) -> Option<String> {
        let mut words = LastWords::default();
        for piece in pieces {
            words.push(piece);
        }
        words.finish()
    }

    #[test]
    fn the_last_line_that_is_not_blank_counts() {
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[b"\n \n\r\n"]), None);
        assert_eq!(of(&[b"one\ntwo\n\n  \n"]).unwrap(), "two");
        assert_eq!(of(&[b"one\ntw", b"o"]).unwrap(), "two");
        assert_eq!(of(&[b"10 %\r20 %\rfailed\r\n"]).unwrap(), "failed");
    }

    #[test]
    fn terminal_sequences_are_removed() {
        let bold = b"\x1b[1;31merror:\x1b[0m no\ttable\x07\n\x1b[0m\n";
        assert_eq!(of(&[bold]).unwrap(), "error: no table");
        let link = b"see \x1b]8;;http://a\x1b\\this\x1b]8;;\x07 page\n";
        assert_eq!(of(&[link]).unwrap(), "see this page");
        assert_eq!(of(&[b"cut \x1b[3", b"1"]).unwrap(), "cut");
        assert_eq!(of(&[b"\x1b", b"]0;never closed"]), None);
        assert_eq!(of(&[b"a\x00b\xffc"]).unwrap(), "ab\u{fffd}c");
    }

    #[test]
    fn long_lines_are_truncated() {
        let exact = "x".repeat(LINE_BYTES);
        assert_eq!(of(&[exact.as_bytes(), b"\n"]).unwrap(), exact);
        let long = "é".repeat(100_000);
        for size in [1, 7, 1_000] {
            let pieces: Vec<&[u8]> = long.as_bytes().chunks(size).collect();
            assert_eq!(of(&pieces).unwrap(), "é".repeat(LINE_BYTES / 2) + "…");
        }
        let odd = format!("x{long}");
        assert_eq!(of(&[odd.as_bytes()]).unwrap(), format!("x{}…", "é".repeat(LINE_BYTES / 2 - 1)));
    }
}
