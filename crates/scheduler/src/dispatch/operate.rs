//! Requests of clients and operators, once memory and store together know the jobs they name.

use super::fetch::Found;
use super::{Answer, Bound, Dispatch, QueueChange, Refused, Request};
use crate::id::{Hold, JobId, RequestNo, Seq, WorkerId};
use crate::message::ToWorker;
use crate::name::Name;
use crate::planted::{Bug, planted};
use crate::record::{JobRow, Mutation, Note, OperatorAct, QueueSettings, Reason, Strategy};
use crate::state::{JobState, Verb};

/// A job that a request names.
enum Named<'a> {
    /// In memory.
    Here(Seq),
    /// Ended, in the store.
    There(&'a JobRow),
}

impl Dispatch {
    pub(super) fn carry_out(
        &mut self,
        from: RequestNo,
        by: Option<Name>,
        request: Request,
        found: &Found,
    ) {
        self.acting = by;
        let answer = match request {
            Request::Submit(jobs) => Ok(Some(self.submit(jobs, None, found))),
            Request::SubmitWithin { queues, jobs } => {
                Ok(Some(self.submit(jobs, Some(&queues), found)))
            }
            Request::Cancel(job) => self.cancel(from, job, found),
            Request::Retry(job) => self.retry(job, found),
            Request::SetPriority { job, priority } => self.set_priority(job, priority, found),
            Request::SetQueue { queue, change } => self.set_queue(&queue, change),
            Request::SetStrategy(strategy) => self.set_strategy(strategy),
            Request::DrainWorker(worker) => self.drain_worker(worker),
        };
        match answer {
            Ok(Some(answer)) => self.reply(from, answer),
            // Answered later, when the worker has let go.
            Ok(None) => {}
            Err(refused) => self.reply(from, Answer::Refused(refused)),
        }
    }

