//! Sessions and leases: which messages are accepted, and until when a worker may own jobs.
//!
//! A session is one connection. Messages of an older session are dropped, in both directions.
//! Within a session batches are numbered: a repeat is dropped, a gap ends the session. A silent
//! worker keeps its jobs until its lease expires; then the incarnation is lost for ever.

use alloc::vec::Vec;

use super::worker::{Served, Worker};
use super::{Dispatch, DispatchEffect};
use crate::id::{Hold, MessageNo, Seq, SessionNo, WorkerId};
use crate::message::{FromWorker, Hello, HelloKind, Serves, ToWorker};
use crate::planted::{Bug, planted};
use crate::record::{AttemptOutcome, LeaseCause, Mutation, Note, Reason};
use crate::state::{JobState, Verb};

/// How an incarnation ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Its lease expired, or it ran inside a server process that has ended.
    Lost,
    /// It sent its goodbye, after all its jobs had stopped.
    Left,
}

impl Dispatch {
    /// A batch of messages came from a worker.
    pub(super) fn hear(
        &mut self,
        id: WorkerId,
        session: SessionNo,
        number: MessageNo,
        messages: Vec<FromWorker>,
    ) {
        let hello = match messages.first() {
            Some(FromWorker::Hello(hello)) => Some(hello.kind),
            _ => None,
        };
        let known = self.workers.find(id).map(|worker| (worker.session, worker.expected));
        let Some((current, expected)) = known else {
            match hello {
                Some(HelloKind::New | HelloKind::Replace(_) | HelloKind::ReportFor(_))
                    if !self.workers.has_ended(id) =>
                {
                    self.let_in(id, session, number, messages);
                }
                Some(_) if planted(Bug::LostIncarnationRevived) => {
                    self.let_in(id, session, number, messages);
                }
                _ => self.answer_gone(id, session),
            }
            return;
        };
        let connected = self.workers.get(id).connected;
        match hello {
            None if session < current && connected && planted(Bug::OldSessionAccepted) => {
                self.take(id, current, expected, messages);
            }
            _ if session < current => self.counters.repeated += 1,
            // A known worker resumes, even if it does not know yet that the server knows it.
            Some(_) if session > current => self.open(id, session, number, messages),
            None if session > current => self.hang_up(id, session),
            _ if number < expected || !connected => self.counters.repeated += 1,
            None if number == expected => self.take(id, session, number, messages),
            _ => {
                self.hang_up(id, session);
                self.disconnect(id);
            }
        }
    }

    pub(super) fn closed(&mut self, id: WorkerId, session: SessionNo) {
        if self.workers.find(id).is_some_and(|worker| worker.session == session) {
            self.disconnect(id);
        }
    }

    fn disconnect(&mut self, id: WorkerId) {
        self.workers.disconnect(id);
        self.drop_question(id);
    }

    /// Ends workers that have been without a connection for longest and hold no job, if there are
    /// too many. One that comes back gets a new id.
    pub(super) fn forget_absent(&mut self) {
        while let Some(id) = self.workers.pop_absent(self.config.limits.absent) {
            let worker = self.workers.get(id);
            if !worker.connected && worker.held.is_empty() {
                self.end_worker(id, End::Left);
            }
        }
    }

    fn hang_up(&mut self, worker: WorkerId, session: SessionNo) {
        self.counters.hung_up += 1;
        self.outcome.others.push(DispatchEffect::HangUp { worker, session });
    }

    fn answer_gone(&mut self, worker: WorkerId, session: SessionNo) {
        self.counters.gone += 1;
        self.outcome.gone.push((worker, session));
    }

    /// The first batch of an unknown incarnation.
    fn let_in(
        &mut self,
        id: WorkerId,
        session: SessionNo,
        number: MessageNo,
        messages: Vec<FromWorker>,
    ) {
        let lease_end = self.lease_clock().plus(self.config.lease);
        self.workers.insert(id, Worker::new(session, lease_end));
        self.open(id, session, number, messages);
    }

