//! A hash of a run, to compare two runs without storing them.

use std::hash::{Hash, Hasher};

use filch_scheduler::time::Now;

/// Multiply and rotate: fast, and good enough to detect accidental differences.
#[derive(Default)]
pub(super) struct Fingerprint(u64);

impl Fingerprint {
    pub(super) fn add(&mut self, who: u64, now: Now, event: &impl Hash) {
        self.write_u64(who);
        self.write_u64(now.monotonic.0);
        self.write_u64(now.wall.0);
        event.hash(self);
    }

    pub(super) const fn value(&self) -> u64 {
        self.0
    }
}

impl Hasher for Fingerprint {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_u8(&mut self, byte: u8) {
        self.write_u64(u64::from(byte));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}
