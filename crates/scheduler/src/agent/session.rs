//! The agent's session with the server: connecting, the hello, batches in both directions, renewing
//! the lease, and self-fencing.
//!
//! Reports are sent when no earlier report is unanswered, or when many have accumulated. So batches
//! grow with the round trip time without further tuning. The reports under way are bounded in
//! bytes: the next are sent when those are answered.

use alloc::vec::Vec;

use super::deque::Wanted;
use super::{Agent, AgentEffect, Link, Session, SlotPhase, StopReason, Verdict, new_id};
use crate::id::{Hold, MessageNo, SessionNo};
use crate::message::{FromWorker, Hello, HelloKind, Report, ToWorker};
use crate::planted::{Bug, planted};
use crate::time::{Duration, Monotonic};

/// Heartbeats per lease.
const HEARTBEATS: u32 = 10;

/// A worker that holds no jobs has nothing to lose and sends only every third heartbeat. The server
/// knows that, and assigns no jobs to a worker that is silent for longer.
const IDLE_HEARTBEATS: u32 = 3;

/// A server that is silent for this many heartbeats after its answer was due counts as unreachable.
const SILENT_HEARTBEATS: u32 = 2;

impl Session {
    pub(super) const fn new(number: SessionNo, now: Monotonic) -> Self {
        Self {
            number,
            is_open: false,
            sent: MessageNo(0),
            received: MessageNo(0),
            heard_at: now,
            heartbeat_at: now,
            unacknowledged: alloc::collections::VecDeque::new(),
            unsent: Vec::new(),
            is_urgent: false,
            in_flight: 0,
            in_flight_bytes: 0,
            in_flight_since: now,
            is_partial: false,
            want_told: 0,
            is_reconciled: false,
            acknowledged_at: None,
            goodbye: None,
        }
    }
}

impl Agent {
    fn heartbeat(&self) -> Duration {
        self.lease / HEARTBEATS
    }

    /// How long after one heartbeat the next is due. Before `reconcile` the server may believe that
    /// this worker holds jobs, so a lost hello must be noticed soon.
    fn pause(&self) -> Duration {
        let is_idle = self.is_empty() && self.session.is_reconciled;
        if is_idle { self.heartbeat() * IDLE_HEARTBEATS } else { self.heartbeat() }
    }

