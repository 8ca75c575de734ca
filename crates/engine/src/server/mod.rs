//! The engine of a server: everything between "an input arrived" and "do this".
//!
//! It runs the scheduler ([`Dispatch`]), holds messages and answers until their commits are durable
//! (`gate`), knows who waits for what, which worker uses which connection (`link`) and under whose
//! token, adds payloads on their way to workers (`payloads`), keeps the sessions of workers over
//! plain HTTP (`http_workers`), decides which time counts for leases (`time`), and removes what was
//! kept for long enough (`retention`).
//!
//! Nothing here calls itself through the outside: a connection that breaks while another event is
//! handled is queued and handled after it, and so is what goes to a session over plain HTTP.

mod event;
mod gate;
mod http_event;
mod http_session;
mod http_workers;
mod link;
mod ownership;
mod payloads;
mod recent;
mod retention;
mod time;
mod worker_table;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use filch_scheduler::dispatch::{Answer, Dispatch, DispatchEffect, DispatchEvent};
use filch_scheduler::id::{CommitNo, Hold, JobId, RequestNo, Seq, SessionNo, WorkerId};
use filch_scheduler::message::{FromWorker, HelloKind, Serves, ToWorker, WorkerBatch};
use filch_scheduler::record::Mutation;
use filch_scheduler::time::{Monotonic, Now};
use filch_store::{Commit, PurgeCause};

pub use self::event::{HangUp, ServerAction, ServerInput, ServerStep, Ticket};
pub use self::gate::{Gate, Outgoing};
pub use self::http_event::{HttpAsk, HttpClaim, HttpRefusal, HttpReply, HttpWorker};
use self::http_session::HttpEvent;
use self::http_workers::HttpWorkers;
use self::link::{BATCH_BYTES, Link, Step};
pub use self::link::{LinkNo, LinkScope};
use self::ownership::Ownership;
use self::payloads::Payloads;
use self::retention::Proposal;
pub use self::retention::{Retention, RetentionJob, RetentionTotals, SliceOutcome};
pub use self::time::TICK;
use self::time::WakingTime;
pub use self::worker_table::WorkerTable;
use crate::planted::{EngineBug, planted};

/// The engine.
pub struct ServerEngine {
    dispatch: Dispatch,
    time: WakingTime,
    now: Now,
    /// The process's own time of the last input, of which nothing is left out.
    clock: Monotonic,
    ownership: Ownership,
    gate: Gate,
    payloads: Payloads,
    /// Payload bytes in one batch. A single larger payload is a batch of its own.
    batch_bytes: usize,
    effects: Vec<DispatchEffect>,
    told: Vec<Outgoing>,
    /// What follows from the current event.
    next: VecDeque<Next>,
    /// Requests that wait for an answer. Never walked.
    requests: HashMap<RequestNo, Ticket>,
    last_request: u64,
    /// What waits for a commit, in the order of the commits.
    waiting: VecDeque<(CommitNo, Waiter)>,
    /// Jobs whose end something waits for.
    watched: BTreeSet<Seq>,
    /// The connection of each worker's current session.
    sessions: BTreeMap<WorkerId, (SessionNo, LinkNo)>,
    links: BTreeMap<LinkNo, Link>,
    http: HttpWorkers,
    /// The tokens that introduced workers.
    introduced: WorkerTable<Arc<str>>,
    /// Grace periods for workers that drain, where a request has set one.
    graces: WorkerTable<Duration>,
    retention: Retention,
    /// Why jobs are purged in the present step.
    purge_cause: Option<PurgeCause>,
    /// How many rows were removed so far.
    removed: u64,
    /// What the scheduler heard and did, if somebody wants to know.
    steps: Option<Vec<ServerStep>>,
    /// Whether these steps include effects.
    shows_effects: bool,
}

/// What follows from an event.
enum Next {
    /// An event for the scheduler.
    Event(DispatchEvent),
    /// Something came over the link of an HTTP session.
    Http { worker: WorkerId, link: LinkNo, event: HttpEvent },
}

/// What waits for a commit.
enum Waiter {
    Action(ServerAction),
    /// A settle number of an HTTP session.
    Http {
        worker: WorkerId,
        link: LinkNo,
        number: u64,
    },
}

