//! Hostile workers: beside their true reports they send others under the same fence.
//!
//! When a report was accepted, its own worker, if it is hostile, reports another outcome under the
//! same fence, and every other hostile worker repeats the report as if it had held the job. The
//! server must refuse both.

use std::collections::BTreeMap;

use filch_scheduler::id::{Hold, MessageNo};
use filch_scheduler::message::{Again, Ending, FromWorker, Report, ToWorker, WorkerBatch};
use filch_scheduler::record::ReportKind;
use filch_scheduler::time::Millis;

use crate::plan::Member;

/// How many false reports wait for the next batch of a worker; the rest is left out.
const WAITING_MAX: usize = 2;

/// The false reports that are to be sent.
#[derive(Default)]
pub(super) struct Lies {
    /// For each hostile worker, the reports for its next batch.
    waiting: BTreeMap<usize, Vec<FromWorker>>,
    /// Reports that were sent and not accepted yet. Empty if no worker is hostile.
    sent: BTreeMap<Hold, ReportKind>,
}

impl Lies {
    pub(super) fn new(members: &[Member]) -> Self {
        let hostile = members.iter().enumerate().filter(|(_, member)| member.is_hostile);
        let waiting = hostile.map(|(place, _)| (place, Vec::new())).collect();
        Self { waiting, sent: BTreeMap::new() }
    }

    /// Adds the false reports of this worker to a batch of its own.
    pub(super) fn add_to(&mut self, place: usize, batch: &mut WorkerBatch) {
        if self.waiting.is_empty() {
            return;
        }
        for report in batch.messages.iter().flat_map(FromWorker::reports) {
            self.sent.extend(report.ending.kind().map(|kind| (report.hold, kind)));
        }
        // A batch without a number has no messages, and a goodbye is the last message.
        if batch.number > MessageNo(0)
            && !batch.messages.contains(&FromWorker::Goodbye)
            && let Some(waiting) = self.waiting.get_mut(&place)
        {
            batch.messages.append(waiting);
        }
    }

    /// Messages reached the worker of this place.
    pub(super) fn overhear(&mut self, place: usize, messages: &[ToWorker]) {
        if self.waiting.is_empty() {
            return;
        }
        for message in messages {
            let ToWorker::Accepted(holds) = message else {
                continue;
            };
            for &hold in holds {
                if let Some(kind) = self.sent.remove(&hold) {
                    self.invent(place, hold, kind);
                }
            }
        }
    }

    fn invent(&mut self, owner: usize, hold: Hold, kind: ReportKind) {
        for (&liar, waiting) in &mut self.waiting {
            if waiting.len() < WAITING_MAX {
                let told = if liar == owner { other(kind) } else { ending(kind) };
                waiting.push(FromWorker::Report(Report::plain(hold, told)));
            }
        }
    }
}

fn other(kind: ReportKind) -> Ending {
    ending(match kind {
        ReportKind::Finished => ReportKind::Failed,
        ReportKind::Failed | ReportKind::Snoozed => ReportKind::Finished,
    })
}

fn ending(kind: ReportKind) -> Ending {
    match kind {
        ReportKind::Finished => Ending::Finished,
        ReportKind::Failed => Ending::Failed { again: Again::ByPolicy, error: "a lie".into() },
        ReportKind::Snoozed => Ending::Snoozed(Millis(1)),
    }
}
