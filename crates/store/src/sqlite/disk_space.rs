//! DiskSpace on the disk: when to stop taking jobs, and what to throw overboard when there is none.
//!
//! Reports of jobs that run must be taken also when the disk is nearly full, or their work is lost. So
//! new jobs are refused while there is still some room, and a file that holds nothing takes up a little
//! more: it is removed when a commit finds no room all the same, and made again when there is plenty.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

use super::owner::beside;
use crate::store::{Commit, DiskSpace};

/// How much room a store leaves on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskReserve {
    /// With fewer bytes free than this, no new jobs are taken.
    pub mark: u64,
    /// The size of a file that takes up room only to be removed when a commit finds none.
    pub ballast: u64,
}

impl Default for DiskReserve {
    /// 64 MiB free, and a ballast of 16 MiB.
    fn default() -> Self {
        Self { mark: 64 << 20, ballast: 16 << 20 }
    }
}

/// How long an answer of the disk is believed.
const BELIEVED: Duration = Duration::from_secs(1);

/// More than a mutation takes up by itself, in the log and in the database.
const MUTATION_BYTES: u64 = 512;

/// Knows how much room there is, and holds some of it back.
pub(super) struct Watch {
    reserve: DiskReserve,
    folder: PathBuf,
    ballast: PathBuf,
    began: Instant,
    /// When the disk was asked last, in milliseconds since `began`, from 1; 0 is never.
    asked_ms: AtomicU64,
    free: AtomicU64,
    /// Bytes that may have been written since.
    spent: AtomicU64,
}

impl Watch {
    pub(super) fn new(database: &Path, reserve: DiskReserve) -> Self {
        let folder = database.parent().filter(|folder| !folder.as_os_str().is_empty());
        let watch = Self {
            reserve,
            folder: folder.unwrap_or(Path::new(".")).to_owned(),
            ballast: beside(database, "ballast"),
            began: Instant::now(),
            asked_ms: AtomicU64::new(0),
            free: AtomicU64::new(0),
            spent: AtomicU64::new(0),
        };
        watch.free();
        watch
    }

    pub(super) fn disk_space(&self) -> DiskSpace {
        let (free, mark) = (self.free(), self.reserve.mark);
        if free < mark { DiskSpace::Low { free, mark } } else { DiskSpace::Enough }
    }

    /// Takes notice that a commit is about to be written: the faster the disk fills, the more often it
    /// is asked.
    pub(super) fn spend(&self, commit: &Commit) {
        let payloads = commit.payloads.iter().map(|(_, text)| text.len());
        let outputs = commit.outputs.iter().flat_map(|left| [&left.result, &left.log]);
        let texts = payloads.chain(outputs.flatten().map(|text| text.len())).sum::<usize>() as u64;
        let bytes = texts + MUTATION_BYTES * commit.mutations.len() as u64;
        if self.spent.fetch_add(bytes, Ordering::Relaxed) + bytes >= self.reserve.mark / 8 {
            self.ask_again();
        }
    }

    /// Makes room by removing the ballast, if it is still there.
    pub(super) fn release(&self) {
        self.ask_again();
        let _ = fs::remove_file(&self.ballast);
    }

    fn ask_again(&self) {
        self.spent.store(0, Ordering::Relaxed);
        self.asked_ms.store(0, Ordering::Relaxed);
    }

    /// How many bytes are free, as far as the last answer is still believed.
    fn free(&self) -> u64 {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        let asked = self.asked_ms.load(Ordering::Relaxed);
        let is_believed = asked != 0 && now.saturating_sub(asked) < BELIEVED.as_millis() as u64;
        let asks = || {
            let (order, asked_ms) = (Ordering::Relaxed, &self.asked_ms);
            asked_ms.compare_exchange(asked, now, order, order).is_ok()
        };
        // Of several that find it too old at once, one asks; the others take the old answer.
        if !is_believed && asks() {
            self.free.store(self.ask(), Ordering::Relaxed);
        }
        self.free.load(Ordering::Relaxed)
    }

    fn ask(&self) -> u64 {
        // If the disk does not say, it is not full for all we know; a commit will tell.
        let ask = || {
            let disk = statvfs(&self.folder);
            disk.map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
        };
        let DiskReserve { mark, ballast } = self.reserve;
        let free = ask();
        // Only where it does not bring the mark near, so that it does not come and go.
        if ballast > 0 && free / 2 >= mark.saturating_add(ballast) && !self.ballast.exists() {
            // Going without it is no reason to stop.
            let _ = self.load_ballast();
            return ask();
        }
        free
    }

    fn load_ballast(&self) -> io::Result<()> {
        let file = File::create(&self.ballast)?;
        // Blocks of the disk, not only a length.
        if fallocate(&file, FallocateFlags::empty(), 0, self.reserve.ballast).is_err() {
            fs::remove_file(&self.ballast)?;
        }
        Ok(())
    }
}
