//! Which jobs must exist: every number that was ever assigned belongs to a stored or to a purged
//! job.

use std::collections::BTreeMap;

use filch_scheduler::id::Seq;

use super::PurgeRecord;
use super::report::{IntegrityReport, IntegrityRule};
use crate::store::PurgeCause;

/// What is known about purged and missing jobs.
#[derive(Default)]
pub(super) struct Purged {
    /// First and last of each range.
    ranges: BTreeMap<Seq, Seq>,
    /// How many jobs the ranges have.
    jobs: u64,
    /// Ranges of jobs that are neither stored nor purged.
    missing: BTreeMap<Seq, Seq>,
    /// The highest number of a job that was read.
    met: Seq,
}

/// Why a row of the ledger names a job that is not held in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Absent {
    Purged,
    Missing,
    /// It is stored, and had ended.
    Ended,
    /// It was submitted later.
    Unborn,
}

impl Purged {
    pub(super) fn add(&mut self, first: Seq, last: Seq, report: &mut IntegrityReport) {
        let before = self.ranges.last_key_value().map(|(_, last)| *last);
        report.ensure(
            before.is_none_or(|before| before < first) && first <= last,
            IntegrityRule::Index,
            None,
            || {
                let (first, last) = (first.0, last.0);
                format!("the purged range {first} to {last} overlaps another one")
            },
        );
        self.jobs += last.0.saturating_sub(first.0) + 1;
        self.ranges.insert(first, last);
    }

    pub(super) fn add_cause(&mut self, purge: &PurgeRecord, report: &mut IntegrityReport) {
        let counts = &mut report.counts;
        let PurgeRecord { cause, at, jobs, waited_least } = *purge;
        match cause {
            PurgeCause::Discarded => counts.discarded += jobs,
            // The times of their ends prove nothing.
            PurgeCause::Misdated => counts.expired += jobs,
            PurgeCause::Expired { retention } => {
                counts.expired += jobs;
                let promised = i64::try_from(retention.as_millis()).unwrap_or(i64::MAX);
                let (waited, job) = waited_least;
                if waited < promised {
                    let at = at.0;
                    let what = format!(
                        "it was purged {waited} ms after its end, but the retention was \
                         {promised} ms (one of {jobs} jobs purged until {at} ms)"
                    );
                    report.add(IntegrityRule::S1, Some(job), what);
                }
            }
        }
    }

    pub(super) fn contains(&self, seq: Seq) -> bool {
        is_in(&self.ranges, seq)
    }

    pub(super) fn absent(&self, seq: Seq) -> Absent {
        match () {
            () if self.contains(seq) => Absent::Purged,
            () if seq > self.met => Absent::Unborn,
            () if is_in(&self.missing, seq) => Absent::Missing,
            () => Absent::Ended,
        }
    }

    /// A job is stored: the missing numbers before it must have been purged.
    pub(super) fn add_job(&mut self, seq: Seq, report: &mut IntegrityReport) {
        report.ensure(seq > self.met, IntegrityRule::S7, Some(seq), || {
            format!("it follows job number {}", self.met.0)
        });
        self.pass(seq, report);
        report.ensure(!self.contains(seq), IntegrityRule::S1, Some(seq), || {
            "it is stored, but recorded as purged".to_owned()
        });
        self.met = self.met.max(seq);
    }

    /// All stored jobs were read.
    pub(super) fn finish(&mut self, last: Seq, report: &mut IntegrityReport) {
        self.pass(Seq(last.0.saturating_add(1)), report);
        report.ensure(self.met <= last, IntegrityRule::S7, Some(self.met), || {
            format!("its number is {}, but the newest number is {}", self.met.0, last.0)
        });
        if let Some((_, &end)) = self.ranges.last_key_value() {
            report.ensure(end <= last, IntegrityRule::S7, Some(end), || {
                format!("number {} was purged, but the newest number is {}", end.0, last.0)
            });
        }
        let (jobs, explained) = (self.jobs, report.counts.purged());
        report.ensure(jobs == explained, IntegrityRule::S1, None, || {
            format!("{jobs} jobs were purged, but causes are recorded for {explained}")
        });
    }

    /// Checks that all numbers between the last job and this one were purged.
    fn pass(&mut self, to: Seq, report: &mut IntegrityReport) {
        let mut next = self.met.0.saturating_add(1);
        while next < to.0 {
            let range = self.ranges.range(..=Seq(next)).next_back();
            if let Some((_, last)) = range.filter(|(_, last)| last.0 >= next) {
                next = last.0.saturating_add(1);
                continue;
            }
            let purged = self.ranges.range(Seq(next)..).next().map_or(to.0, |(first, _)| first.0);
            let end = purged.min(to.0) - 1;
            let what = match end {
                end if end == next => {
                    "it was acknowledged, but is neither stored nor purged".to_owned()
                }
                end => format!(
                    "it was acknowledged, but is neither stored nor purged; nor are the {} after it",
                    end - next
                ),
            };
            report.add(IntegrityRule::S1, Some(Seq(next)), what);
            self.missing.insert(Seq(next), Seq(end));
            next = end + 1;
        }
    }
}

fn is_in(ranges: &BTreeMap<Seq, Seq>, seq: Seq) -> bool {
    ranges.range(..=seq).next_back().is_some_and(|(_, last)| seq <= *last)
}

/// A set of numbers, one bit each.
#[derive(Default)]
pub(super) struct Bits {
    blocks: BTreeMap<u64, [u64; 64]>,
}

impl Bits {
    pub(super) fn insert(&mut self, seq: Seq) {
        let (block, word, bit) = place(seq);
        self.blocks.entry(block).or_insert([0; 64])[word] |= bit;
    }

    /// Whether it was in the set.
    pub(super) fn remove(&mut self, seq: Seq) -> bool {
        let (block, word, bit) = place(seq);
        let Some(bits) = self.blocks.get_mut(&block).filter(|bits| bits[word] & bit != 0) else {
            return false;
        };
        bits[word] &= !bit;
        if bits.iter().all(|&word| word == 0) {
            self.blocks.remove(&block);
        }
        true
    }
}

fn place(seq: Seq) -> (u64, usize, u64) {
    let within = seq.0 % 4_096;
    (seq.0 / 4_096, (within / 64) as usize, 1 << (within % 64))
}