    /// The first batch of a new session. Only its first message opens it, and only with number 1.
    fn open(
        &mut self,
        id: WorkerId,
        session: SessionNo,
        number: MessageNo,
        messages: Vec<FromWorker>,
    ) {
        self.drop_question(id);
        let worker = self.workers.get_mut(id);
        worker.session = session;
        worker.connected = number == MessageNo(1);
        worker.expected = number;
        if worker.connected {
            self.take(id, session, number, messages);
        } else {
            self.hang_up(id, session);
        }
    }

    /// Accepts the next batch in order. Every such batch renews the lease; only the renewal is
    /// acknowledged at once.
    fn take(
        &mut self,
        id: WorkerId,
        session: SessionNo,
        number: MessageNo,
        messages: Vec<FromWorker>,
    ) {
        let (now, lease) = (self.lease_clock(), self.config.lease);
        let lease_end = now.plus(lease);
        let worker = self.workers.get_mut(id);
        worker.expected = number.next();
        let was_silent = worker.has_fallen_silent(now, lease);
        // Never earlier: the worker may not know yet that leases are shorter now.
        worker.lease_end = worker.lease_end.max(lease_end);
        // Claims and steals passed over the worker while it was silent: they consider it again.
        if core::mem::take(&mut worker.is_silent) || was_silent {
            self.workers.touch(id);
        }
        self.outcome.renewals.push((id, session, ToWorker::Renewed(number)));
        self.hear_each(id, session, number, messages);
        if let Some(worker) = self.workers.find_mut(id) {
            worker.had_nothing = worker.held.is_empty();
        }
        if !self.look_up_reports(id, session) {
            // Too many reports wait already. The worker repeats all of it after its reconnect.
            self.hang_up(id, session);
            self.closed(id, session);
        }
    }

    fn hear_each(
        &mut self,
        id: WorkerId,
        session: SessionNo,
        number: MessageNo,
        messages: Vec<FromWorker>,
    ) {
        for message in messages {
            match message {
                FromWorker::Hello(hello)
                    if number == MessageNo(1) && self.can_serve(&hello.serves) =>
                {
                    self.hello(id, session, hello);
                }
                // A hello is valid only once per session, and only with queue names within the
                // bounds.
                FromWorker::Hello(_) => {
                    self.hang_up(id, session);
                    self.disconnect(id);
                    return;
                }
                FromWorker::Heartbeat => {}
                FromWorker::Want(want) => {
                    self.workers.get_mut(id).want = want.min(self.config.limits.want);
                    self.workers.touch(id);
                }
                FromWorker::Start(hold) => self.start(id, session, hold),
                FromWorker::Started(hold) => self.started(id, hold),
                FromWorker::Report(report) => self.report(id, id, session, report),
                FromWorker::Given { question, jobs } => self.given(id, session, question, &jobs),
                FromWorker::Stopping(hold) => self.stopping(id, hold),
                FromWorker::Progress { hold, percent } => self.progressed(id, hold, percent),
                FromWorker::Drain => self.drain(id),
                FromWorker::Goodbye => {
                    self.end_worker(id, End::Left);
                    return;
                }
            }
        }
    }

    pub(super) fn drain(&mut self, id: WorkerId) {
        self.workers.get_mut(id).draining = true;
        self.drop_question(id);
    }

