//! Claims: jobs are requested while a claim waits, and returned in its response.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::time::Duration;

use filch_scheduler::id::Hold;
use filch_scheduler::message::{Ending, FromWorker, HelloKind, Report};
use filch_scheduler::time::Monotonic;

use super::{
    Call, GivenJob, Holding, HttpAsk, HttpClaim, HttpRefusal, HttpReply, HttpSession, OpenClaim,
    REPEATS_MAX, Renewal, Stage, Ticket,
};
use crate::planted::{EngineBug, planted};

/// The longest that a claim waits.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// How many jobs one response has at most.
const CLAIM_JOBS: u32 = 64;

impl HttpSession {
    pub(super) fn claim(&mut self, now: Monotonic, claim: HttpClaim, ticket: Ticket) {
        if let Some((number, jobs)) = &self.last {
            match claim.number.cmp(number) {
                Ordering::Less => {
                    return self.respond(ticket, Err(old_number(claim.number, *number)));
                }
                Ordering::Equal => {
                    let claimed = self.claimed(jobs.clone(), &claim.holds);
                    let ask = HttpAsk::Claim(claim);
                    return self.answer_renewed(vec![FromWorker::Heartbeat], ask, claimed, ticket);
                }
                Ordering::Greater => {}
            }
        }
        if let Some(open) = &mut self.claim {
            if claim.number == open.claim.number {
                open.tickets.push(ticket);
                if open.tickets.len() > REPEATS_MAX {
                    let oldest = open.tickets.remove(0);
                    self.respond(oldest, Err(HttpRefusal::Busy));
                }
                self.say(vec![FromWorker::Heartbeat]);
                return;
            }
            if claim.number < open.claim.number {
                let newest = open.claim.number;
                return self.respond(ticket, Err(old_number(claim.number, newest)));
            }
            let refusal = old_number(open.claim.number, claim.number);
            let tickets = self.claim.take().into_iter().flat_map(|open| open.tickets);
            self.respond_all(tickets, &Err(refusal));
        }
        // Slots and queues are sent when a session opens.
        let is_other = claim.slots != self.slots || claim.serves != self.serves;
        let is_first_list = !std::mem::replace(&mut self.has_listed, true);
        if is_first_list {
            self.list(&claim.holds);
        }
        if is_first_list || (claim.slots > 0 && is_other) {
            (self.slots, self.serves) = (claim.slots, claim.serves.clone());
            self.waiting.push(Call { ask: HttpAsk::Claim(claim), ticket });
            self.greet(HelloKind::Resume);
            return;
        }
        self.reconcile(&claim);
        let deadline = now.plus(claim.wait.min(WAIT_MAX));
        let has_some = self.jobs.values().any(|job| !job.is_given());
        let free = claim.slots.saturating_sub(self.given_count());
        let mut messages = self.started(&claim.holds);
        let wants = free > 0 && !self.is_draining && !has_some;
        if wants {
            messages.push(FromWorker::Want(self.given_count() + free.min(CLAIM_JOBS)));
        } else {
            messages.push(FromWorker::Heartbeat);
        }
        self.say(messages);
        let is_over = !wants || claim.wait.is_zero();
        let batch = self.said;
        self.claim =
            Some(OpenClaim { claim, deadline, closing: None, batch, tickets: vec![ticket] });
        if is_over {
            self.close_claim();
        }
    }

    /// The first list of all jobs. The scheduler assigns the worker's other jobs again.
    fn list(&mut self, holds: &[Hold]) {
        let listed: BTreeSet<Hold> = holds.iter().copied().collect();
        let reports = &self.reports;
        self.jobs.retain(|hold, _| listed.contains(hold) || reports.contains_key(hold));
        for hold in listed {
            self.jobs.entry(hold).or_insert_with(Holding::given);
        }
    }

