//! Claims: jobs are requested while a claim waits, and returned in its response.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::time::{Duration, Instant};

use filch_api::limits;
use filch_api::problem::Problem;
use filch_api::session::{Up, WireAssignment, WireEnding, WireHelloKind, WireHold, WireReport};
use filch_api::work::{Claim, Claimed};
use tokio::sync::oneshot;

use super::{Answer, Ask, Call, Holding, HttpSession, OpenClaim, Reply, Stage, answer};

/// The longest that a claim waits.
const WAIT_MAX: Duration = Duration::from_secs(60);

impl HttpSession {
    pub(super) fn claim(&mut self, now: Instant, claim: Claim, reply: oneshot::Sender<Answer>) {
        if let Some((number, jobs)) = &self.last {
            match claim.number.cmp(number) {
                Ordering::Less => {
                    return answer([reply], &Err(old_number(claim.number, *number)));
                }
                Ordering::Equal => {
                    let claimed = self.claimed(jobs.clone(), &claim.holds);
                    let ask = Ask::Claim(claim);
                    return self.answer_renewed(vec![Up::Heartbeat], ask, claimed, reply);
                }
                Ordering::Greater => {}
            }
        }
        if let Some(open) = &mut self.claim {
            if claim.number == open.claim.number {
                open.replies.push(reply);
                return;
            }
            if claim.number < open.claim.number {
                let newest = open.claim.number;
                return answer([reply], &Err(old_number(claim.number, newest)));
            }
            let problem = old_number(open.claim.number, claim.number);
            answer(self.claim.take().into_iter().flat_map(|open| open.replies), &Err(problem));
        }
        // Slots and queues are sent when a session opens.
        let is_other = claim.slots != self.slots || claim.queues != self.queues;
        if claim.slots > 0 && is_other {
            (self.slots, self.queues) = (claim.slots, claim.queues.clone());
            self.waiting.push(Call { ask: Ask::Claim(claim), reply });
            self.greet(WireHelloKind::Resume);
            return;
        }
        self.reconcile(&claim);
        let wait = claim.wait.map_or(Duration::ZERO, |wait| wait.0.duration());
        let deadline = now + wait.min(WAIT_MAX);
        let has_some = self.jobs.values().any(|job| !job.is_given());
        let free = claim.slots.saturating_sub(self.given_count());
        let mut messages = self.started(&claim.holds);
        let wants = free > 0 && !self.is_draining && !has_some;
        if wants {
            messages.push(Up::Want(self.given_count() + free.min(limits::CLAIM_JOBS)));
        } else {
            messages.push(Up::Heartbeat);
        }
        self.say(messages);
        self.claim = Some(OpenClaim { claim, deadline, closing: None, replies: vec![reply] });
        if !wants || wait.is_zero() {
            self.close_claim();
        }
    }

    /// Updates the jobs by what the worker lists. See the top of `http_session`.
    fn reconcile(&mut self, claim: &Claim) {
        let holds: BTreeSet<WireHold> = claim.holds.iter().copied().collect();
        for hold in &holds {
            if let Some(job) = self.jobs.get_mut(hold) {
                job.stage = Stage::Given;
            }
        }
        let is_missing = |(hold, job): &(&WireHold, &Holding)| {
            job.is_given() && !holds.contains(hold) && !self.reports.contains_key(hold)
        };
        let missing: Vec<WireHold> =
            self.jobs.iter().filter(is_missing).map(|(&it, _)| it).collect();
        let given = self.last.as_ref().map_or(&[][..], |(_, jobs)| jobs.as_slice()).to_vec();
        for hold in missing {
            let again = given.iter().find(|assignment| assignment.job == hold);
            let job = self.jobs.get_mut(&hold).expect("it is missing from what is here");
            match again.filter(|_| !job.is_cancelled && claim.slots > 0) {
                Some(assignment) => {
                    self.arrivals += 1;
                    job.stage = Stage::Waiting(self.arrivals, Box::new(assignment.clone()));
                }
                None => self.hand_back(hold),
            }
        }
    }

    /// Reports that the worker does not have a job.
    pub(super) fn hand_back(&mut self, hold: WireHold) {
        self.jobs.remove(&hold);
        if let Entry::Vacant(entry) = self.reports.entry(hold) {
            let message =
                Up::Report(entry.insert(WireReport::plain(hold, WireEnding::Dropped)).clone());
            self.say(vec![message]);
        }
    }

    /// Those of these jobs that the scheduler does not know to be running.
    pub(super) fn started(&mut self, holds: &[WireHold]) -> Vec<Up> {
        let mut messages = Vec::new();
        for hold in holds {
            if let Some(job) = self.jobs.get_mut(hold)
                && job.is_given()
                && !job.is_cancelled
                && !std::mem::replace(&mut job.is_started, true)
            {
                messages.push(Up::Started(*hold));
            }
        }
        messages
    }

    fn given_count(&self) -> u32 {
        let given = self.jobs.values().filter(|job| job.is_given());
        u32::try_from(given.count()).unwrap_or(u32::MAX)
    }

    /// The claim waits only for decisions that were made already.
    pub(super) fn close_claim(&mut self) {
        self.say(vec![Up::Want(0)]);
        let settle = self.settle();
        if let Some(open) = &mut self.claim {
            open.closing = Some(settle);
        }
    }

    pub(super) fn finish_claim(&mut self) {
        let open = self.claim.take().expect("a claim that is finished was open");
        let free = open.claim.slots.saturating_sub(self.given_count()).min(limits::CLAIM_JOBS);
        let mut waiting: Vec<(u64, WireHold)> = Vec::new();
        let mut unconfirmed = Vec::new();
        for (&hold, job) in &self.jobs {
            match job.stage {
                Stage::Waiting(arrival, _) => waiting.push((arrival, hold)),
                Stage::Confirming(..) => unconfirmed.push(hold),
                Stage::Given => {}
            }
        }
        waiting.sort_unstable();
        let mut jobs = Vec::new();
        for (_, hold) in waiting {
            let job = self.jobs.get_mut(&hold).expect("it was there just now");
            if jobs.len() < free as usize
                && let Stage::Waiting(_, assignment) =
                    std::mem::replace(&mut job.stage, Stage::Given)
            {
                jobs.push(*assignment);
            } else {
                self.hand_back(hold);
            }
        }
        for hold in unconfirmed {
            self.hand_back(hold);
        }
        self.last = Some((open.claim.number, jobs.clone()));
        let claimed = self.claimed(jobs, &open.claim.holds);
        answer(open.replies, &Ok(claimed));
    }

    fn claimed(&self, jobs: Vec<WireAssignment>, holds: &[WireHold]) -> Reply {
        let (_, cancel) = self.divide(holds);
        let (drain, lease_ms) = (self.is_draining, self.lease.as_millis() as u64);
        Reply::Claimed(Claimed { jobs, cancel, drain, lease_ms })
    }

    /// Which of the listed jobs the worker keeps, and which it must stop.
    pub(super) fn divide(&self, holds: &[WireHold]) -> (Vec<WireHold>, Vec<WireHold>) {
        let is_kept = |hold: &WireHold| self.jobs.get(hold).is_some_and(|job| !job.is_cancelled);
        holds.iter().partition(|hold| is_kept(hold))
    }
}

fn old_number(number: u64, newest: u64) -> Problem {
    Problem::new(409, "old-number", format!("claim {number} is older than claim {newest}"))
        .help("number the claims of a worker in ascending order, and wait for each response")
}