    fn hello(&mut self, id: WorkerId, session: SessionNo, hello: Hello) {
        self.unseat(id);
        self.serve(id, &hello.serves);
        let want = hello.want.min(self.config.limits.want);
        let worker = self.workers.get_mut(id);
        (worker.slots, worker.want) = (hello.slots, want);
        worker.nothing_for = None;
        self.workers.touch(id);
        // Reports come before anything else: a finished job is finished, whichever incarnation
        // reports it.
        let reporter = hello.kind.older().unwrap_or(id);
        if let Some(older) = hello.kind.older() {
            self.workers.get_mut(id).replaces = Some(older);
        }
        for report in hello.reports {
            self.report(reporter, id, session, report);
        }
        for hold in hello.started {
            self.started(reporter, hold);
        }
        if let HelloKind::ReportFor(older) = hello.kind {
            self.renew_older(older);
        }
        if let HelloKind::Replace(older) = hello.kind
            && older != id
            && let Some(before) = self.workers.find(older)
        {
            // A request to drain the older incarnation was meant for the process.
            let is_draining = before.draining;
            self.end_worker(older, End::Left);
            if is_draining {
                self.drain(id);
            }
        }
        self.reconcile(id, hello.holds);
        // An earlier request may have been sent in a session that broke, or made while there was
        // none.
        if self.workers.get(id).draining {
            self.tell(id, ToWorker::DrainNow);
        }
    }

    /// More reports of this incarnation follow, from its successor: it must not be lost meanwhile,
    /// or they would be refused and finished jobs would run again.
    fn renew_older(&mut self, older: WorkerId) {
        let lease_end = self.lease_clock().plus(self.config.lease);
        if let Some(worker) = self.workers.find_mut(older) {
            worker.lease_end = worker.lease_end.max(lease_end);
        }
    }

    fn can_serve(&self, serves: &Serves) -> bool {
        let limits = &self.config.limits;
        match serves {
            Serves::All => true,
            Serves::Named(names) => {
                let new = names.iter().filter(|name| self.queues.number(name).is_none()).count();
                names.len() <= limits.served
                    && names.iter().all(|name| name.as_str().len() <= limits.name_bytes)
                    && (new == 0 || self.queues.count() + new <= limits.queues)
            }
        }
    }

    /// Sets which queues a worker serves. It must not be seated.
    fn serve(&mut self, id: WorkerId, serves: &Serves) {
        let served = match serves {
            Serves::All => Served::All,
            Serves::Named(names) => {
                let mut queues: Vec<u32> =
                    names.iter().map(|name| self.queues.number_or_new(name)).collect();
                queues.sort_unstable();
                queues.dedup();
                Served::Named(queues)
            }
        };
        if let Served::Named(queues) = &served {
            for &queue in queues {
                self.queues.get_mut(queue).named_by += 1;
            }
        }
        let before = core::mem::replace(&mut self.workers.get_mut(id).served, served);
        self.unserve(&before);
    }

    fn unserve(&mut self, served: &Served) {
        if let Served::Named(queues) = served {
            for &queue in queues {
                self.queues.get_mut(queue).named_by -= 1;
                self.queues.forget_if_unused(queue);
            }
        }
    }

    /// Compares the jobs that a worker reports to hold with those it owns. It keeps jobs that are
    /// in both, and is sent again those that never arrived. It drops all others that it holds,
    /// because it is not asked to keep them. So no job hangs in a lease that its owner does not
    /// know of.
    fn reconcile(&mut self, id: WorkerId, mut holds: Vec<Hold>) {
        holds.sort_unstable();
        let held: Vec<Seq> = self.workers.get(id).held.keys().copied().collect();
        let mut keep = Vec::new();
        let mut cancelled = Vec::new();
        let mut missing = Vec::new();
        for seq in held {
            let job = self.jobs.get(seq);
            let hold = Hold { job: seq, fence: job.held_under() };
            let is_there = holds.binary_search(&hold).is_ok();
            match (job.state(), is_there) {
                (JobState::Cancelled, true) => cancelled.push(hold),
                (JobState::Cancelled, false) => self.let_go(seq),
                (_, true) => keep.push(hold),
                (_, false) if planted(Bug::ForgottenResumeAnswer) => {}
                (_, false) => missing.push(seq),
            }
        }
        self.tell(id, ToWorker::Reconcile { lease: self.config.lease, keep });
        for hold in cancelled {
            self.tell(id, ToWorker::Cancel(hold));
        }
        for seq in missing {
            self.assign(id, seq);
        }
    }

