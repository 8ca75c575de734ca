//! S14: after a cancel is acknowledged the job does not start, and its holder is told within one
//! heartbeat.

use std::collections::{BTreeMap, BTreeSet};

use filch_scheduler::dispatch::{Answer, Request};
use filch_scheduler::id::{CommitNo, JobId, RequestNo, Seq, SessionNo, WorkerId};
use filch_scheduler::message::{FromWorker, ToWorker};
use filch_scheduler::record::JobWrite;
use filch_scheduler::state::JobState;
use filch_scheduler::time::Monotonic;

use super::facts::Facts;
use super::{Holds, Rule, ensure};
use crate::log::Observed;

/// The state of this rule.
#[derive(Default)]
pub(super) struct Cancels {
    asked: BTreeMap<RequestNo, JobId>,
    acknowledged: BTreeSet<Seq>,
    /// Cancelled jobs whose holder has a session and was not told yet.
    untold: BTreeMap<Seq, Untold>,
    /// The last session in which a worker was told its jobs. Before that, nothing else is sent.
    greeted: BTreeMap<WorkerId, SessionNo>,
}

struct Untold {
    holder: WorkerId,
    session: SessionNo,
    /// The commit of the cancel, and the deadline once it is durable.
    stored: CommitNo,
    until: Option<Monotonic>,
}

/// Heartbeats per lease.
const HEARTBEATS: u32 = 10;

impl Cancels {
    pub(super) fn time_passes(&self, at: Monotonic) -> Holds {
        let late =
            self.untold.iter().find(|(_, untold)| untold.until.is_some_and(|until| until < at));
        ensure(late.is_none(), Rule::S14, || {
            let seq = late.map_or(0, |(seq, _)| seq.0);
            format!("the holder of #{seq} was not told within a heartbeat that it is cancelled")
        })
    }

    /// A cancel is stored; the holder must be told as soon as that is durable.
    pub(super) fn written(&mut self, stored: CommitNo, write: &JobWrite, facts: &Facts) {
        self.untold.remove(&write.job);
        let holder = write.holder.filter(|_| write.state == JobState::Cancelled);
        if let Some(holder) = holder
            && let Some(&session) = facts.sessions.get(&holder)
            && self.greeted.get(&holder) == Some(&session)
        {
            self.untold.insert(write.job, Untold { holder, session, stored, until: None });
        }
    }

    pub(super) fn observe(&mut self, at: Monotonic, seen: &Observed<'_>, facts: &Facts) -> Holds {
        match *seen {
            Observed::Asked { request, what: Request::Cancel(id) } => {
                self.asked.insert(request, *id);
            }
            Observed::Answered { request, answer } => {
                let Some(id) = self.asked.remove(&request) else {
                    return Ok(());
                };
                if *answer == Answer::Done
                    && let Some(job) = facts.by_id(id)
                {
                    ensure(job.state == JobState::Cancelled, Rule::S14, || {
                        format!("the cancel of {id} is acknowledged, but it is {}", job.state)
                    })?;
                    self.acknowledged.insert(job.seq);
                }
            }
            Observed::Started { assignment, place, .. } => {
                let seq = assignment.hold.job;
                ensure(!self.acknowledged.contains(&seq), Rule::S14, || {
                    format!("{} starts on node {} after its cancel", assignment.id, place + 1)
                })?;
            }
            Observed::Receipted(number) => {
                let heartbeat = at.plus(facts.lease / HEARTBEATS);
                for untold in self.untold.values_mut().filter(|untold| untold.stored <= number) {
                    untold.until = untold.until.or(Some(heartbeat));
                }
            }
            Observed::Arrived { worker, messages: [FromWorker::Hello(_), ..], .. } => {
                self.untold.retain(|_, untold| untold.holder != worker);
            }
            Observed::Told { worker, session, messages } => self.told(worker, session, messages),
            Observed::Closed { worker, session } => {
                self.untold
                    .retain(|_, untold| (untold.holder, untold.session) != (worker, session));
            }
            Observed::ServerCrashed => {
                self.untold.clear();
                self.asked.clear();
            }
            _ => {}
        }
        Ok(())
    }

    fn told(&mut self, worker: WorkerId, session: SessionNo, messages: &[ToWorker]) {
        for message in messages {
            match message {
                ToWorker::Cancel(hold) => {
                    self.untold.retain(|&job, untold| job != hold.job || untold.holder != worker);
                }
                ToWorker::Reconcile { .. } => {
                    self.greeted.insert(worker, session);
                }
                ToWorker::Gone => self.untold.retain(|_, untold| untold.holder != worker),
                _ => {}
            }
        }
    }
}
