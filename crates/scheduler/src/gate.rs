//! The gate: holds messages and answers back until the commit they depend on is durable, and
//! numbers the batches.
//!
//! The shell passes every [`DispatchEffect::Send`] and [`DispatchEffect::Reply`] to the gate and
//! performs what the gate releases, at once or after the receipt. A worker's batches are numbered
//! here and not earlier, because a renewal may overtake messages that still wait. Messages that are
//! left from an older session are dropped.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::dispatch::{Answer, DispatchEffect};
use crate::id::{CommitNo, MessageNo, RequestNo, SessionNo, WorkerId};
use crate::message::ToWorker;

/// A batch or an answer that may be sent now.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Outgoing {
    /// To a worker.
    Worker {
        /// The commit that it waited for, if it did.
        after: Option<CommitNo>,
        /// The worker.
        worker: WorkerId,
        /// The worker's session.
        session: SessionNo,
        /// The batch's number in that session.
        number: MessageNo,
        /// The messages, in order.
        messages: Vec<ToWorker>,
    },
    /// The answer to a request.
    Request {
        /// The commit that it waited for, if it did.
        after: Option<CommitNo>,
        /// The request.
        to: RequestNo,
        /// The answer.
        answer: Answer,
    },
}

/// The messages and answers that wait for their commits.
#[derive(Default)]
pub struct Gate {
    receipted: CommitNo,
    /// In the order of the decisions, which is the order of the commits that they wait for.
    held: VecDeque<(CommitNo, Held)>,
    /// The newest session of each worker, and the last number used in it.
    sessions: BTreeMap<WorkerId, (SessionNo, MessageNo)>,
}

enum Held {
    Worker(WorkerId, SessionNo, Vec<ToWorker>),
    Request(RequestNo, Answer),
}

impl Held {
    fn is_renewal(&self) -> bool {
        match self {
            Self::Worker(_, _, messages) => {
                messages.iter().all(|message| matches!(message, ToWorker::Renewed(_)))
            }
            Self::Request(..) => false,
        }
    }
}

impl Gate {
    /// Takes an effect. Messages and answers that may be sent at once are appended to `told`, the
    /// others are held; any other effect is handed back.
    pub fn pass(
        &mut self,
        effect: DispatchEffect,
        told: &mut Vec<Outgoing>,
    ) -> Option<DispatchEffect> {
        let (after, held) = match effect {
            DispatchEffect::Send { after, worker, session, messages } => {
                self.meet(worker, session);
                (after, Held::Worker(worker, session, messages))
            }
            DispatchEffect::Reply { after, to, answer } => (after, Held::Request(to, answer)),
            other @ (DispatchEffect::Commit { .. }
            | DispatchEffect::Fetch { .. }
            | DispatchEffect::HangUp { .. }) => {
                return Some(other);
            }
        };
        // A message that need not wait itself still does not overtake those that wait: `dispatch`
        // may have received a receipt before the gate has. Only a renewal goes ahead.
        let last_held = self.held.back().map(|(after, _)| *after);
        match after.max(last_held) {
            Some(after) if after > self.receipted && !held.is_renewal() => {
                self.held.push_back((after, held));
            }
            _ => self.release(None, held, told),
        }
        None
    }

    /// Everything up to this commit is durable: messages and answers that waited for it may be
    /// sent.
    pub fn receipt(&mut self, number: CommitNo, told: &mut Vec<Outgoing>) {
        self.receipted = self.receipted.max(number);
        let receipted = self.receipted;
        while let Some((after, held)) = self.held.pop_front_if(|(after, _)| *after <= receipted) {
            self.release(Some(after), held, told);
        }
    }

    /// The session has ended, and `dispatch` has been notified. Messages that still wait for it are
    /// dropped when their turn comes.
    pub fn close(&mut self, worker: WorkerId, session: SessionNo) {
        if self.sessions.get(&worker).is_some_and(|&(current, _)| current == session) {
            self.sessions.remove(&worker);
        }
    }