/// The largest number of a session that a worker may choose. Its next sessions count up from there.
const SESSION_MAX: u64 = u64::MAX / 2;

impl ServerEngine {
    /// An engine around a scheduler that started to load at `begun`. `effects` are those of
    /// loading. Ended jobs are kept for `retention`, or for ever.
    pub fn new(
        dispatch: Dispatch,
        effects: Vec<DispatchEffect>,
        retention: Option<Duration>,
        begun: Now,
        now: Now,
        actions: &mut Vec<ServerAction>,
    ) -> Self {
        let retention = Retention::new(retention, now);
        let mut time = WakingTime::since(begun.monotonic, now.monotonic);
        let clock = now.monotonic;
        let (now, _) = time.at(now, false);
        let mut engine = Self {
            dispatch,
            time,
            now,
            clock,
            ownership: Ownership::default(),
            gate: Gate::default(),
            payloads: Payloads::default(),
            batch_bytes: BATCH_BYTES,
            effects,
            told: Vec::new(),
            next: VecDeque::new(),
            requests: HashMap::new(),
            last_request: 0,
            waiting: VecDeque::new(),
            watched: BTreeSet::new(),
            sessions: BTreeMap::new(),
            links: BTreeMap::new(),
            http: HttpWorkers::default(),
            introduced: WorkerTable::default(),
            graces: WorkerTable::default(),
            retention,
            purge_cause: None,
            removed: 0,
            steps: None,
            shows_effects: false,
        };
        engine.perform(actions);
        engine.follow(actions);
        engine
    }

    /// Sets how many workers may use plain HTTP at once.
    pub const fn limit_http_workers(&mut self, most: usize) {
        self.http.set_most(most);
    }

    /// How many workers use plain HTTP.
    #[must_use]
    pub fn http_worker_count(&self) -> usize {
        self.http.count()
    }

    /// Sets how many bytes of payloads are sent in one batch.
    pub const fn set_batch_bytes(&mut self, batch_bytes: usize) {
        self.batch_bytes = batch_bytes;
    }

    /// Includes all effects of the scheduler in its steps, for traces.
    pub const fn show_effects(&mut self) {
        self.shows_effects = true;
    }

    /// Renews leases only while the store has confirmed the ownership within 7/10 of this lease:
    /// [`ServerInput::Owned`].
    pub fn bind_to_ownership(&mut self, owner_lease: Duration) {
        self.ownership.bind(owner_lease, self.clock);
    }

    /// The scheduler.
    #[must_use]
    pub const fn dispatch(&self) -> &Dispatch {
        &self.dispatch
    }

    /// The state of retention.
    #[must_use]
    pub const fn retention(&self) -> &Retention {
        &self.retention
    }

    /// The scheduler's time of the last input.
    #[must_use]
    pub const fn now(&self) -> Now {
        self.now
    }

    /// Whether requests and reads of the live state are taken. While too many commits
    /// wait to be durable they are not; everything else always is.
    #[must_use]
    pub const fn takes_requests(&self) -> bool {
        !self.dispatch.is_full()
    }

