//! Heartbeats, reports and the goodbye, and when they are answered.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;

use filch_api::session::{Up, WireHold, WireReport};
use filch_api::work::{Answered, Heartbeat, HeartbeatAnswer, TooLate};
use tokio::sync::oneshot;

use super::{Answer, Ask, HttpSession, OpenGoodbye, Renewal, Reply, Reporting, answer};

impl HttpSession {
    pub(super) fn beat(&mut self, beat: Heartbeat, reply: oneshot::Sender<Answer>) {
        let mut messages = self.started(&beat.holds);
        messages.extend(beat.stopping.iter().map(|&hold| Up::Stopping(hold)));
        if messages.is_empty() {
            messages.push(Up::Heartbeat);
        }
        let (keep, cancel) = self.divide(&beat.holds);
        let (drain, lease_ms) = (self.is_draining, self.lease.as_millis() as u64);
        let beaten = Reply::Beaten(HeartbeatAnswer { keep, cancel, drain, lease_ms });
        self.answer_renewed(messages, Ask::Beat(beat), beaten, reply);
    }

    /// Answers once the scheduler has acknowledged it: the worker's lease starts with the request.
    pub(super) fn answer_renewed(
        &mut self,
        messages: Vec<Up>,
        ask: Ask,
        said: Reply,
        reply: oneshot::Sender<Answer>,
    ) {
        self.say(messages);
        self.renewals.push(Renewal { ask, batch: self.said, said, reply });
    }

    pub(super) fn renewed(&mut self, number: u64) {
        for renewal in self.renewals.extract_if(.., |renewal| renewal.batch <= number) {
            answer([renewal.reply], &Ok(renewal.said));
        }
    }

    pub(super) fn report(&mut self, reports: Vec<WireReport>, reply: oneshot::Sender<Answer>) {
        let new = self.note_reports(reports, reply);
        // A repeated report is not sent again, but it shows that the worker lives.
        self.say(if new.is_empty() { vec![Up::Heartbeat] } else { new });
    }

    /// Records reports; returns the new ones, to be sent.
    pub(super) fn note_reports(
        &mut self,
        reports: Vec<WireReport>,
        reply: oneshot::Sender<Answer>,
    ) -> Vec<Up> {
        let mut new = Vec::new();
        let mut left = BTreeSet::new();
        for report in reports {
            left.insert(report.job);
            if let Entry::Vacant(entry) = self.reports.entry(report.job) {
                new.push(Up::Report(entry.insert(report).clone()));
            }
        }
        self.reporting.push(Reporting { left, answered: Answered::default(), reply });
        new
    }

    /// The scheduler has answered a report; `late` if it was stale.
    pub(super) fn answered(&mut self, hold: WireHold, late: Option<TooLate>) {
        self.reports.remove(&hold);
        self.jobs.remove(&hold);
        for mut open in std::mem::take(&mut self.reporting) {
            if open.left.remove(&hold) {
                match late {
                    None => open.answered.accepted.push(hold),
                    Some(late) => open.answered.refused.push(late),
                }
            }
            if open.left.is_empty() {
                answer([open.reply], &Ok(Reply::Answered(open.answered)));
            } else {
                self.reporting.push(open);
            }
        }
    }

    pub(super) fn say_goodbye(&mut self, reply: oneshot::Sender<Answer>) {
        if let Some(goodbye) = &mut self.goodbye {
            goodbye.replies.push(reply);
            return;
        }
        self.say(vec![Up::Goodbye]);
        let settle = self.settle();
        self.goodbye = Some(OpenGoodbye { settle, replies: vec![reply] });
    }
}