    /// Whether it holds no jobs and has no reports to send or to be answered.
    fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.deque.count() == 0 && self.reports.is_empty()
    }

    pub(super) fn silence_at(&self) -> Monotonic {
        self.session.heard_at.plus(self.pause() + self.heartbeat() * SILENT_HEARTBEATS)
    }

    pub(super) fn connected(&mut self) {
        self.link = Link::Up;
        // No hello while a job of the last incarnation still runs.
        if !self.session.is_open && !self.is_fenced {
            self.greet();
        }
    }

    /// Sends the hello of a new session.
    fn greet(&mut self) {
        self.session = Session::new(self.session.number.next(), self.now.monotonic);
        self.session.is_open = true;
        let reports = self.take_reports();
        let is_whole = reports.len() == self.reports.len();
        let kind = match (self.is_met, self.replaces) {
            (true, _) => HelloKind::Resume,
            (false, Some(older)) if is_whole => HelloKind::Replace(older),
            (false, Some(older)) => HelloKind::ReportFor(older),
            (false, None) => HelloKind::New,
        };
        self.session.is_partial = matches!(kind, HelloKind::ReportFor(_));
        let want = self.want();
        self.session.want_told = want;
        let started = self.slots.iter().filter(|(_, slot)| slot.is_told());
        // Jobs whose report follows are listed as held: the server must not send them again.
        let unsent = self.reports.iter().filter(|(_, pending)| !pending.is_sent);
        let unsent = unsent.map(|(&hold, _)| hold).filter(|_| self.is_met);
        let holds = self.deque.iter().chain(self.slots.keys().copied()).chain(unsent);
        let hello = Hello {
            kind,
            slots: self.config.slots,
            want,
            serves: self.config.serves.clone(),
            reports,
            started: started.map(|(&hold, _)| hold).collect(),
            holds: holds.collect(),
        };
        self.say_now(FromWorker::Hello(hello));
        if self.drain.is_some() {
            self.say_now(FromWorker::Drain);
        }
    }

    pub(super) fn disconnected(&mut self) {
        self.link = Link::Down;
        self.close();
        // A worker that is shutting down and holds nothing would reconnect only for a goodbye.
        let is_done = self.drain.is_some() && self.is_empty();
        if !self.is_fenced && !is_done {
            self.connect();
        }
    }

    fn connect(&mut self) {
        if self.link != Link::Down {
            return;
        }
        self.link = Link::AskedFor;
        let most = crate::time::micros(self.config.reconnect_max);
        let wait = (u128::from(self.random.draw()) * u128::from(most)) >> 64;
        self.effects.push(AgentEffect::Connect { wait: Duration::from_micros(wait as u64) });
    }

    /// Closes the session. Its messages may not have arrived: they are repeated in the next.
    fn close(&mut self) {
        self.session.is_open = false;
        (self.session.in_flight, self.session.in_flight_bytes) = (0, 0);
        self.session.unsent.clear();
        for pending in self.reports.values_mut() {
            pending.is_sent = false;
        }
    }

    fn hang_up(&mut self) {
        self.effects.push(AgentEffect::Disconnect { session: self.session.number });
        self.disconnected();
    }

    /// Handles deadlines that have passed.
    pub(super) fn expire(&mut self) {
        let now = self.now.monotonic;
        if !self.is_fenced && self.fence_at().is_some_and(|at| at <= now) {
            self.fence();
        }
        if self.session.is_open && self.silence_at() <= now {
            self.hang_up();
        }
        // Then it asks for a job, to see whether that can be started.
        self.session.is_urgent |= self.rest.is_over(now);
        if self.probe_ends_at().is_some_and(|at| at <= now) {
            self.rest.has_started();
            self.session.is_urgent = true;
        }
        self.time_out();
        self.tell_started();
        if self.drain.is_some_and(|at| at <= now) {
            self.stop_all(StopReason::Drained);
        }
    }

    /// The right to own jobs is over: no job starts, running jobs are stopped, the deque is
    /// emptied.
    fn fence(&mut self) {
        self.is_fenced = true;
        if self.session.is_open {
            self.effects.push(AgentEffect::Disconnect { session: self.session.number });
            self.link = Link::Down;
        }
        self.close();
        self.deque.drain().for_each(drop);
        self.slots.retain(|_, slot| slot.phase != SlotPhase::Confirming);
        self.stop_all(StopReason::Fenced);
    }

    /// Once everything has stopped, a fenced worker comes back as a new incarnation, and a drained
    /// one leaves.
    pub(super) fn come_back_or_leave(&mut self) {
        let is_quiet = self.slots.is_empty() && self.deque.count() == 0;
        if self.is_fenced && is_quiet {
            if self.drain.is_some() {
                self.leave();
                return;
            }
            // If the server still knows the older incarnation, its jobs become free at once.
            self.replaces = if self.is_met { Some(self.id) } else { self.replaces };
            self.reports.retain(|_, pending| pending.report.ending.is_outcome());
            self.id = new_id(&mut self.random, self.config.home);
            self.session = Session::new(SessionNo(0), self.now.monotonic);
            (self.is_met, self.is_fenced, self.lease_from) = (false, false, None);
            match self.link {
                Link::Up => self.greet(),
                Link::Down | Link::AskedFor => self.connect(),
            }
        } else if let Some(deadline) = self.drain.filter(|_| is_quiet) {
            let now = self.now.monotonic;
            let is_over = deadline <= now;
            if self.patience_end(deadline) <= now {
                // The server is connected but does not answer: perhaps its store is stuck.
                self.leave();
            } else if self.session.is_open && self.reports.is_empty() {
                if self.session.goodbye.is_none() {
                    self.say_now(FromWorker::Goodbye);
                    self.session.goodbye = Some(self.session.sent.next());
                }
            } else if !self.session.is_open
                && (is_over || self.link == Link::Down || self.is_stranger())
            {
                // The server cannot be reached for a goodbye. Jobs that it believes to be here go
                // back to the queue when the lease expires.
                self.leave();
            }
        }
    }

    /// How long a drained worker waits for answers to its last reports.
    pub(super) fn patience_end(&self, deadline: Monotonic) -> Monotonic {
        deadline.plus(self.lease)
    }

    /// Whether the server cannot believe that this worker holds anything.
    fn is_stranger(&self) -> bool {
        !self.is_met && self.session.number == SessionNo(0) && self.reports.is_empty()
    }

    fn leave(&mut self) {
        self.has_left = true;
        self.effects.push(AgentEffect::Leave);
    }

    /// Sends a message with the next batch.
    pub(super) fn say(&mut self, message: FromWorker) {
        if self.session.is_open {
            self.session.unsent.push(message);
        }
    }

    /// Sends a message at once.
    pub(super) fn say_now(&mut self, message: FromWorker) {
        self.say(message);
        self.session.is_urgent = true;
    }

    /// Records a report, to be sent until it is answered.
    pub(super) fn report(&mut self, report: Report) {
        self.reports.insert(report.hold, super::Pending { report, is_sent: false });
    }

    /// Records a report that was sent as part of another message; only its answer is awaited.
    pub(super) fn reported(&mut self, report: Report) {
        if self.session.in_flight == 0 {
            self.session.in_flight_since = self.now.monotonic;
        }
        let pending = super::Pending { report, is_sent: true };
        self.session.in_flight += 1;
        self.session.in_flight_bytes += pending.bytes();
        self.reports.insert(pending.report.hold, pending);
    }

    /// Takes unsent reports for the next batch, as many as fit: at least one if none is under way.
    fn take_reports(&mut self) -> Vec<Report> {
        let mut taken = Vec::new();
        let session = &mut self.session;
        if session.in_flight == 0 {
            session.in_flight_since = self.now.monotonic;
        }
        for pending in self.reports.values_mut().filter(|pending| !pending.is_sent) {
            let bytes = session.in_flight_bytes + pending.bytes();
            if session.in_flight > 0 && bytes > self.config.report_bytes_max {
                if planted(Bug::ReportsBeyondBoundForgotten) {
                    pending.is_sent = true;
                    session.in_flight += 1;
                    session.in_flight_bytes = bytes;
                    continue;
                }
                break;
            }
            pending.is_sent = true;
            session.in_flight += 1;
            session.in_flight_bytes = bytes;
            taken.push(pending.report.clone());
        }
        taken
    }

    /// Whether another report fits into what may be under way.
    fn has_room(&self) -> bool {
        let next = self.reports.values().find(|pending| !pending.is_sent);
        let session = &self.session;
        !session.is_partial
            && next.is_some_and(|next| {
                session.in_flight == 0
                    || session.in_flight_bytes + next.bytes() <= self.config.report_bytes_max
            })
    }

    /// Once the server has answered a part of an older incarnation's reports, a new session
    /// delivers the next. They cannot follow in the same one, where a report is about a job of this
    /// incarnation.
    pub(super) fn continue_delivery(&mut self) {
        let session = &self.session;
        if session.is_open && session.is_partial && session.in_flight == 0 && !self.has_left {
            self.hang_up();
        }
    }

    /// Reports wait for one another so that many share a batch. But each one makes room for a new
    /// job, so if the worker has nothing else to run, they are sent at once.
    pub(super) fn idle(&mut self) {
        let is_short = self.deque.count() == 0 && self.slots.len() < self.config.slots as usize;
        self.session.is_urgent |= is_short && self.want() > 0 && self.has_room();
    }

    /// Sends a batch if one is due.
    pub(super) fn flush(&mut self) {
        if !self.session.is_open || self.has_left {
            return;
        }
        let now = self.now.monotonic;
        let waiting = self.reports.len() - self.session.in_flight;
        let is_due = self.session.heartbeat_at <= now;
        let is_time = self.session.is_urgent
            || is_due
            || (waiting > 0 && self.session.in_flight == 0)
            || (waiting >= self.config.reports_max && self.has_room());
        if !is_time {
            return;
        }
        let mut messages = core::mem::take(&mut self.session.unsent);
        let want = self.want();
        if is_worth_telling(self.session.want_told, want) {
            self.session.want_told = want;
            messages.push(FromWorker::Want(want));
        }
        // While a part of an older incarnation's reports is delivered, the rest waits for the next
        // session.
        if !self.session.is_partial {
            messages.extend(self.take_reports().into_iter().map(FromWorker::Report));
        }
        if messages.is_empty() {
            messages.push(FromWorker::Heartbeat);
        }
        // A goodbye is the last message.
        if let Some(at) = messages.iter().position(|it| *it == FromWorker::Goodbye) {
            let goodbye = messages.remove(at);
            messages.push(goodbye);
        }
        let session = &mut self.session;
        session.is_urgent = false;
        session.sent = session.sent.next();
        session.unacknowledged.push_back((session.sent, now));
        let (number, session_number) = (session.sent, session.number);
        self.session.heartbeat_at = now.plus(self.pause());
        self.effects.push(AgentEffect::Send {
            worker: self.id,
            session: session_number,
            number,
            messages,
        });
    }

    /// How many jobs to own at most.
    fn want(&self) -> u32 {
        if self.drain.is_some() || self.is_fenced || self.session.is_partial {
            return 0;
        }
        let slots = self.config.slots;
        self.rest.bound(slots.saturating_add(self.pace.reserve(self.config.reserve, slots)))
    }

    pub(super) fn received(
        &mut self,
        session: SessionNo,
        number: MessageNo,
        messages: Vec<ToWorker>,
    ) {
        let is_current = self.session.is_open && session == self.session.number;
        if !is_current || number <= self.session.received {
            return;
        }
        if number != self.session.received.next() {
            self.hang_up();
            return;
        }
        self.session.received = number;
        self.session.heard_at = self.now.monotonic;
        for message in messages {
            if self.is_fenced {
                return;
            }
            self.hear(message);
        }
    }

    fn hear(&mut self, message: ToWorker) {
        match message {
            ToWorker::Renewed(number) => self.renewed(number),
            ToWorker::Reconcile { lease, keep } => self.learn(lease, keep),
            ToWorker::Assign(assignments) => {
                for assignment in assignments {
                    self.assigned(assignment);
                }
            }
            ToWorker::AskToGive { question, most, most_bound, suspects, serves } => {
                self.give(question, Wanted { most, most_bound, suspects, serves: &serves });
            }
            ToWorker::StartGranted(hold) => self.start_granted(hold),
            ToWorker::Cancel(hold) => self.cancel(hold),
            ToWorker::DrainNow => self.drain(self.config.grace),
            ToWorker::Accepted(holds) => {
                let trip = self.now.monotonic.since(self.session.in_flight_since);
                self.pace.round_trip(trip);
                for hold in holds {
                    self.answered(hold, Verdict::Accepted);
                }
            }
            ToWorker::Refused { hold, current: _ } => {
                self.answered(hold, Verdict::Refused);
                self.disown(hold);
            }
            // The server does not know this incarnation, or no longer does. Its reports may be
            // stored all the same, with the answer lost; the next incarnation repeats them to find
            // out.
            ToWorker::Gone => self.fence(),
        }
    }

    /// The lease is counted from the moment the acknowledged message was sent, not from now: the
    /// server may have counted from any moment in between.
    ///
    /// Before this session's `reconcile`, the length of the lease is unknown, and a renewal may
    /// come from a server that has not yet stored that it knows us: it counts once `reconcile` has
    /// arrived.
    fn renewed(&mut self, number: MessageNo) {
        while let Some(&(sent, at)) = self.session.unacknowledged.front() {
            if sent > number {
                break;
            }
            self.session.unacknowledged.pop_front();
            let is_late = planted(Bug::LeaseFromAcknowledgement);
            let at = if is_late { self.now.monotonic } else { at };
            self.session.acknowledged_at = self.session.acknowledged_at.max(Some(at));
        }
        if self.session.is_reconciled {
            self.lease_from = self.lease_from.max(self.session.acknowledged_at);
        }
        if self.session.goodbye.is_some_and(|goodbye| goodbye <= number) {
            self.leave();
        }
    }

    /// Learns which of the jobs it holds this worker still owns.
    fn learn(&mut self, lease: Duration, mut keep: Vec<Hold>) {
        if !self.session.is_partial {
            self.is_met = true;
            self.replaces = None;
        }
        self.lease = lease;
        self.session.is_reconciled = true;
        self.lease_from = self.lease_from.max(self.session.acknowledged_at);
        self.session.heartbeat_at =
            self.session.heartbeat_at.min(self.now.monotonic.plus(self.heartbeat()));
        keep.sort_unstable();
        let held: Vec<Hold> = self.deque.iter().chain(self.slots.keys().copied()).collect();
        for hold in held {
            if keep.binary_search(&hold).is_err() {
                self.disown(hold);
            }
        }
        self.ask_to_start_again();
    }

    fn answered(&mut self, hold: Hold, verdict: Verdict) {
        if let Some(pending) = self.reports.remove(&hold) {
            if pending.is_sent {
                self.session.in_flight -= 1;
                self.session.in_flight_bytes -= pending.bytes();
            }
            self.session.in_flight_since = self.now.monotonic;
            self.effects.push(AgentEffect::Answered { hold, verdict });
        }
    }

    /// Puts an assigned job into the deque, or returns it if this worker takes no more.
    fn assigned(&mut self, assignment: crate::message::Assignment) {
        let hold = assignment.hold;
        let is_known = self.slots.contains_key(&hold) || self.reports.contains_key(&hold);
        if is_known {
            return;
        }
        if self.drain.is_some() || self.rest.until().is_some() {
            self.drop_unstarted(hold);
            self.session.is_urgent = true;
        } else {
            self.deque.insert(assignment);
            // From now on this worker has a job to lose, so it sends every heartbeat.
            self.session.heartbeat_at =
                self.session.heartbeat_at.min(self.now.monotonic.plus(self.heartbeat()));
        }
    }
}

/// Small changes of the ceiling are not worth a message.
fn is_worth_telling(told: u32, want: u32) -> bool {
    told != want && (want == 0 || told == 0 || told.abs_diff(want) > told / 4)
}
