//! Which jobs there must be: every number that was given out is that of a job that is kept, or of one that
//! was purged.

use std::collections::BTreeMap;

use filch_scheduler::id::Seq;

use super::PurgeRecord;
use super::report::{IntegrityReport, IntegrityRule};
use crate::store::PurgeCause;

/// What is known of the jobs that are gone.
#[derive(Default)]
pub(super) struct Purged {
    /// First and last of each range.
    ranges: BTreeMap<Seq, Seq>,
    /// How many jobs the ranges have.
    jobs: u64,
    /// Ranges of which nobody knows where they are.
    missing: BTreeMap<Seq, Seq>,
    /// The number up to which every job has been met.
    met: Seq,
}

/// What is known of a job that a row of the ledger is about, and that has not been kept in mind.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Absent {
    Purged,
    Missing,
    /// It was there, and had ended.
    Ended,
    /// It was not submitted by then.
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
                format!("the purged jobs {first} to {last} overlap with others")
            },
        );
        self.jobs += last.0.saturating_sub(first.0) + 1;
        self.ranges.insert(first, last);
    }

    pub(super) fn explain(&mut self, purge: &PurgeRecord, report: &mut IntegrityReport) {
        let counts = &mut report.counts;
        let PurgeRecord { cause, at, jobs, waited_least } = *purge;
        match cause {
            PurgeCause::Discarded => counts.discarded += jobs,
            PurgeCause::Expired { retention } => {
                counts.expired += jobs;
                let promised = i64::try_from(retention.as_millis()).unwrap_or(i64::MAX);
                let (waited, job) = waited_least;
                if waited < promised {
                    let at = at.0;
                    let what = format!(
                        "it was purged {waited} ms after its end, and jobs were to be kept for \
                         {promised} ms (one of {jobs} that were purged until {at} ms)"
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

    /// A job is there: what is missing before it must have been purged.
    pub(super) fn meet(&mut self, seq: Seq, report: &mut IntegrityReport) {
        report.ensure(seq > self.met, IntegrityRule::S7, Some(seq), || {
            format!("it comes after job number {}", self.met.0)
        });
        self.pass(seq, report);
        report.ensure(!self.contains(seq), IntegrityRule::S1, Some(seq), || {
            "it is there, and among those that were purged".to_owned()
        });
        self.met = self.met.max(seq);
    }

    /// All that are there were met.
    pub(super) fn finish(&mut self, last: Seq, report: &mut IntegrityReport) {
        self.pass(Seq(last.0.saturating_add(1)), report);
        report.ensure(self.met <= last, IntegrityRule::S7, Some(self.met), || {
            format!("its number is {}, and numbering stands at {}", self.met.0, last.0)
        });
        if let Some((_, &end)) = self.ranges.last_key_value() {
            report.ensure(end <= last, IntegrityRule::S7, Some(end), || {
                format!("it was purged as number {}, and numbering stands at {}", end.0, last.0)
            });
        }
        let (jobs, explained) = (self.jobs, report.counts.purged());
        report.ensure(jobs == explained, IntegrityRule::S1, None, || {
            format!("{jobs} jobs are gone, and it is written down why for {explained}")
        });
    }

    /// Whether all between the last job that was met and this one were purged.
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
                    "it was acknowledged, and is neither kept nor purged".to_owned()
                }
                end => format!(
                    "it was acknowledged, and is neither kept nor purged; nor are the {} after it",
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

/// A set of numbers, one bit for each.
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
