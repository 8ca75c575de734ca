//! The gate: holds messages and answers back until the commit they depend on is durable.
//!
//! The engine passes every effect of the scheduler to the gate and sends what the gate releases, at
//! once or after the receipt. Batches are numbered when they are sent (`link`), not here, because a
//! renewal may overtake messages that still wait. Messages for a session that has ended meanwhile
//! are dropped by the engine, which knows the sessions.

use std::collections::VecDeque;

use filch_scheduler::dispatch::{Answer, DispatchEffect};
use filch_scheduler::id::{CommitNo, RequestNo, SessionNo, WorkerId};
use filch_scheduler::message::ToWorker;

/// Messages or an answer that may be sent now.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Outgoing {
    /// To a worker.
    Worker {
        /// The commit that they waited for, if they did.
        after: Option<CommitNo>,
        /// The worker.
        worker: WorkerId,
        /// The worker's session.
        session: SessionNo,
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

    fn release(self, after: Option<CommitNo>) -> Outgoing {
        match self {
            Self::Request(to, answer) => Outgoing::Request { after, to, answer },
            Self::Worker(worker, session, messages) => {
                Outgoing::Worker { after, worker, session, messages }
            }
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
            _ => told.push(held.release(None)),
        }
        None
    }

    /// Everything up to this commit is durable: messages and answers that waited for it may be
    /// sent.
    pub fn receipt(&mut self, number: CommitNo, told: &mut Vec<Outgoing>) {
        self.receipted = self.receipted.max(number);
        let receipted = self.receipted;
        while let Some((after, held)) = self.held.pop_front_if(|(after, _)| *after <= receipted) {
            told.push(held.release(Some(after)));
        }
    }
}

#[cfg(test)]
mod tests {
    use filch_scheduler::id::MessageNo;

    use super::*;

    const RENEWED: ToWorker = ToWorker::Renewed(MessageNo(1));

    fn send(after: Option<u64>, message: ToWorker) -> DispatchEffect {
        DispatchEffect::Send {
            after: after.map(CommitNo),
            worker: WorkerId::apart(1),
            session: SessionNo(1),
            messages: vec![message],
        }
    }

    fn told(after: Option<u64>, message: ToWorker) -> Outgoing {
        Outgoing::Worker {
            after: after.map(CommitNo),
            worker: WorkerId::apart(1),
            session: SessionNo(1),
            messages: vec![message],
        }
    }

    #[test]
    fn only_a_renewal_is_sent_before_the_commit_is_durable() {
        let mut gate = Gate::default();
        let mut out = Vec::new();
        assert_eq!(gate.pass(send(Some(1), ToWorker::DrainNow), &mut out), None);
        gate.pass(send(None, RENEWED), &mut out);
        assert_eq!(out, [told(None, RENEWED)]);
        out.clear();
        gate.receipt(CommitNo(1), &mut out);
        assert_eq!(out, [told(Some(1), ToWorker::DrainNow)]);
        assert!(gate.held.is_empty());
    }

    #[test]
    fn a_message_does_not_overtake_one_that_waits() {
        let mut gate = Gate::default();
        let mut out = Vec::new();
        gate.pass(send(Some(1), ToWorker::DrainNow), &mut out);
        gate.pass(send(None, ToWorker::Gone), &mut out);
        assert_eq!(out, []);
        gate.receipt(CommitNo(1), &mut out);
        assert_eq!(out, [told(Some(1), ToWorker::DrainNow), told(Some(1), ToWorker::Gone)]);
    }

    #[test]
    fn a_commit_passes_the_gate_untouched() {
        let commit = DispatchEffect::Commit { number: CommitNo(1), mutations: Vec::new() };
        assert_eq!(Gate::default().pass(commit.clone(), &mut Vec::new()), Some(commit));
    }
}
