//! The engine of a server: everything between "an input arrived" and "do this".
//!
//! It runs the scheduler ([`Dispatch`]), holds messages and answers until their commits are durable
//! (`gate`), knows who waits for what, which worker uses which connection (`link`) and under whose
//! token, adds payloads on their way to workers (`payloads`), and decides which time counts for
//! leases (`time`).
//!
//! Nothing here calls itself through the outside: a connection that breaks while another event is
//! handled is queued and handled after it.

mod event;
mod link;
mod payloads;
mod time;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use filch_scheduler::dispatch::{Answer, Dispatch, DispatchEffect, DispatchEvent};
use filch_scheduler::gate::{Gate, Outgoing};
use filch_scheduler::id::{CommitNo, Hold, JobId, RequestNo, Seq, SessionNo, WorkerId};
use filch_scheduler::message::{FromWorker, Serves, ToWorker, WorkerBatch};
use filch_scheduler::record::Mutation;
use filch_scheduler::time::{Monotonic, Now};
use filch_store::{Commit, PurgeCause};

pub use self::event::{HangUp, ServerAction, ServerInput, ServerStep, Ticket};
use self::link::{Link, Step};
pub use self::link::{LinkNo, LinkScope};
use self::payloads::Payloads;
pub use self::time::TICK;
use self::time::WakingTime;
use crate::planted::{EngineBug, planted};

/// The engine.
pub struct ServerEngine {
    dispatch: Dispatch,
    time: WakingTime,
    now: Now,
    gate: Gate,
    payloads: Payloads,
    effects: Vec<DispatchEffect>,
    told: Vec<Outgoing>,
    /// Events that follow from the current one.
    next: VecDeque<DispatchEvent>,
    /// Requests that wait for an answer. Never walked.
    requests: HashMap<RequestNo, Ticket>,
    last_request: u64,
    /// What waits for a commit, in the order of the commits.
    waiting: VecDeque<(CommitNo, ServerAction)>,
    /// Jobs whose end something waits for.
    watched: BTreeSet<Seq>,
    /// The connection of each worker's current session.
    sessions: BTreeMap<WorkerId, (SessionNo, LinkNo)>,
    links: BTreeMap<LinkNo, Link>,
    /// The tokens that introduced workers.
    introduced: BTreeMap<WorkerId, Arc<str>>,
    /// Grace periods for workers that drain, where a request has set one.
    graces: BTreeMap<WorkerId, Duration>,
    purge_cause: Option<PurgeCause>,
    /// How many rows were removed so far.
    removed: u64,
    /// What the scheduler heard and did, if somebody wants to know.
    steps: Option<Vec<ServerStep>>,
}

/// Beyond this many entries, those of workers that are gone are dropped from a table of workers.
const REMEMBERED_MAX: usize = 1_024;

impl ServerEngine {
    /// An engine around a scheduler that started to load at `begun`. `effects` are those of
    /// loading.
    pub fn new(
        dispatch: Dispatch,
        effects: Vec<DispatchEffect>,
        begun: Now,
        now: Now,
        actions: &mut Vec<ServerAction>,
    ) -> Self {
        let mut time = WakingTime::since(begun.monotonic, now.monotonic);
        let (now, _) = time.at(now, false);
        let mut engine = Self {
            dispatch,
            time,
            now,
            gate: Gate::default(),
            payloads: Payloads::default(),
            effects,
            told: Vec::new(),
            next: VecDeque::new(),
            requests: HashMap::new(),
            last_request: 0,
            waiting: VecDeque::new(),
            watched: BTreeSet::new(),
            sessions: BTreeMap::new(),
            links: BTreeMap::new(),
            introduced: BTreeMap::new(),
            graces: BTreeMap::new(),
            purge_cause: None,
            removed: 0,
            steps: None,
        };
        engine.perform(actions);
        engine.follow(actions);
        engine
    }

    /// The scheduler.
    #[must_use]
    pub const fn dispatch(&self) -> &Dispatch {
        &self.dispatch
    }

    /// The scheduler's time of the last input.
    #[must_use]
    pub const fn now(&self) -> Now {
        self.now
    }

