//! The engine of a worker: everything between the scheduler's [`Agent`] and its shell.
//!
//! The agent decides what to run and what to report. The engine adds what every shell needs around
//! it: the payloads of jobs that have not started, output that waits to be sent, the guardian's
//! deadline, connections that break while a batch is sent, and what people are told about it. It
//! knows no socket, no process and no clock.
//!
//! `input` has the inputs and actions; `output` bounds the output of running jobs.

mod input;
mod output;

use std::collections::BTreeMap;
use std::sync::Arc;

use filch_scheduler::agent::{Agent, AgentConfig, AgentEffect, AgentEvent, AuditError};
use filch_scheduler::id::{Hold, WorkerId};
use filch_scheduler::message::{Delivery, FromWorker, ToWorker, WorkerBatch};
use filch_scheduler::record::StoredText;
use filch_scheduler::time::{Duration, Monotonic, Now};

pub use self::input::{WorkerAction, WorkerInput, WorkerLog};
use self::output::WaitingOutput;
use crate::planted::{EngineBug, planted};

/// What a job is given if the server sent no payload for it, which would be a bug of the server.
const NO_PAYLOAD: &str = "{}";

/// One worker. `O` is a piece of output as the shell sends it; the engine does not look into it.
pub struct WorkerEngine<O> {
    agent: Agent,
    /// The grace period, unless the server sets another.
    grace: Duration,
    /// Payloads of jobs that have not started.
    payloads: BTreeMap<Hold, StoredText>,
    output: WaitingOutput<O>,
    /// The deadline that the shell was told.
    deadline: Option<Monotonic>,
    is_connected: bool,
    contact: Contact,
    /// The id that was logged last: a fenced worker continues under another.
    incarnation: WorkerId,
    /// The end of the rest that was logged last.
    rests_until: Option<Monotonic>,
}

/// What was logged last about the connection.
enum Contact {
    /// There was none yet.
    Fresh,
    Answered,
    Lost {
        since: Monotonic,
    },
}