    /// Whether nothing waits to be durable.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.dispatch.newest_commit().is_none()
    }

    /// When to call again at the latest, with [`ServerInput::Tick`] if nothing else happens. Never
    /// later than after [`TICK`].
    #[must_use]
    pub fn next_deadline(&self) -> Monotonic {
        let latest = self.now.monotonic.plus(TICK);
        if self.dispatch.is_full() {
            // The scheduler's time stands still, so that no deadline of its own comes nearer.
            return self.time.moment(latest);
        }
        let due = self.dispatch.next_deadline().into_iter().chain(self.http.next_deadline());
        self.time.moment(due.fold(latest, Monotonic::min))
    }

    /// Whether output of a job counts: only if it comes from the job's owner, over the owner's
    /// connection.
    #[must_use]
    pub fn may_print(&self, link: LinkNo, worker: WorkerId, job: Hold) -> bool {
        let is_here = self.sessions.get(&worker).is_some_and(|&(_, open)| open == link);
        is_here && self.dispatch.is_held(worker, job)
    }

    /// How many entries about workers there are, besides those of the scheduler.
    #[must_use]
    pub fn worker_entries(&self) -> usize {
        self.sessions.len() + self.introduced.count() + self.graces.count()
    }

    /// Like [`Self::handle`], and appends what the scheduler heard and did meanwhile, for traces
    /// and checkers.
    pub fn handle_observed(
        &mut self,
        now: Now,
        input: ServerInput,
        actions: &mut Vec<ServerAction>,
        steps: &mut Vec<ServerStep>,
    ) {
        self.steps = Some(std::mem::take(steps));
        self.handle(now, input, actions);
        *steps = self.steps.take().unwrap_or_default();
    }

    /// Handles one input at one moment of the process's clocks. Its actions are appended, to be
    /// performed in order.
    pub fn handle(&mut self, now: Now, input: ServerInput, actions: &mut Vec<ServerAction>) {
        self.clock = now.monotonic;
        self.retention.see(now);
        let (now, suspended) = self.time.at(now, self.dispatch.is_full());
        self.now = now;
        actions.extend(suspended.map(ServerAction::Suspended));
        self.take(input, actions);
        self.follow(actions);
        while let Some(action) = self.retention.next(self.dispatch.is_full()) {
            actions.push(action);
        }
    }

    fn take(&mut self, input: ServerInput, actions: &mut Vec<ServerAction>) {
        match input {
            ServerInput::Request { ticket, by, request } => {
                self.last_request += 1;
                let from = RequestNo(self.last_request);
                self.requests.insert(from, ticket);
                self.event(DispatchEvent::Request { from, by, request }, actions);
            }
            ServerInput::Barrier { ticket } => {
                self.after_commit(Waiter::Action(ServerAction::Release(ticket)), actions);
            }
            ServerInput::AwaitEnd { ticket, job } => self.await_end(ticket, job, actions),
            ServerInput::Grace { worker, grace } => {
                let known = || self.dispatch.worker_views().map(|view| view.id);
                self.graces.insert(worker, grace, known);
            }
            ServerInput::Purge { jobs, cause } => {
                self.purge_cause = Some(cause);
                self.event(DispatchEvent::Expired(jobs), actions);
            }
            ServerInput::Ask { ticket, from, ask } => self.ask(ticket, from, ask, actions),
            ServerInput::RetentionMoment { ticket, job, rows, until } => {
                actions.extend(self.retention.begin_in_moment(ticket, job, rows, until));
            }
            ServerInput::Expired(jobs) => {
                let proposal = self.retention.expired(jobs, self.dispatch.is_full());
                self.propose(proposal, actions);
            }
            ServerInput::Outdated(outdated) => {
                let proposal = self.retention.outdated(outdated, self.dispatch.is_full());
                self.propose(proposal, actions);
            }
            ServerInput::RetentionFailed => self.retention.failed(),
            ServerInput::LinkOpened { link, scope } => {
                self.links.insert(link, Link::new(scope));
            }
            ServerInput::Batch { link, batch } => self.hear(link, batch, actions),
            ServerInput::Sent(link) => {
                if let Some(open) = self.links.get_mut(&link) {
                    open.sent();
                    self.pump(link, actions);
                }
            }
            ServerInput::LinkFull(link) => self.hang_up(link, HangUp::Slow, actions),
            ServerInput::LinkClosed(link) => self.drop_link(link, actions),
            ServerInput::PayloadsRead { link, jobs, texts } => {
                if let Some(open) = self.links.get_mut(&link) {
                    open.payloads_read(&jobs, texts);
                    self.pump(link, actions);
                }
            }
            ServerInput::Fetched { fetch, found } => {
                self.event(DispatchEvent::Fetched { fetch, found }, actions);
            }
            ServerInput::Committed(number) => self.committed(number, actions),
            ServerInput::Owned { asked } => {
                for (worker, (session, renewed)) in self.ownership.confirm(asked, self.clock) {
                    self.tell(None, worker, session, vec![renewed], actions);
                }
            }
            ServerInput::TokenEnded(token) => {
                self.introduced.retain(|by| *by != token);
                self.unbind_http_workers(&token, actions);
            }
            ServerInput::Tick => self.event(DispatchEvent::Tick, actions),
        }
    }

    /// The scheduler decides about what retention has found.
    fn propose(&mut self, proposal: Option<Proposal>, actions: &mut Vec<ServerAction>) {
        let Some(Proposal { event, cause, notes }) = proposal else { return };
        self.purge_cause = cause;
        let before = self.removed;
        self.event(event, actions);
        let commit = self.dispatch.newest_commit();
        self.retention.decided(commit, self.removed - before, notes);
    }

    /// Handles what followed from the last event, one after the other.
    fn follow(&mut self, actions: &mut Vec<ServerAction>) {
        self.call_http_workers(actions);
        while let Some(next) = self.next.pop_front() {
            match next {
                Next::Event(event) => self.event(event, actions),
                Next::Http { worker, link, event } => {
                    self.http_hears(worker, link, event, actions);
                }
            }
        }
    }

    fn event(&mut self, event: DispatchEvent, actions: &mut Vec<ServerAction>) {
        if let Some(steps) = &mut self.steps {
            steps.push(ServerStep::Heard { now: self.now, event: event.clone() });
        }
        self.dispatch.handle(self.now, event, &mut self.effects);
        if let Some(steps) = self.steps.as_mut().filter(|_| self.shows_effects) {
            steps.push(ServerStep::Decided(self.effects.clone()));
        }
        self.perform(actions);
    }

    fn perform(&mut self, actions: &mut Vec<ServerAction>) {
        let mut effects = std::mem::take(&mut self.effects);
        let mut told = std::mem::take(&mut self.told);
        for mut effect in effects.drain(..) {
            if let DispatchEffect::Reply { after, answer: Answer::Done, .. } = &mut effect
                && planted(EngineBug::ActAcknowledgedEarly)
            {
                *after = None;
            }
            match self.gate.pass(effect, &mut told) {
                Some(DispatchEffect::Commit { number, mutations }) => {
                    self.commit(number, mutations, actions);
                }
                Some(DispatchEffect::Fetch { fetch, ids, keys, seqs }) => {
                    actions.push(ServerAction::Fetch { fetch, ids, keys, seqs });
                }
                Some(DispatchEffect::HangUp { worker, session }) => {
                    let open =
                        self.sessions.get(&worker).filter(|(current, _)| *current == session);
                    if let Some(&(_, link)) = open {
                        self.hang_up(link, HangUp::Over, actions);
                    }
                }
                Some(DispatchEffect::Send { .. } | DispatchEffect::Reply { .. }) | None => {}
            }
        }
        self.effects = effects;
        self.deliver(&mut told, actions);
        self.told = told;
    }

    fn commit(
        &mut self,
        number: CommitNo,
        mutations: Vec<Mutation>,
        actions: &mut Vec<ServerAction>,
    ) {
        self.payloads.committed(&mutations);
        self.retention.count(&mutations);
        let mut purges = Vec::new();
        for mutation in &mutations {
            match mutation {
                Mutation::Purge(jobs) => {
                    // Jobs are purged only in the step in which that was proposed.
                    purges.extend(self.purge_cause);
                    self.removed += jobs.len() as u64;
                }
                Mutation::Trim { leases, .. } => self.removed += leases.len() as u64,
                Mutation::Write(write)
                    if write.state.is_ended() && self.watched.remove(&write.job) =>
                {
                    if planted(EngineBug::EndAnnouncedEarly) {
                        actions.push(ServerAction::JobEnded(write.job));
                    }
                    let ended = Waiter::Action(ServerAction::JobEnded(write.job));
                    self.waiting.push_back((number, ended));
                }
                _ => {}
            }
        }
        let mut commit = Commit::new(number, mutations);
        commit.purges = purges;
        actions.push(ServerAction::Commit(commit));
    }

    fn committed(&mut self, number: CommitNo, actions: &mut Vec<ServerAction>) {
        actions.push(ServerAction::Durable(number));
        self.event(DispatchEvent::Committed(number), actions);
        self.retention.receipt(number);
        let mut told = std::mem::take(&mut self.told);
        self.gate.receipt(number, &mut told);
        self.deliver(&mut told, actions);
        self.told = told;
        while let Some((_, waiter)) = self.waiting.pop_front_if(|(commit, _)| *commit <= number) {
            self.release(waiter, actions);
        }
    }

    fn release(&mut self, waiter: Waiter, actions: &mut Vec<ServerAction>) {
        match waiter {
            Waiter::Action(action) => actions.push(action),
            Waiter::Http { worker, link, number } => self.http_settled(worker, link, number),
        }
    }

    /// Does this once everything that has been decided so far is durable.
    fn after_commit(&mut self, waiter: Waiter, actions: &mut Vec<ServerAction>) {
        match self.dispatch.newest_commit() {
            Some(_) if planted(EngineBug::BarrierReleasedEarly) => self.release(waiter, actions),
            Some(commit) => self.waiting.push_back((commit, waiter)),
            None => self.release(waiter, actions),
        }
    }

    fn await_end(&mut self, ticket: Ticket, job: JobId, actions: &mut Vec<ServerAction>) {
        match self.dispatch.job_view(job) {
            // A job in memory that has ended may have an end that is not durable yet.
            Some(view) if view.state.is_ended() => {
                self.after_commit(Waiter::Action(ServerAction::Release(ticket)), actions);
            }
            Some(view) => {
                self.watched.insert(view.seq);
                actions.push(ServerAction::Watching { ticket, job: view.seq });
            }
            None => actions.push(ServerAction::Release(ticket)),
        }
    }

    fn deliver(&mut self, told: &mut Vec<Outgoing>, actions: &mut Vec<ServerAction>) {
        for told in told.drain(..) {
            match told {
                Outgoing::Request { after, to, answer } => {
                    let ticket = self.requests.remove(&to).expect("every answer has its request");
                    if let Some(steps) = &mut self.steps {
                        steps.push(ServerStep::Answered { after, ticket, answer: answer.clone() });
                    }
                    actions.push(ServerAction::Answer { ticket, answer });
                }
                Outgoing::Worker { after, worker, session, mut messages } => {
                    self.ownership.pass(self.clock, worker, session, &mut messages);
                    if !messages.is_empty() {
                        self.tell(after, worker, session, messages, actions);
                    }
                }
            }
        }
    }

    fn tell(
        &mut self,
        after: Option<CommitNo>,
        worker: WorkerId,
        session: SessionNo,
        messages: Vec<ToWorker>,
        actions: &mut Vec<ServerAction>,
    ) {
        if let Some(steps) = &mut self.steps {
            let messages = messages.clone();
            steps.push(ServerStep::Told { after, worker, session, messages });
        }
        self.send(worker, session, messages, actions);
    }

    fn send(
        &mut self,
        worker: WorkerId,
        session: SessionNo,
        messages: Vec<ToWorker>,
        actions: &mut Vec<ServerAction>,
    ) {
        let open = self.sessions.get(&worker).filter(|(current, _)| *current == session);
        let Some(&(_, link)) = open else { return };
        let state = self.links.get_mut(&link).expect("a session has its link");
        if let Some(delivery) = state.push(messages) {
            match state.http {
                Some(worker) => {
                    let event = HttpEvent::Heard(delivery);
                    self.next.push_back(Next::Http { worker, link, event });
                }
                None => actions.push(ServerAction::Send { link, delivery, tell: false }),
            }
        }
        if state.is_overfull() {
            self.hang_up(link, HangUp::Slow, actions);
        } else {
            self.pump(link, actions);
        }
    }

    /// Sends what can be sent over this link.
    fn pump(&mut self, link: LinkNo, actions: &mut Vec<ServerAction>) {
        let Some(state) = self.links.get_mut(&link) else { return };
        let grace = state.user.and_then(|(worker, _)| self.graces.get(worker).copied());
        loop {
            match state.step(&self.payloads, self.batch_bytes, grace) {
                Step::Send { delivery, tell } => match state.http {
                    Some(worker) => {
                        let event = HttpEvent::Heard(delivery);
                        self.next.push_back(Next::Http { worker, link, event });
                        state.sent();
                    }
                    None => actions.push(ServerAction::Send { link, delivery, tell }),
                },
                Step::Read(jobs) => actions.push(ServerAction::ReadPayloads { link, jobs }),
                Step::Wait => break,
            }
        }
        if let Some(worker) = state.http.filter(|_| !state.has_messages()) {
            for number in self.http.release_settled(worker) {
                let event = HttpEvent::Settled(number);
                self.next.push_back(Next::Http { worker, link, event });
            }
        }
    }

    /// A batch came over a link.
    fn hear(&mut self, link: LinkNo, mut batch: WorkerBatch, actions: &mut Vec<ServerAction>) {
        let Some(state) = self.links.get(&link) else { return };
        if let Err(why) = self.admit(&state.scope, &mut batch) {
            self.hang_up(link, why, actions);
            return;
        }
        if let Some(FromWorker::Hello(hello)) = batch.messages.first_mut()
            && hello.kind.older().is_some()
            && planted(EngineBug::SuccessorLosesResults)
        {
            hello.reports.iter_mut().for_each(|report| report.result = None);
        }
        let WorkerBatch { worker, session, number, messages } = batch;
        let hello = match messages.first() {
            Some(FromWorker::Hello(hello)) => Some(hello.kind),
            _ => None,
        };
        match self.sessions.get(&worker).copied() {
            known if known.is_none_or(|(current, _)| session > current) && hello.is_none() => {
                // No session begins without a hello. The worker repeats everything in its next one.
                self.hang_up(link, HangUp::Invalid("a session begins with a hello"), actions);
                return;
            }
            Some((current, open))
                if session == current
                    && open != link
                    && !planted(EngineBug::SecondLinkAccepted) =>
            {
                let why = "this session belongs to another connection";
                self.hang_up(link, HangUp::Invalid(why), actions);
                return;
            }
            Some((current, _)) if session <= current => {}
            known => {
                let is_partial = matches!(hello, Some(HelloKind::ReportFor(_)));
                self.begin(link, (worker, session), is_partial, known, actions);
            }
        }
        self.event(DispatchEvent::Worker { worker, session, number, messages }, actions);
    }

    /// A session begins over this link, the only one that uses it.
    fn begin(
        &mut self,
        link: LinkNo,
        (worker, session): (WorkerId, SessionNo),
        is_partial: bool,
        known: Option<(SessionNo, LinkNo)>,
        actions: &mut Vec<ServerAction>,
    ) {
        let state = self.links.get_mut(&link).expect("the batch came over it");
        let before = state.user.filter(|(before, _)| *before != worker);
        let was_partial = state.is_partial;
        state.begin(worker, session, is_partial);
        if let Some(token) = state.scope.token.clone() {
            let (dispatch, sessions) = (&self.dispatch, &self.sessions);
            let known = || {
                let views = dispatch.worker_views().map(|view| view.id);
                views.chain(sessions.keys().copied())
            };
            self.introduced.insert(worker, token, known);
        }
        if let Some((before, session)) = before
            && self.sessions.get(&before).is_some_and(|(_, open)| *open == link)
        {
            self.end_session(before, session, was_partial, actions);
        }
        self.sessions.insert(worker, (session, link));
        if let Some((_, older)) = known.filter(|(_, older)| *older != link) {
            self.tell_of_hang_up(older, HangUp::Over, actions);
            self.links.remove(&older);
        }
        actions.push(ServerAction::Connected { worker, session, link, is_partial });
    }

    /// Whether the sender may send this. Limits a worker to the queues of its token.
    fn admit(&self, scope: &LinkScope, batch: &mut WorkerBatch) -> Result<(), HangUp> {
        // Ids of embedded workers are declared dead at the next start, so no other worker may use
        // one.
        if scope.is_embedded != batch.worker.is_embedded() {
            return Err(HangUp::Invalid("this worker id is not allowed here"));
        }
        if batch.session.0 > SESSION_MAX {
            return Err(HangUp::Invalid("the session number is too large"));
        }
        self.check_token(scope, batch.worker)?;
        for message in &mut batch.messages {
            if let FromWorker::Hello(hello) = message {
                if let Some(older) = hello.kind.older() {
                    self.check_token(scope, older)?;
                }
                let Some(queues) = &scope.queues else { continue };
                match &hello.serves {
                    Serves::All => hello.serves = Serves::Named(queues.to_vec()),
                    Serves::Named(names) => {
                        if let Some(foreign) = names.iter().find(|name| !scope.may_use(name)) {
                            return Err(not_for(foreign));
                        }
                    }
                }
            }
        }
        if scope.queues.is_some() {
            let mut holds = batch.messages.iter().flat_map(holds_of);
            holds.try_for_each(|hold| self.check_job(scope, hold.job))?;
        }
        Ok(())
    }

    /// A worker id belongs to the token that introduced it. One that none has introduced since the
    /// server started may be used if the token is valid for everything that the worker holds.
    fn check_token(&self, scope: &LinkScope, worker: WorkerId) -> Result<(), HangUp> {
        match self.introduced.get(worker) {
            _ if planted(EngineBug::IdTakenOver) => Ok(()),
            Some(token) if scope.token.as_ref() == Some(token) => Ok(()),
            Some(_) => Err(HangUp::NotPermitted("this worker id belongs to another token".into())),
            None if scope.queues.is_none() => Ok(()),
            None => {
                let mut held = self.dispatch.held_by(worker);
                held.try_for_each(|job| self.check_job(scope, job))
            }
        }
    }

    fn check_job(&self, scope: &LinkScope, job: Seq) -> Result<(), HangUp> {
        match self.dispatch.job_at(job) {
            _ if planted(EngineBug::QueueOfJobNotChecked) => Ok(()),
            // Neither the job nor its queue is named: the sender may have guessed the number.
            Some(view) if !scope.may_use(&view.queue) => {
                Err(HangUp::NotPermitted("this token is not valid for one of these jobs".into()))
            }
            _ => Ok(()),
        }
    }

    /// Closes a link from this end.
    fn hang_up(&mut self, link: LinkNo, why: HangUp, actions: &mut Vec<ServerAction>) {
        if self.links.contains_key(&link) {
            self.tell_of_hang_up(link, why, actions);
            self.drop_link(link, actions);
        }
    }

    fn tell_of_hang_up(&mut self, link: LinkNo, why: HangUp, actions: &mut Vec<ServerAction>) {
        match self.links.get(&link).and_then(|state| state.http) {
            Some(worker) => {
                let event = HttpEvent::HungUp(why);
                self.next.push_back(Next::Http { worker, link, event });
            }
            None => actions.push(ServerAction::HangUp { link, why }),
        }
    }

    fn drop_link(&mut self, link: LinkNo, actions: &mut Vec<ServerAction>) {
        let Some(state) = self.links.remove(&link) else { return };
        if let Some((worker, session)) = state.user
            && self.sessions.get(&worker) == Some(&(session, link))
        {
            self.end_session(worker, session, state.is_partial, actions);
        }
    }

    fn end_session(
        &mut self,
        worker: WorkerId,
        session: SessionNo,
        was_partial: bool,
        actions: &mut Vec<ServerAction>,
    ) {
        self.sessions.remove(&worker);
        self.ownership.forget(worker);
        if !planted(EngineBug::SessionOutlivesLink) {
            self.next.push_back(Next::Event(DispatchEvent::Closed { worker, session }));
        }
        if !was_partial {
            actions.push(ServerAction::Disconnected { worker });
        }
    }
}

fn not_for(queue: &filch_scheduler::name::Name) -> HangUp {
    HangUp::NotPermitted(format!("this token is not valid for queue {:?}", queue.as_str()))
}

/// Every job that a message names.
fn holds_of(message: &FromWorker) -> Vec<Hold> {
    match message {
        FromWorker::Hello(hello) => {
            let reported = hello.reports.iter().map(|report| report.hold);
            reported
                .chain(hello.started.iter().copied())
                .chain(hello.holds.iter().copied())
                .collect()
        }
        FromWorker::Start(hold)
        | FromWorker::Started(hold)
        | FromWorker::Stopping(hold)
        | FromWorker::Progress { hold, .. } => vec![*hold],
        FromWorker::Report(report) => vec![report.hold],
        FromWorker::Given { jobs, .. } => jobs.clone(),
        FromWorker::Heartbeat | FromWorker::Want(_) | FromWorker::Drain | FromWorker::Goodbye => {
            Vec::new()
        }
    }
}
