//! A worker behind an ideal network, whose jobs take no time.

use std::collections::VecDeque;

use filch_scheduler::dispatch::DispatchEvent;
use filch_scheduler::id::{Hold, MessageNo, QuestionNo, SessionNo, WorkerId};
use filch_scheduler::message::{Ending, FromWorker, Hello, HelloKind, Report, Serves, ToWorker};

pub(crate) struct Worker {
    id: WorkerId,
    last_message: MessageNo,
    holds: VecDeque<Hold>,
    accepted: usize,
    question: Option<QuestionNo>,
}

impl Worker {
    /// Each number is a different worker.
    pub(crate) const fn new(number: u64) -> Self {
        Self {
            // An odd factor, so that no two numbers give the same id. Ids of workers are random and
            // unordered.
            id: WorkerId::apart(number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            last_message: MessageNo(0),
            holds: VecDeque::new(),
            accepted: 0,
            question: None,
        }
    }

    pub(crate) const fn id(&self) -> WorkerId {
        self.id
    }

    /// The number of jobs it owns.
    pub(crate) fn held(&self) -> usize {
        self.holds.len()
    }

    /// How many of its reports were accepted, including jobs given to thieves.
    pub(crate) const fn accepted(&self) -> usize {
        self.accepted
    }

    pub(crate) const fn say(&mut self, messages: Vec<FromWorker>) -> DispatchEvent {
        self.last_message = self.last_message.next();
        DispatchEvent::Worker {
            worker: self.id,
            session: SessionNo(1),
            number: self.last_message,
            messages,
        }
    }

    pub(crate) fn say_hello(&mut self, slots: u32, want: u32) -> DispatchEvent {
        self.say(vec![FromWorker::Hello(Hello {
            kind: HelloKind::New,
            slots,
            want,
            serves: Serves::All,
            reports: Vec::new(),
            started: Vec::new(),
            holds: Vec::new(),
        })])
    }

    /// Reports that this many of its jobs have finished, the oldest first.
    pub(crate) fn finish(&mut self, count: usize) -> Vec<FromWorker> {
        let finished = self.holds.drain(..count);
        let report = |hold| FromWorker::Report(Report::plain(hold, Ending::Finished));
        finished.map(report).collect()
    }

    /// Gives this many of its newest jobs to the thief that asked.
    pub(crate) fn give(&mut self, count: usize) -> FromWorker {
        let kept = self.holds.len() - count;
        FromWorker::Given {
            question: self.question.take().expect("a thief asked"),
            jobs: self.holds.split_off(kept).into(),
        }
    }

    pub(crate) fn receive(&mut self, message: ToWorker) {
        match message {
            ToWorker::Assign(jobs) => self.holds.extend(jobs.iter().map(|job| job.hold)),
            ToWorker::Accepted(holds) => self.accepted += holds.len(),
            ToWorker::AskToGive { question, .. } => self.question = Some(question),
            ToWorker::Renewed(_) | ToWorker::Reconcile { .. } => {}
            ToWorker::StartGranted(_)
            | ToWorker::Cancel(_)
            | ToWorker::DrainNow
            | ToWorker::Refused { .. }
            | ToWorker::Gone => panic!("unexpected message in a bench: {message:?}"),
        }
    }

    /// Receives all messages, as the only worker.
    pub(crate) fn receive_all(&mut self, messages: impl Iterator<Item = (WorkerId, ToWorker)>) {
        for (to, message) in messages {
            assert!(to == self.id, "there is no other worker");
            self.receive(message);
        }
    }
}
