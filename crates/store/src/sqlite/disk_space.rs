//! Disk space: when to refuse new jobs, and what to do when the disk is full.
//!
//! Reports of running jobs must be stored even when the disk is nearly full, or their work is lost.
//! So new jobs are refused while some space is left, and a ballast file reserves a little more: it
//! is deleted when a commit finds the disk full, and created again when there is plenty of space.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, fallocate, statvfs};

use super::owner::beside;
use crate::store::{Commit, StoreSpace};

/// How much disk space a store uses and leaves free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskLimits {
    /// With fewer free bytes than this, new jobs are refused.
    pub free_min: u64,
    /// The size of the ballast file, which is deleted when a commit finds the disk full.
    pub ballast: u64,
    /// When the write-ahead log has this many bytes, new reads wait for a moment, so that it can
    /// start again from the beginning.
    pub log_restart: u64,
    /// Before the write-ahead log exceeds this many bytes, reads of clients are interrupted, so
    /// that it can start again from the beginning.
    pub log_max: u64,
}

impl DiskLimits {
    /// 64 MiB free and a ballast file of 16 MiB; a log of 64 MiB, and of 224 MiB beside a read that
    /// lasts long. A commit can take a little more than estimated, so 256 MiB are promised.
    pub const DEFAULT: Self =
        Self { free_min: 64 << 20, ballast: 16 << 20, log_restart: 64 << 20, log_max: 224 << 20 };
}

impl Default for DiskLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// How long a reading of the free space is used.
const BELIEVED: Duration = Duration::from_secs(1);

/// Watches the free disk space, and manages the ballast file.
pub(super) struct Watch {
    limits: DiskLimits,
    folder: PathBuf,
    ballast: PathBuf,
    began: Instant,
    /// When the free space was last read, in milliseconds since `began`, from 1; 0 means never.
    asked_ms: AtomicU64,
    free: AtomicU64,
    /// Bytes that may have been written since then.
    spent: AtomicU64,
}

impl Watch {
    pub(super) fn new(database: &Path, limits: DiskLimits) -> Self {
        let folder = database.parent().filter(|folder| !folder.as_os_str().is_empty());
        let watch = Self {
            limits,
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

    pub(super) fn space(&self) -> StoreSpace {
        let (free, needed) = (self.free(), self.limits.free_min);
        if free < needed { StoreSpace::Low { free, needed } } else { StoreSpace::Enough }
    }

    /// Accounts for a commit that is about to be written: the faster the disk fills, the more often
    /// the free space is read.
    pub(super) fn spend(&self, commit: &Commit) {
        let bytes = commit.size();
        if self.spent.fetch_add(bytes, Ordering::Relaxed) + bytes >= self.limits.free_min / 8 {
            self.ask_again();
        }
    }

    /// Frees disk space by deleting the ballast file, if it exists.
    pub(super) fn release(&self) {
        self.ask_again();
        let _ = fs::remove_file(&self.ballast);
    }

    fn ask_again(&self) {
        self.spent.store(0, Ordering::Relaxed);
        self.asked_ms.store(0, Ordering::Relaxed);
    }

    /// The free bytes, from a reading that is not too old.
    fn free(&self) -> u64 {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
        let asked = self.asked_ms.load(Ordering::Relaxed);
        let is_believed = asked != 0 && now.saturating_sub(asked) < BELIEVED.as_millis() as u64;
        let asks = || {
            let (order, asked_ms) = (Ordering::Relaxed, &self.asked_ms);
            asked_ms.compare_exchange(asked, now, order, order).is_ok()
        };
        // If several threads find it too old, one reads again; the others use the old value.
        if !is_believed && asks() {
            self.free.store(self.ask(), Ordering::Relaxed);
        }
        self.free.load(Ordering::Relaxed)
    }

    fn ask(&self) -> u64 {
        // If the free space cannot be read, assume there is enough; a commit will find out.
        let ask = || {
            let disk = statvfs(&self.folder);
            disk.map_or(u64::MAX, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
        };
        let DiskLimits { free_min: mark, ballast, .. } = self.limits;
        let free = ask();
        // Only with space to spare, so that it is not created and deleted in turn.
        if ballast > 0 && free / 2 >= mark.saturating_add(ballast) && !self.ballast.exists() {
            // The ballast is optional, so a failure is ignored.
            let _ = self.create_ballast();
            return ask();
        }
        free
    }

    fn create_ballast(&self) -> io::Result<()> {
        let file = File::create(&self.ballast)?;
        // Allocates blocks, not only a length.
        if fallocate(&file, FallocateFlags::empty(), 0, self.limits.ballast).is_err() {
            fs::remove_file(&self.ballast)?;
        }
        Ok(())
    }
}
