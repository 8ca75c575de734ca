//! The result of a command: JSON that it wrote to `$FILCH_RESULT`, or printed as its last line.
//!
//! The file counts if anything is in it. Otherwise the last line on stdout that is not blank
//! counts, if it is JSON of any kind: `{"rows": 3}`, and also `42`, `"done"` or `true`, because
//! programs such as `wc -l` print bare numbers. `done` without the quotes is not JSON, so such a
//! command has no result.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use filch_api::json::check_depth;
use filch_api::limits::{JSON_DEPTH, RESULT_BYTES};
use rustix::fs::OFlags;

use super::folder::Folder;

/// A file for the result of one attempt, empty at first; it is removed when this is dropped.
pub(super) struct ResultFile {
    path: PathBuf,
    /// Kept for as long as there is a file in it.
    folder: Arc<Folder>,
}

impl ResultFile {
    /// Readable for this user alone.
    pub(super) fn create(folder: Arc<Folder>) -> io::Result<ResultFile> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        // Relaxed suffices: it only counts, and synchronizes nothing.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = folder.path().join(format!("result-{number}"));
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(ResultFile { path, folder })
    }

    /// The folder that it is in, together with those of other commands.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The contents, up to one byte more than a result may have. A file that the command has
    /// removed counts as empty.
    pub(super) fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        match self.open()? {
            Some(file) => file.take(RESULT_BYTES as u64 + 1).read_to_end(&mut bytes)?,
            None => 0,
        };
        Ok(bytes)
    }

    fn open(&self) -> io::Result<Option<File>> {
        // The command may have put anything there, even a pipe without a writer.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if file.metadata()?.is_file() {
            Ok(Some(file))
        } else {
            Err(io::Error::other("it is not a plain file"))
        }
    }
}

impl Drop for ResultFile {
    fn drop(&mut self) {
        // The command may have removed it itself.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The result, or what is wrong with it.
pub(super) fn judge(
    file: io::Result<Vec<u8>>,
    last_line: &LastLine,
) -> Result<Option<String>, String> {
    let file =
        file.map_err(|error| format!("cannot read the result in $FILCH_RESULT ({error})"))?;
    if file.trim_ascii().is_empty() {
        return Ok(last_line.text().and_then(|line| json(line).ok()));
    }
    if file.len() > RESULT_BYTES {
        return Err(format!("the result in $FILCH_RESULT is longer than {RESULT_BYTES} bytes"));
    }
    match json(&file) {
        Ok(text) => Ok(Some(text)),
        Err(error) => Err(format!("the result in $FILCH_RESULT is not usable JSON ({error})")),
    }
}

/// The same text, if it is JSON within the limits.
fn json(bytes: &[u8]) -> Result<String, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?.trim();
    check_depth(bytes).map_err(|_| format!("it is nested more than {JSON_DEPTH} deep"))?;
    match serde_json::from_str::<serde_json::Value>(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Finds the last line of the output that is not blank.
#[derive(Default)]
pub(super) struct LastLine {
    current: Line,
    last: Line,
}

/// A line without its end, cut off where it is too long to be a result.
#[derive(Default)]
struct Line {
    bytes: Vec<u8>,
    is_too_long: bool,
}

impl LastLine {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.current.push(piece);
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.current);
                if !line.is_blank() {
                    self.last = line;
                }
            }
        }
    }

    fn text(&self) -> Option<&[u8]> {
        let line = if self.current.is_blank() { &self.last } else { &self.current };
        (!line.is_too_long).then_some(&line.bytes)
    }
}

impl Line {
    fn push(&mut self, bytes: &[u8]) {
        let room = RESULT_BYTES - self.bytes.len();
        // Trimmed, so that the end of the line does not count.
        self.is_too_long |= bytes.trim_ascii_end().len() > room;
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn is_blank(&self) -> bool {
        !self.is_too_long && self.bytes.trim_ascii().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(file: &[u8], pieces: &[&[u8]]) -> Result<Option<String>, String> {
        let mut last_line = LastLine::default();
        for piece in pieces {
            last_line.push(piece);
        }
        judge(Ok(file.to_vec()), &last_line)
    }

    fn of_lines(pieces: &[&[u8]]) -> Option<String> {
        result(b"", pieces).unwrap()
    }

    #[test]
    fn the_last_line_counts_if_it_is_json() {
        assert_eq!(of_lines(&[b"working\n{\"rows\": 3}\n"]).unwrap(), "{\"rows\": 3}");
        assert_eq!(of_lines(&[b"42"]).unwrap(), "42");
        assert_eq!(of_lines(&[b" \"do", b"ne\" \r\n", b"\n  \n"]).unwrap(), "\"done\"");
        assert_eq!(of_lines(&[b"{\"rows\": 3}\ndone\n"]), None);
        assert_eq!(of_lines(&[b"\n\n"]), None);
        assert_eq!(of_lines(&[]), None);
        assert_eq!(of_lines(&[b"\"\xff\"\n"]), None);
    }

    #[test]
    fn a_line_may_be_as_long_as_a_result() {
        let text = format!("\"{}\"", "x".repeat(RESULT_BYTES - 2));
        assert_eq!(of_lines(&[text.as_bytes(), b"\n"]).unwrap(), text);
        let long = format!("{text} 1\n");
        assert_eq!(of_lines(&[b"1\n", long.as_bytes()]), None, "and is not cut down to one");
        assert_eq!(of_lines(&[long.as_bytes(), b"2\n"]).unwrap(), "2");
    }

    #[test]
    fn the_result_file_has_precedence() {
        assert_eq!(result(b" {\"a\": 1}\n", &[b"2\n"]).unwrap().unwrap(), "{\"a\": 1}");
        assert_eq!(result(b"\n", &[b"2\n"]).unwrap().unwrap(), "2");
    }

    #[test]
    fn an_unusable_result_file_is_reported() {
        assert!(result(b"{", &[b"2\n"]).unwrap_err().contains("is not usable JSON"));
        assert!(result(b"\xff", &[]).unwrap_err().contains("is not usable JSON"));
        let deep = |depth| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(result(deep(JSON_DEPTH).as_bytes(), &[]), Ok(Some(deep(JSON_DEPTH))));
        for depth in [JSON_DEPTH + 1, 100_000] {
            let reason = result(deep(depth).as_bytes(), &[]).unwrap_err();
            assert!(reason.contains("nested more than 64 deep"), "{reason}");
        }
        let long = format!("\"{}\"", "x".repeat(RESULT_BYTES));
        assert!(result(long.as_bytes(), &[]).unwrap_err().contains("is longer than 262144 bytes"));
    }

    fn file() -> (tempfile::TempDir, ResultFile) {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::create(parent.path()).unwrap();
        (parent, ResultFile::create(Arc::new(folder)).unwrap())
    }

    #[test]
    fn a_file_is_there_until_it_is_dropped() {
        let (_parent, file) = file();
        let path = file.path().to_owned();
        assert_eq!(file.read().unwrap(), b"");
        std::fs::write(&path, "1").unwrap();
        assert_eq!(file.read().unwrap(), b"1");
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn no_kind_of_result_file_hangs_the_worker() {
        let (_parent, file) = file();
        std::fs::remove_file(file.path()).unwrap();
        assert_eq!(file.read().unwrap(), b"");
        let mode = rustix::fs::Mode::from_bits_retain(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, file.path(), rustix::fs::FileType::Fifo, mode, 0)
            .unwrap();
        assert!(judge(file.read(), &LastLine::default()).unwrap_err().contains("plain file"));
    }
}