/// What the agent inside is given and decides, for recordings.
#[derive(Clone, Copy, Debug)]
pub enum AgentStep<'a> {
    /// It is about to handle this event.
    Event(&'a AgentEvent),
    /// It decided this.
    Effects(&'a [AgentEffect]),
}

impl<O> WorkerEngine<O> {
    /// A worker that has not connected yet; the first action asks for a connection.
    #[must_use]
    pub fn new(config: AgentConfig, now: Now, actions: &mut Vec<WorkerAction<O>>) -> Self {
        let grace = config.grace;
        let mut effects = Vec::new();
        let agent = Agent::new(config, now, &mut effects);
        let mut engine = Self {
            incarnation: agent.id(),
            agent,
            grace,
            payloads: BTreeMap::new(),
            output: WaitingOutput::default(),
            deadline: None,
            is_connected: false,
            contact: Contact::Fresh,
            rests_until: None,
        };
        engine.translate(now, effects, actions);
        engine
    }

    /// Handles one input at one moment. Its actions are appended to `actions`, to be performed in
    /// order. A shell that fails to send a batch performs the remaining actions and then reports
    /// [`WorkerInput::SendFailed`].
    pub fn handle(&mut self, now: Now, input: WorkerInput<O>, actions: &mut Vec<WorkerAction<O>>) {
        self.handle_observed(now, input, actions, &mut |_| {});
    }

    /// The same, and shows every event of the agent and its effects.
    pub fn handle_observed(
        &mut self,
        now: Now,
        input: WorkerInput<O>,
        actions: &mut Vec<WorkerAction<O>>,
        seen: &mut dyn FnMut(AgentStep<'_>),
    ) {
        let mut step = |engine: &mut Self, event: AgentEvent, actions: &mut Vec<_>| {
            seen(AgentStep::Event(&event));
            let mut effects = Vec::new();
            engine.agent.handle(now, event, &mut effects);
            seen(AgentStep::Effects(&effects));
            engine.translate(now, effects, actions);
        };
        match input {
            WorkerInput::Connected => {
                self.is_connected = true;
                step(self, AgentEvent::Connected, actions);
            }
            WorkerInput::Disconnected => {
                self.disconnected(now, actions);
                step(self, AgentEvent::Disconnected, actions);
            }
            // The batch may have been followed by a hang-up: then there is nothing left to end.
            WorkerInput::SendFailed if !self.is_connected => {}
            WorkerInput::SendFailed => {
                actions.push(WorkerAction::Disconnect);
                self.disconnected(now, actions);
                step(self, AgentEvent::Disconnected, actions);
            }
            WorkerInput::Received(delivery) => {
                self.answered(now, actions);
                let Delivery { session, number, mut messages, works, grace } = delivery;
                let is_told = messages.contains(&ToWorker::DrainNow);
                if is_told {
                    let grace = grace.unwrap_or(self.grace);
                    self.log_drain(grace, actions);
                    actions.push(WorkerAction::ToldToDrain { grace });
                }
                // With a grace period from the server, it is the same as a local drain.
                let drain = grace.filter(|_| is_told).map(|grace| AgentEvent::Drain { grace });
                if drain.is_some() {
                    messages.retain(|message| *message != ToWorker::DrainNow);
                }
                let holds: Vec<Hold> = works.iter().map(|(hold, _)| *hold).collect();
                self.payloads.extend(works);
                step(self, AgentEvent::Received { session, number, messages }, actions);
                if let Some(drain) = drain {
                    step(self, drain, actions);
                }
                // Jobs that were here already, or that the agent did not take.
                for hold in holds {
                    if !self.agent.is_unstarted(hold) {
                        self.payloads.remove(&hold);
                    }
                }
            }
            WorkerInput::Ended(report) => {
                // Its last output is sent before the report of its end: later the server ignores
                // it.
                self.send_output(actions);
                step(self, AgentEvent::Ended(report), actions);
            }
            WorkerInput::Progressed { hold, percent } => {
                step(self, AgentEvent::Progressed { hold, percent }, actions);
            }
            WorkerInput::Printed { piece, bytes } => self.output.add(piece, bytes),
            WorkerInput::Drain { grace } => {
                self.log_drain(grace, actions);
                step(self, AgentEvent::Drain { grace }, actions);
            }
            WorkerInput::Idle => step(self, AgentEvent::Idle, actions),
            WorkerInput::Tick => step(self, AgentEvent::Tick, actions),
            WorkerInput::Flush => self.send_output(actions),
        }
    }

    /// When to call again at the latest, by the monotonic clock.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Monotonic> {
        self.agent.next_deadline()
    }

    /// The agent, to look at.
    #[must_use]
    pub const fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Checks the agent, and that the guardian knows its deadline.
    ///
    /// # Errors
    /// Names the violated invariant.
    pub fn audit(&self) -> Result<(), AuditError> {
        self.agent.audit()?;
        if self.deadline != self.agent.fence_at() {
            return Err(AuditError("the guardian has the worker's deadline".to_owned()));
        }
        Ok(())
    }

    fn translate(
        &mut self,
        now: Now,
        effects: Vec<AgentEffect>,
        actions: &mut Vec<WorkerAction<O>>,
    ) {
        // Before anything starts: no command may run without its deadline.
        let deadline = self.agent.fence_at();
        if deadline != self.deadline {
            self.deadline = deadline;
            let late = Duration::from_secs(if planted(EngineBug::DeadlineLate) { 6 } else { 0 });
            actions.push(WorkerAction::Deadline(deadline.map(|at| at.plus(late))));
        }
        for effect in effects {
            match effect {
                AgentEffect::Connect { wait } => actions.push(WorkerAction::Connect { wait }),
                AgentEffect::Disconnect { .. } => {
                    actions.push(WorkerAction::Disconnect);
                    self.disconnected(now, actions);
                }
                AgentEffect::Send { worker, session, number, messages } => {
                    self.forget_payloads(&messages);
                    let batch = WorkerBatch { worker, session, number, messages };
                    actions.push(WorkerAction::Send(batch));
                }
                AgentEffect::Start(assignment) => {
                    let payload = self.payloads.remove(&assignment.hold);
                    let payload = payload.unwrap_or_else(|| Arc::from(NO_PAYLOAD));
                    actions.push(WorkerAction::Start { assignment, payload });
                }
                AgentEffect::Stop { hold, why } => actions.push(WorkerAction::Stop { hold, why }),
                AgentEffect::Answered { hold, verdict } => {
                    actions.push(WorkerAction::Answered { hold, verdict });
                }
                AgentEffect::Leave => actions.push(WorkerAction::Leave),
            }
        }
        let worker = self.agent.id();
        if worker != self.incarnation {
            let before = std::mem::replace(&mut self.incarnation, worker);
            actions.push(WorkerAction::Log(WorkerLog::Replaced { before, worker }));
        }
        let rests_until = self.agent.rests_until();
        if rests_until != self.rests_until {
            self.rests_until = rests_until;
            let wait = rests_until.map(|until| until.since(now.monotonic));
            actions.extend(wait.map(|wait| WorkerAction::Log(WorkerLog::Resting { wait })));
        }
        // Jobs that wait for a confirmation are counted as running.
        if self.agent.waiting_count() + self.agent.running_count() == 0 {
            self.payloads.clear();
        }
    }

    /// Jobs that are given away or reported will not start here.
    fn forget_payloads(&mut self, messages: &[FromWorker]) {
        if self.payloads.is_empty() {
            return;
        }
        for message in messages {
            for report in message.reports() {
                self.payloads.remove(&report.hold);
            }
            if let FromWorker::Given { jobs, .. } = message {
                for hold in jobs {
                    self.payloads.remove(hold);
                }
            }
        }
    }

    /// Sends output of running jobs, or drops it if there is no connection: it is also in the log
    /// that is stored with the attempt.
    fn send_output(&mut self, actions: &mut Vec<WorkerAction<O>>) {
        let output = self.output.take();
        if !output.is_empty() && self.is_connected {
            let worker = self.agent.id();
            actions.push(WorkerAction::SendOutput { worker, output });
        }
    }

    fn answered(&mut self, now: Now, actions: &mut Vec<WorkerAction<O>>) {
        // Connections that only deliver a part of the reports come and go. What counts is the last.
        if self.agent.delivers_a_part() {
            return;
        }
        let after = match self.contact {
            Contact::Answered => return,
            Contact::Fresh => None,
            Contact::Lost { since } => Some(now.monotonic.since(since)),
        };
        self.contact = Contact::Answered;
        let worker = self.agent.id();
        actions.push(WorkerAction::Log(WorkerLog::Connected { worker, after }));
    }

    fn disconnected(&mut self, now: Now, actions: &mut Vec<WorkerAction<O>>) {
        self.is_connected = false;
        if planted(EngineBug::PayloadForgotten) {
            self.payloads.clear();
        }
        if matches!(self.contact, Contact::Answered) {
            self.contact = Contact::Lost { since: now.monotonic };
            let worker = self.agent.id();
            actions.push(WorkerAction::Log(WorkerLog::Disconnected { worker }));
        }
    }

    fn log_drain(&self, grace: Duration, actions: &mut Vec<WorkerAction<O>>) {
        let (running, waiting) = (self.agent.running_count(), self.agent.waiting_count());
        actions.push(WorkerAction::Log(WorkerLog::Draining { running, waiting, grace }));
    }
}

#[cfg(test)]
mod tests;