    /// Updates the jobs by what the worker lists. See the top of `http_session`.
    fn reconcile(&mut self, claim: &HttpClaim) {
        let holds: BTreeSet<Hold> = claim.holds.iter().copied().collect();
        for hold in &holds {
            if let Some(job) = self.jobs.get_mut(hold) {
                job.stage = Stage::Given;
            }
        }
        if planted(EngineBug::UnlistedJobNotReturned) {
            return;
        }
        let is_missing = |(hold, job): &(&Hold, &Holding)| {
            job.is_given() && !holds.contains(hold) && !self.reports.contains_key(hold)
        };
        let missing: Vec<Hold> = self.jobs.iter().filter(is_missing).map(|(&it, _)| it).collect();
        if missing.is_empty() {
            return;
        }
        let given = self.last.as_ref().map_or(&[][..], |(_, jobs)| jobs.as_slice()).to_vec();
        for hold in missing {
            let again = given.iter().find(|(assignment, _)| assignment.hold == hold);
            let job = self.jobs.get_mut(&hold).expect("it is missing from what is here");
            match again.filter(|_| !job.is_cancelled && claim.slots > 0) {
                Some(given) => {
                    self.arrivals += 1;
                    job.stage = Stage::Waiting(self.arrivals, Box::new(given.clone()));
                }
                None => self.hand_back(hold),
            }
        }
    }

    /// Reports that the worker does not have a job.
    pub(super) fn hand_back(&mut self, hold: Hold) {
        self.jobs.remove(&hold);
        if let Entry::Vacant(entry) = self.reports.entry(hold) {
            let report = entry.insert(Report::plain(hold, Ending::Dropped)).clone();
            self.say(vec![FromWorker::Report(report)]);
        }
    }

    /// Those of these jobs that the scheduler does not know to be running.
    pub(super) fn started(&mut self, holds: &[Hold]) -> Vec<FromWorker> {
        let mut messages = Vec::new();
        for hold in holds {
            if let Some(job) = self.jobs.get_mut(hold)
                && job.is_given()
                && !job.is_cancelled
                && !std::mem::replace(&mut job.is_started, true)
            {
                messages.push(FromWorker::Started(*hold));
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
        self.say(vec![FromWorker::Want(0)]);
        let settle = self.settle();
        if let Some(open) = &mut self.claim {
            (open.closing, open.batch) = (Some(settle), self.said);
        }
    }

    pub(super) fn finish_claim(&mut self) {
        let open = self.claim.take().expect("a claim that is finished was open");
        let free = open.claim.slots.saturating_sub(self.given_count()).min(CLAIM_JOBS);
        let mut waiting: Vec<(u64, Hold)> = Vec::new();
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
                && let Stage::Waiting(_, given) = std::mem::replace(&mut job.stage, Stage::Given)
            {
                jobs.push(*given);
            } else {
                self.hand_back(hold);
            }
        }
        for hold in unconfirmed {
            self.hand_back(hold);
        }
        let is_kept = !planted(EngineBug::ClaimAnswerNotKept);
        self.last = is_kept.then(|| (open.claim.number, jobs.clone()));
        let reply = self.claimed(jobs, &open.claim.holds);
        // A response renews the worker's lease, so it waits for the renewal of all that was said
        // for this claim.
        let batch = open.batch;
        if batch <= self.renewed {
            return self.respond_all(open.tickets, &Ok(reply));
        }
        for ticket in open.tickets {
            let (ask, reply) = (HttpAsk::Claim(open.claim.clone()), reply.clone());
            self.renewals.push(Renewal { ask, batch, reply, ticket });
        }
    }

    fn claimed(&self, jobs: Vec<GivenJob>, holds: &[Hold]) -> HttpReply {
        let (_, cancel) = self.divide(holds);
        HttpReply::Claimed { jobs, cancel, drain: self.is_draining, lease: self.lease }
    }

    /// Which of the listed jobs the worker keeps, and which it must stop.
    pub(super) fn divide(&self, holds: &[Hold]) -> (Vec<Hold>, Vec<Hold>) {
        let is_kept = |hold: &Hold| self.jobs.get(hold).is_some_and(|job| !job.is_cancelled);
        holds.iter().partition(|hold| is_kept(hold))
    }
}

const fn old_number(number: u64, newest: u64) -> HttpRefusal {
    HttpRefusal::OldNumber { number, newest }
}
