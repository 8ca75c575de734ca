//! Heartbeats, reports and the goodbye, and when they are answered.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use filch_scheduler::id::{Fence, Hold};
use filch_scheduler::message::{FromWorker, Report};

use super::{
    HttpAsk, HttpRefusal, HttpReply, HttpSession, OpenGoodbye, REPEATS_MAX, Renewal, Reporting,
    Ticket,
};

impl HttpSession {
    pub(super) fn heartbeat(&mut self, holds: Vec<Hold>, stopping: Vec<Hold>, ticket: Ticket) {
        let mut messages = self.started(&holds);
        messages.extend(stopping.iter().map(|&hold| FromWorker::Stopping(hold)));
        if messages.is_empty() {
            messages.push(FromWorker::Heartbeat);
        }
        let (keep, cancel) = self.divide(&holds);
        let (drain, lease) = (self.is_draining, self.lease);
        let answer = HttpReply::HeartbeatDone { keep, cancel, drain, lease };
        self.answer_renewed(messages, HttpAsk::Heartbeat { holds, stopping }, answer, ticket);
    }

    /// Answers once the scheduler has acknowledged it: the worker's lease starts with the request.
    pub(super) fn answer_renewed(
        &mut self,
        messages: Vec<FromWorker>,
        ask: HttpAsk,
        reply: HttpReply,
        ticket: Ticket,
    ) {
        self.say(messages);
        self.renewals.push(Renewal { ask, batch: self.said, reply, ticket });
    }

    pub(super) fn renewed(&mut self, number: u64) {
        self.renewed = self.renewed.max(number);
        self.answer_reports();
        let renewed = self.renewals.extract_if(.., |renewal| renewal.batch <= number);
        for Renewal { reply, ticket, .. } in renewed.collect::<Vec<_>>() {
            self.respond(ticket, Ok(reply));
        }
    }

    pub(super) fn report(&mut self, reports: Vec<Report>, ticket: Ticket) {
        let new = self.note_reports(reports, ticket);
        // A repeated report is not sent again, but it shows that the worker lives.
        self.say(if new.is_empty() { vec![FromWorker::Heartbeat] } else { new });
    }

    /// Records reports, which the next batch has; returns the new ones, to be sent.
    pub(super) fn note_reports(&mut self, reports: Vec<Report>, ticket: Ticket) -> Vec<FromWorker> {
        let mut new = Vec::new();
        let mut left = BTreeMap::new();
        for report in reports {
            let hold = report.hold;
            let is_same = match self.reports.entry(hold) {
                Entry::Vacant(entry) => {
                    new.push(FromWorker::Report(entry.insert(report).clone()));
                    true
                }
                Entry::Occupied(entry) => entry.get().ending == report.ending,
            };
            left.insert(hold, is_same);
        }
        let (accepted, refused) = (Vec::new(), Vec::new());
        let batch = self.said + 1;
        self.reporting.push(Reporting { left, accepted, refused, batch, ticket });
        new
    }

    /// The scheduler has answered a report; with the current fence if it was stale.
    pub(super) fn answered(&mut self, hold: Hold, late: Option<Option<Fence>>) {
        let sent = self.reports.remove(&hold);
        self.jobs.remove(&hold);
        // Some endings keep the fence of the job.
        let keeps_fence = sent.is_some_and(|report| report.ending.kind().is_some());
        // The worker may have sent any number.
        let next = Fence(hold.fence.0.saturating_add(1));
        let after = if keeps_fence { hold.fence } else { next };
        for open in &mut self.reporting {
            match (open.left.remove(&hold), late) {
                (None, _) => {}
                (Some(_), Some(current)) => open.refused.push((hold, current)),
                (Some(true), None) => open.accepted.push(hold),
                // Another outcome was accepted.
                (Some(false), None) => open.refused.push((hold, Some(after))),
            }
        }
        self.answer_reports();
    }

    /// Responds to reports that the scheduler has answered. A response renews the worker's lease,
    /// so it waits for the renewal, too.
    fn answer_reports(&mut self) {
        let renewed = self.renewed;
        let is_done = |open: &mut Reporting| open.left.is_empty() && open.batch <= renewed;
        for open in self.reporting.extract_if(.., is_done).collect::<Vec<_>>() {
            let Reporting { accepted, refused, ticket, .. } = open;
            self.respond(ticket, Ok(HttpReply::Answered { accepted, refused }));
        }
    }

    pub(super) fn say_goodbye(&mut self, ticket: Ticket) {
        if let Some(goodbye) = &mut self.goodbye {
            goodbye.tickets.push(ticket);
            if goodbye.tickets.len() > REPEATS_MAX {
                let oldest = goodbye.tickets.remove(0);
                self.respond(oldest, Err(HttpRefusal::Busy));
            }
            return;
        }
        self.say(vec![FromWorker::Goodbye]);
        let settle = self.settle();
        self.goodbye = Some(OpenGoodbye { settle, tickets: vec![ticket] });
    }
}