    fn named<'a>(&self, id: JobId, found: &'a Found) -> Result<Named<'a>, Refused> {
        if let Some(seq) = self.jobs.by_id(id) {
            return Ok(Named::Here(seq));
        }
        found.by_id(id).map(Named::There).ok_or(Refused::UnknownJob(id))
    }

    /// The job is cancelled at once. If a worker holds it, the answer waits until that worker has
    /// dropped it, is stopping it, or is lost: after the answer, nothing starts.
    fn cancel(
        &mut self,
        from: RequestNo,
        id: JobId,
        found: &Found,
    ) -> Result<Option<Answer>, Refused> {
        let (state, seq) = match self.named(id, found)? {
            Named::Here(seq) => (self.jobs.get(seq).state(), Some(seq)),
            Named::There(row) => (row.now.state, None),
        };
        let Some(seq) = seq.filter(|_| !state.is_ended() || state == JobState::Cancelled) else {
            return match state {
                JobState::Cancelled => Ok(Some(Answer::Done)),
                state => Err(Refused::WrongState { job: id, state }),
            };
        };
        if state != JobState::Cancelled {
            let hold = self.jobs.get(seq).hold(seq);
            self.note_act(OperatorAct::Cancel(id));
            self.end(seq, Verb::Cancel, Some(Reason::Request));
            if state != JobState::Running || !planted(Bug::CancelNotSent) {
                self.tell_holder(seq, hold);
            }
        }
        let is_held = self.jobs.get(seq).phase.holder().is_some();
        if !is_held || planted(Bug::CancelAcknowledgedEarly) {
            return Ok(Some(Answer::Done));
        }
        self.cancels.entry(seq).or_default().push(from);
        Ok(None)
    }

    /// Records what was done, and by whom.
    fn note_act(&mut self, act: OperatorAct) {
        let by = self.acting.clone();
        self.mutate(Mutation::Note(Note::Act { by, act }));
    }

    fn tell_holder(&mut self, seq: Seq, hold: Hold) {
        if let Some(holder) = self.jobs.get(seq).phase.holder() {
            self.tell(holder, ToWorker::Cancel(hold));
        }
    }

    /// This cancelled job will not start any more: answers the requests that wait for that.
    pub(super) fn confirm_cancel(&mut self, seq: Seq) {
        for request in self.cancels.remove(&seq).into_iter().flatten() {
            self.reply(request, Answer::Done);
        }
    }

    /// Gives a dead job all its attempts again.
    fn retry(&mut self, id: JobId, found: &Found) -> Result<Option<Answer>, Refused> {
        let (state, row) = match self.named(id, found)? {
            Named::Here(seq) => (self.jobs.get(seq).state(), None),
            Named::There(row) => (row.now.state, Some(row)),
        };
        if state.after(Verb::Retry).is_none() {
            return Err(Refused::WrongState { job: id, state });
        }
        if let Some(row) = row {
            self.take_back(row);
        }
        let seq = self.jobs.by_id(id).expect("found or taken back just now");
        let job = self.jobs.get_mut(seq);
        (job.attempts, job.suspicions, job.thefts) = (0, 0, 0);
        self.note_act(OperatorAct::Retry(id));
        self.shift(seq, Verb::Retry, None);
        self.write(seq, None);
        self.revive_for_children(seq);
        Ok(Some(Answer::Done))
    }

    fn set_priority(
        &mut self,
        id: JobId,
        priority: i16,
        found: &Found,
    ) -> Result<Option<Answer>, Refused> {
        let seq = match self.named(id, found)? {
            Named::Here(seq) if !self.jobs.get(seq).state().is_ended() => seq,
            Named::Here(seq) => {
                let state = self.jobs.get(seq).state();
                return Err(Refused::WrongState { job: id, state });
            }
            Named::There(row) => {
                return Err(Refused::WrongState { job: id, state: row.now.state });
            }
        };
        if self.jobs.get(seq).priority == priority {
            return Ok(Some(Answer::Done));
        }
        // A leased job keeps its place in its worker's deque; the new priority counts from its
        // next turn in the queue.
        match self.jobs.get(seq).state() {
            JobState::Queued => {
                self.leave_indexes(seq);
                self.jobs.get_mut(seq).priority = priority;
                self.enter_indexes(seq);
            }
            _ => self.jobs.get_mut(seq).priority = priority,
        }
        self.note_act(OperatorAct::SetPriority { job: id, priority });
        self.write_priority(seq);
        Ok(Some(Answer::Done))
    }

    /// Stores the new priority and nothing else. The stored state of a job can be older than its
    /// lease row; that must stay so, or the change of owner in that row would be lost.
    fn write_priority(&mut self, seq: Seq) {
        let job = self.jobs.get(seq);
        self.mutate(Mutation::Priority { job: seq, priority: job.priority });
    }

    fn set_queue(&mut self, name: &Name, change: QueueChange) -> Result<Option<Answer>, Refused> {
        let limits = &self.config.limits;
        let (asked, bound) = (name.as_str().len(), limits.name_bytes);
        if asked > bound {
            let (asked, bound) = (asked as u64, bound as u64);
            return Err(Refused::OutOfBounds { what: Bound::NameBytes, asked, bound });
        }
        if change == QueueChange::Weight(0) {
            return Err(Refused::OutOfBounds { what: Bound::Weight, asked: 0, bound: 1 });
        }
        let known = self.queues.number(name);
        if known.is_none() && self.queues.count() >= limits.queues {
            let (asked, bound) = (self.queues.count() as u64 + 1, limits.queues as u64);
            return Err(Refused::OutOfBounds { what: Bound::Queues, asked, bound });
        }
        let before = match known {
            Some(queue) => self.queues.get(queue).settings.clone(),
            None => QueueSettings::new(name.clone()),
        };
        let mut settings = before.clone();
        match change {
            QueueChange::Pause => settings.paused = true,
            QueueChange::Resume => settings.paused = false,
            QueueChange::Limit(limit) => settings.limit = limit,
            QueueChange::Weight(weight) => settings.weight = weight,
        }
        if settings == before {
            return Ok(Some(Answer::Done));
        }
        self.note_act(OperatorAct::SetQueue { queue: name.clone(), change });
        let was_limited = known.is_some_and(|queue| self.queues.get(queue).room.is_limited());
        let is_limited = settings.limit.is_some();
        self.mutate(Mutation::Queue(settings.clone()));
        self.queues.set(settings);
        if is_limited != was_limited {
            self.recount_limited();
        }
        Ok(Some(Answer::Done))
    }

    fn set_strategy(&mut self, strategy: Strategy) -> Result<Option<Answer>, Refused> {
        self.note_act(OperatorAct::SetStrategy(strategy));
        self.mutate(Mutation::Strategy(strategy));
        self.era = self.upcoming();
        let jobs = &self.jobs;
        self.queues.set_strategy(strategy, |seq| {
            let job = jobs.get(seq);
            super::strategy::rank(strategy, job.submitted_at, job.priority)
        });
        Ok(Some(Answer::Done))
    }

    fn drain_worker(&mut self, worker: WorkerId) -> Result<Option<Answer>, Refused> {
        match self.workers.find(worker) {
            None => return Err(Refused::UnknownWorker(worker)),
            Some(known) if known.draining => return Ok(Some(Answer::Done)),
            Some(_) => {}
        }
        self.note_act(OperatorAct::DrainWorker(worker));
        self.drain(worker);
        self.tell(worker, ToWorker::DrainNow);
        Ok(Some(Answer::Done))
    }
}