    /// How many messages and answers wait.
    #[must_use]
    pub fn held_count(&self) -> usize {
        self.held.len()
    }

    fn meet(&mut self, worker: WorkerId, session: SessionNo) {
        let known = self.sessions.entry(worker).or_insert((session, MessageNo(0)));
        if known.0 < session {
            *known = (session, MessageNo(0));
        }
    }

    fn release(&mut self, after: Option<CommitNo>, held: Held, told: &mut Vec<Outgoing>) {
        match held {
            Held::Request(to, answer) => told.push(Outgoing::Request { after, to, answer }),
            Held::Worker(worker, session, messages) => {
                if let Some((current, last)) = self.sessions.get_mut(&worker)
                    && *current == session
                {
                    *last = last.next();
                    let number = *last;
                    told.push(Outgoing::Worker { after, worker, session, number, messages });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(after: Option<u64>, session: u64, message: ToWorker) -> DispatchEffect {
        DispatchEffect::Send {
            after: after.map(CommitNo),
            worker: WorkerId::apart(1),
            session: SessionNo(session),
            messages: Vec::from([message]),
        }
    }

    fn told(after: Option<u64>, session: u64, number: u64, message: ToWorker) -> Outgoing {
        Outgoing::Worker {
            after: after.map(CommitNo),
            worker: WorkerId::apart(1),
            session: SessionNo(session),
            number: MessageNo(number),
            messages: Vec::from([message]),
        }
    }

    #[test]
    fn only_a_renewal_is_sent_before_the_commit_is_durable() {
        let mut gate = Gate::default();
        let mut out = Vec::new();
        assert_eq!(gate.pass(send(Some(1), 1, ToWorker::DrainNow), &mut out), None);
        gate.pass(send(None, 1, ToWorker::Renewed(MessageNo(1))), &mut out);
        assert_eq!(out, [told(None, 1, 1, ToWorker::Renewed(MessageNo(1)))]);
        out.clear();
        gate.receipt(CommitNo(1), &mut out);
        assert_eq!(out, [told(Some(1), 1, 2, ToWorker::DrainNow)]);
        assert_eq!(gate.held_count(), 0);
    }

    #[test]
    fn a_message_does_not_overtake_one_that_waits() {
        let mut gate = Gate::default();
        let mut out = Vec::new();
        gate.pass(send(Some(1), 1, ToWorker::DrainNow), &mut out);
        gate.pass(send(None, 1, ToWorker::Gone), &mut out);
        assert_eq!(out, []);
        gate.receipt(CommitNo(1), &mut out);
        assert_eq!(
            out,
            [told(Some(1), 1, 1, ToWorker::DrainNow), told(Some(1), 1, 2, ToWorker::Gone)]
        );
    }

    #[test]
    fn messages_of_an_older_session_are_dropped() {
        let mut gate = Gate::default();
        let mut out = Vec::new();
        gate.pass(send(Some(1), 1, ToWorker::DrainNow), &mut out);
        gate.pass(send(None, 2, ToWorker::Renewed(MessageNo(1))), &mut out);
        gate.receipt(CommitNo(9), &mut out);
        assert_eq!(out, [told(None, 2, 1, ToWorker::Renewed(MessageNo(1)))]);
    }

    #[test]
    fn a_closed_session_gets_no_more_messages() {
        let mut gate = Gate::default();
        let mut out = Vec::new();
        gate.pass(send(Some(1), 1, ToWorker::DrainNow), &mut out);
        gate.close(WorkerId::apart(1), SessionNo(1));
        gate.receipt(CommitNo(1), &mut out);
        assert_eq!(out, []);
    }

    #[test]
    fn a_commit_passes_the_gate_untouched() {
        let commit = DispatchEffect::Commit { number: CommitNo(1), mutations: Vec::new() };
        assert_eq!(Gate::default().pass(commit.clone(), &mut Vec::new()), Some(commit));
    }
}
