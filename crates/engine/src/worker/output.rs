//! Output of running jobs that waits to be sent, up to a bound. Pieces beyond it are dropped: all
//! output is also in the log that is stored with the attempt.

/// How many pieces may wait.
const PIECES_MAX: usize = 1_024;

/// How many bytes may wait. In JSON they can take six times as much, and servers accept 16 MiB.
const BYTES_MAX: usize = 2 << 20;

/// Output that waits.
pub(super) struct WaitingOutput<O> {
    pieces: Vec<O>,
    bytes: usize,
}

impl<O> Default for WaitingOutput<O> {
    fn default() -> Self {
        Self { pieces: Vec::new(), bytes: 0 }
    }
}

impl<O> WaitingOutput<O> {
    pub(super) fn add(&mut self, piece: O, bytes: usize) {
        if self.pieces.len() < PIECES_MAX && self.bytes.saturating_add(bytes) <= BYTES_MAX {
            self.pieces.push(piece);
            self.bytes += bytes;
        }
    }

    pub(super) fn take(&mut self) -> Vec<O> {
        self.bytes = 0;
        std::mem::take(&mut self.pieces)
    }
}