    /// Whether requests, proposals and reads of the live state are taken. While too many commits
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
        let due = self.dispatch.next_deadline().map_or(latest, |at| at.min(latest));
        self.time.moment(due)
    }

    /// Whether output of a job counts: only if it comes from the job's owner, over the owner's
    /// connection.
    #[must_use]
    pub fn may_print(&self, link: LinkNo, worker: WorkerId, job: Hold) -> bool {
        let is_here = self.sessions.get(&worker).is_some_and(|&(_, open)| open == link);
        is_here && self.dispatch.is_held(worker, job)
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
        let (now, suspended) = self.time.at(now, self.dispatch.is_full());
        self.now = now;
        actions.extend(suspended.map(ServerAction::Suspended));
        self.take(input, actions);
        self.follow(actions);
    }

    fn take(&mut self, input: ServerInput, actions: &mut Vec<ServerAction>) {
        match input {
            ServerInput::Request { ticket, request } => {
                self.last_request += 1;
                let from = RequestNo(self.last_request);
                self.requests.insert(from, ticket);
                self.event(DispatchEvent::Request { from, request }, actions);
            }
            ServerInput::Barrier { ticket } => {
                self.after_commit(ServerAction::Release(ticket), actions);
            }
            ServerInput::AwaitEnd { ticket, job } => self.await_end(ticket, job, actions),
            ServerInput::Grace { worker, grace } => {
                self.graces.insert(worker, grace);
                if self.graces.len() > REMEMBERED_MAX {
                    let known = self.known_workers();
                    self.graces.retain(|worker, _| known.contains(worker));
                }
            }
            ServerInput::Propose { ticket, event, cause } => {
                self.purge_cause = cause.or(self.purge_cause);
                let before = self.removed;
                self.event(event, actions);
                if let Some(ticket) = ticket {
                    let removed = self.removed - before;
                    self.after_commit(ServerAction::Decided { ticket, removed }, actions);
                }
            }
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
            ServerInput::TokenEnded(token) => self.introduced.retain(|_, by| *by != token),
            ServerInput::Tick => self.event(DispatchEvent::Tick, actions),
        }
    }

    /// Handles what followed from the last event, one after the other.
    fn follow(&mut self, actions: &mut Vec<ServerAction>) {
        while let Some(event) = self.next.pop_front() {
            self.event(event, actions);
        }
    }

    fn event(&mut self, event: DispatchEvent, actions: &mut Vec<ServerAction>) {
        if let Some(steps) = &mut self.steps {
            steps.push(ServerStep::Heard { now: self.now, event: event.clone() });
        }
        self.dispatch.handle(self.now, event, &mut self.effects);
        if let Some(steps) = &mut self.steps {
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
        let mut purges = Vec::new();
        for mutation in &mutations {
            match mutation {
                Mutation::Purge(jobs) => {
                    // Jobs are purged only after a proposal, in the same step.
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
                    self.waiting.push_back((number, ServerAction::JobEnded(write.job)));
                }
                _ => {}
            }
        }
        let mut commit = Commit::new(number, mutations);
        commit.purges = purges;
        actions.push(ServerAction::Commit(commit));
    }

    fn committed(&mut self, number: CommitNo, actions: &mut Vec<ServerAction>) {
        self.event(DispatchEvent::Committed(number), actions);
        let mut told = std::mem::take(&mut self.told);
        self.gate.receipt(number, &mut told);
        self.deliver(&mut told, actions);
        self.told = told;
        while let Some((_, action)) = self.waiting.pop_front_if(|(commit, _)| *commit <= number) {
            actions.push(action);
        }
    }

    /// Does this once everything that has been decided so far is durable.
    fn after_commit(&mut self, action: ServerAction, actions: &mut Vec<ServerAction>) {
        match self.dispatch.newest_commit() {
            Some(_) if planted(EngineBug::BarrierReleasedEarly) => actions.push(action),
            Some(commit) => self.waiting.push_back((commit, action)),
            None => actions.push(action),
        }
    }

    fn await_end(&mut self, ticket: Ticket, job: JobId, actions: &mut Vec<ServerAction>) {
        match self.dispatch.job_view(job) {
            // A job in memory that has ended may have an end that is not durable yet.
            Some(view) if view.state.is_ended() => {
                self.after_commit(ServerAction::Release(ticket), actions);
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
                Outgoing::Worker { after, worker, session, messages, .. } => {
                    if let Some(steps) = &mut self.steps {
                        let messages = messages.clone();
                        steps.push(ServerStep::Told { after, worker, session, messages });
                    }
                    self.send(worker, session, messages, actions);
                }
            }
        }
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
            actions.push(ServerAction::Send { link, delivery, tell: false });
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
        let grace = state.user.and_then(|(worker, _)| self.graces.get(&worker).copied());
        loop {
            match state.step(&self.payloads, grace) {
                Step::Send { delivery, tell } => {
                    actions.push(ServerAction::Send { link, delivery, tell });
                }
                Step::Read(jobs) => actions.push(ServerAction::ReadPayloads { link, jobs }),
                Step::Wait => return,
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
        let is_hello = matches!(messages.first(), Some(FromWorker::Hello(_)));
        match self.sessions.get(&worker).copied() {
            known if known.is_none_or(|(current, _)| session > current) && !is_hello => {
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
            known => self.begin(link, worker, session, known, actions),
        }
        self.event(DispatchEvent::Worker { worker, session, number, messages }, actions);
    }

    /// A session begins over this link, the only one that uses it.
    fn begin(
        &mut self,
        link: LinkNo,
        worker: WorkerId,
        session: SessionNo,
        known: Option<(SessionNo, LinkNo)>,
        actions: &mut Vec<ServerAction>,
    ) {
        let state = self.links.get_mut(&link).expect("the batch came over it");
        let before = state.user.filter(|(before, _)| *before != worker);
        state.begin(worker, session);
        if let Some(token) = state.scope.token.clone() {
            self.introduce(worker, token);
        }
        if let Some((before, session)) = before
            && self.sessions.get(&before).is_some_and(|(_, open)| *open == link)
        {
            self.end_session(before, session, actions);
        }
        self.sessions.insert(worker, (session, link));
        if let Some((_, older)) = known.filter(|(_, older)| *older != link) {
            self.links.remove(&older);
            actions.push(ServerAction::HangUp { link: older, why: HangUp::Over });
        }
        actions.push(ServerAction::Connected { worker, session, link });
    }

    fn introduce(&mut self, worker: WorkerId, token: Arc<str>) {
        self.introduced.insert(worker, token);
        if self.introduced.len() > REMEMBERED_MAX + 2 * self.sessions.len() {
            let known = self.known_workers();
            let sessions = &self.sessions;
            let is_known = |it: &WorkerId| known.contains(it) || sessions.contains_key(it);
            self.introduced.retain(|worker, _| is_known(worker));
        }
    }

    fn known_workers(&self) -> BTreeSet<WorkerId> {
        self.dispatch.worker_views().map(|view| view.id).collect()
    }

    /// Whether the sender may send this. Limits a worker to the queues of its token.
    fn admit(&self, scope: &LinkScope, batch: &mut WorkerBatch) -> Result<(), HangUp> {
        // Ids of embedded workers are declared dead at the next start, so no other worker may use
        // one.
        if scope.is_embedded != batch.worker.is_embedded() {
            return Err(HangUp::Invalid("this worker id is not allowed here"));
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
        match self.introduced.get(&worker) {
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
            Some(view) if !scope.may_use(&view.queue) => Err(not_for(&view.queue)),
            _ => Ok(()),
        }
    }

    /// Closes a link from this end.
    fn hang_up(&mut self, link: LinkNo, why: HangUp, actions: &mut Vec<ServerAction>) {
        if self.links.contains_key(&link) {
            actions.push(ServerAction::HangUp { link, why });
            self.drop_link(link, actions);
        }
    }

    fn drop_link(&mut self, link: LinkNo, actions: &mut Vec<ServerAction>) {
        let Some(state) = self.links.remove(&link) else { return };
        if let Some((worker, session)) = state.user
            && self.sessions.get(&worker) == Some(&(session, link))
        {
            self.end_session(worker, session, actions);
        }
    }

    fn end_session(
        &mut self,
        worker: WorkerId,
        session: SessionNo,
        actions: &mut Vec<ServerAction>,
    ) {
        self.sessions.remove(&worker);
        self.gate.close(worker, session);
        if !planted(EngineBug::SessionOutlivesLink) {
            self.next.push_back(DispatchEvent::Closed { worker, session });
        }
        actions.push(ServerAction::Disconnected { worker });
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