    /// The lease of this worker expired.
    pub(super) fn lose(&mut self, id: WorkerId) {
        self.end_worker(id, End::Lost);
    }

    /// Ends an incarnation for ever and takes back its jobs.
    pub(super) fn end_worker(&mut self, id: WorkerId, end: End) {
        self.drop_question(id);
        let held: Vec<Seq> = self.workers.get(id).held.keys().copied().collect();
        if end == End::Lost {
            self.counters.lost += 1;
            let jobs = u32::try_from(held.len()).unwrap_or(u32::MAX);
            self.mutate(Mutation::Note(Note::WorkerLost { worker: id, jobs }));
        }
        let suspects = match end {
            End::Lost => self.may_have_run(&held),
            End::Left => Vec::new(),
        };
        let is_cancelled = |seq: &&Seq| self.jobs.get(**seq).state() == JobState::Cancelled;
        let charged = self.culprit(&suspects, held.iter().filter(is_cancelled).count());
        for seq in held {
            if self.jobs.get(seq).state() == JobState::Cancelled {
                self.let_go(seq);
                continue;
            }
            let hold = self.jobs.get(seq).hold(seq);
            match end {
                End::Left => {
                    if self.jobs.get(seq).state() == JobState::Running {
                        self.note(id, hold, AttemptOutcome::Interrupted);
                    }
                    self.requeue(seq, LeaseCause::Returned(id));
                }
                End::Lost => self.requeue(seq, LeaseCause::Lost(id)),
            }
            if suspects.binary_search(&seq).is_ok() {
                self.suspect(seq, id, hold, charged == Some(seq));
            }
        }
        self.unseat(id);
        let worker = self.workers.end(id);
        self.unserve(&worker.served);
    }

    /// Which of a lost worker's jobs may have been running: those whose start it reported, and
    /// those it could start without asking.
    fn may_have_run(&self, held: &[Seq]) -> Vec<Seq> {
        let may_have_run = |&seq: &Seq| {
            let job = self.jobs.get(seq);
            job.state() == JobState::Running
                || (job.state() == JobState::Leased && !job.is_suspect())
        };
        held.iter().copied().filter(may_have_run).collect()
    }

    /// The only job that can have caused the loss of the worker: the only one that may have been
    /// running, or the only one that was suspected twice before. Workers hold at most one of
    /// those. A cancelled job that the worker had not let go of may have been running as well.
    fn culprit(&self, suspects: &[Seq], cancelled: usize) -> Option<Seq> {
        match suspects {
            [first, _, ..] if planted(Bug::OneOfSeveralCharged) => Some(*first),
            [alone] if cancelled == 0 && !planted(Bug::LoneSuspectNotCharged) => Some(*alone),
            _ => suspects.iter().copied().find(|&seq| self.jobs.get(seq).is_solo()),
        }
    }

    /// Records a suspicion against a job, queued again by now, whose worker was lost.
    fn suspect(&mut self, seq: Seq, worker: WorkerId, hold: Hold, is_charged: bool) {
        // The number of suspicions decides in which index of its queue the job is.
        self.leave_indexes(seq);
        let job = self.jobs.get_mut(seq);
        job.suspicions = job.suspicions.saturating_add(1);
        job.attempts = job.attempts.saturating_add(u16::from(is_charged));
        let is_used_up = job.attempts >= job.retry.max;
        self.enter_indexes(seq);
        let outcome = match is_charged {
            true => AttemptOutcome::LostAlone,
            false => AttemptOutcome::LostAmongOthers,
        };
        self.mutate(Mutation::Note(Note::Attempt { hold, worker, outcome }));
        if is_charged && is_used_up {
            self.end(seq, Verb::Bury, Some(Reason::WorkerLost));
        } else {
            self.write(seq, None);
        }
    }
}
