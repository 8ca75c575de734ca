//! Workers over plain HTTP: which process may use which id, and how their sessions are connected to
//! the scheduler.
//!
//! Each worker has an HTTP session (`http_session`), which uses a link like any other worker; only
//! that the engine itself is its other end. What goes over it is queued and handled after the
//! current event.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use filch_scheduler::id::{MessageNo, SessionNo, WorkerId};
use filch_scheduler::message::{FromWorker, Hello, Serves, WorkerBatch};
use filch_scheduler::time::Monotonic;

use super::event::{ServerAction, Ticket};
use super::http_event::{HttpAsk, HttpRefusal, HttpWorker};
use super::http_session::{Call, HttpEffect, HttpEvent, HttpSession};
use super::link::{Link, LinkNo};
use super::{Next, ServerEngine, Waiter};
use crate::planted::{EngineBug, planted};

/// How many workers may use plain HTTP at once, unless the shell sets another limit.
const WORKERS_MAX: usize = 10_000;

/// All workers over plain HTTP.
pub(super) struct HttpWorkers {
    by_worker: BTreeMap<WorkerId, Entry>,
    /// When each of them has to be called again.
    deadlines: BTreeSet<(Monotonic, WorkerId)>,
    most: usize,
    last_link: u64,
    last_session: SessionNo,
}

struct Entry {
    /// The process and the token that opened it: no other may use it.
    owner: HttpWorker,
    session: HttpSession,
    link: Option<LinkNo>,
    number: SessionNo,
    /// How many batches were sent in the current session.
    said: MessageNo,
    deadline: Monotonic,
    /// Settle numbers that wait for messages on their way.
    settled: Vec<u64>,
}

impl Default for HttpWorkers {
    fn default() -> Self {
        Self {
            by_worker: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            most: WORKERS_MAX,
            last_link: 0,
            last_session: SessionNo(0),
        }
    }
}

impl HttpWorkers {
    pub(super) const fn set_most(&mut self, most: usize) {
        self.most = most;
    }

    pub(super) fn count(&self) -> usize {
        self.by_worker.len()
    }

    /// When one of them has to be called again.
    pub(super) fn next_deadline(&self) -> Option<Monotonic> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    fn due(&self, now: Monotonic) -> Vec<WorkerId> {
        let due = self.deadlines.iter().take_while(|(at, _)| *at <= now);
        due.map(|&(_, worker)| worker).collect()
    }

    fn replan(&mut self, worker: WorkerId) {
        let Some(entry) = self.by_worker.get_mut(&worker) else { return };
        let deadline = entry.session.next_deadline();
        if deadline != entry.deadline {
            self.deadlines.remove(&(entry.deadline, worker));
            self.deadlines.insert((deadline, worker));
            entry.deadline = deadline;
        }
    }

    fn remove(&mut self, worker: WorkerId) -> Option<Entry> {
        let entry = self.by_worker.remove(&worker)?;
        self.deadlines.remove(&(entry.deadline, worker));
        Some(entry)
    }

    /// Whether this link is the one of the worker's current session.
    fn uses(&self, worker: WorkerId, link: LinkNo) -> bool {
        self.by_worker.get(&worker).is_some_and(|entry| entry.link == Some(link))
    }

    /// The link has nothing on its way any more.
    pub(super) fn release_settled(&mut self, worker: WorkerId) -> Vec<u64> {
        let entry = self.by_worker.get_mut(&worker);
        entry.map(|entry| std::mem::take(&mut entry.settled)).unwrap_or_default()
    }
}

impl ServerEngine {
    /// A request over plain HTTP.
    pub(super) fn ask(
        &mut self,
        ticket: Ticket,
        from: HttpWorker,
        mut ask: HttpAsk,
        actions: &mut Vec<ServerAction>,
    ) {
        let worker = from.worker;
        match self.admit_ask(from, &mut ask) {
            Ok(Admitted::Known) => {}
            Ok(Admitted::Rebound) => self.http_event(worker, HttpEvent::Rebound, actions),
            Err(refusal) => {
                actions.push(ServerAction::Respond { ticket, response: Err(refusal) });
                return;
            }
        }
        self.http_event(worker, HttpEvent::Asked(Call { ask, ticket }), actions);
    }

    /// Whether the sender may send this. Limits a worker to the queues of its token. Afterwards the
    /// worker has a session.
    fn admit_ask(&mut self, from: HttpWorker, ask: &mut HttpAsk) -> Result<Admitted, HttpRefusal> {
        if from.worker.is_embedded() {
            return Err(HttpRefusal::ReservedId);
        }
        if let (HttpAsk::Claim(claim), Some(queues)) = (&mut *ask, &from.scope.queues) {
            match &claim.serves {
                Serves::All => claim.serves = Serves::Named(queues.to_vec()),
                Serves::Named(names) => {
                    if let Some(foreign) = names.iter().find(|name| !from.scope.may_use(name)) {
                        return Err(HttpRefusal::WrongQueue(foreign.clone()));
                    }
                }
            }
        }
        if let Some(entry) = self.http.by_worker.get_mut(&from.worker) {
            let owner = &mut entry.owner;
            let is_rebound = owner.scope.token.is_none() && from.scope.token.is_some();
            if owner.scope.token != from.scope.token && !is_rebound {
                return Err(HttpRefusal::WrongToken);
            }
            if owner.instance != from.instance && !planted(EngineBug::InstanceNotChecked) {
                return Err(HttpRefusal::IdInUse);
            }
            if is_rebound {
                owner.scope = from.scope;
                return Ok(Admitted::Rebound);
            }
            return Ok(Admitted::Known);
        }
        // The first claim of a process finds that its id has jobs from before a restart of the
        // server: another process has chosen the same id.
        if let HttpAsk::Claim(claim) = ask
            && claim.number == 1
            && claim.holds.is_empty()
            && self.dispatch.held_by(from.worker).next().is_some()
            && !planted(EngineBug::InstanceNotChecked)
        {
            return Err(HttpRefusal::IdInUse);
        }
        if self.http.by_worker.len() >= self.http.most {
            return Err(HttpRefusal::TooManyWorkers(self.http.most));
        }
        let held = self.dispatch.holds_of(from.worker).collect();
        let session = HttpSession::new(self.now.monotonic, self.dispatch.lease(), held);
        let deadline = session.next_deadline();
        self.http.deadlines.insert((deadline, from.worker));
        let entry = Entry {
            session,
            link: None,
            number: SessionNo(0),
            said: MessageNo(0),
            deadline,
            settled: Vec::new(),
            owner: from,
        };
        self.http.by_worker.insert(entry.owner.worker, entry);
        Ok(Admitted::Known)
    }

    /// Calls the sessions whose time has come.
    pub(super) fn call_http_workers(&mut self, actions: &mut Vec<ServerAction>) {
        for worker in self.http.due(self.now.monotonic) {
            self.http_event(worker, HttpEvent::Tick, actions);
        }
    }

    /// The workers with this token may come back with another one.
    pub(super) fn unbind_http_workers(
        &mut self,
        token: &Arc<str>,
        actions: &mut Vec<ServerAction>,
    ) {
        let mut unbound = Vec::new();
        for (&worker, entry) in &mut self.http.by_worker {
            if entry.owner.scope.token.take_if(|it| it == token).is_some() {
                unbound.push(worker);
            }
        }
        for worker in unbound {
            self.http_event(worker, HttpEvent::TokenEnded, actions);
        }
    }

    /// Something came over the link of an HTTP session.
    pub(super) fn http_hears(
        &mut self,
        worker: WorkerId,
        link: LinkNo,
        event: HttpEvent,
        actions: &mut Vec<ServerAction>,
    ) {
        if self.http.uses(worker, link) {
            self.http_event(worker, event, actions);
        }
    }

    /// Everything that was decided before this settle number is durable.
    pub(super) fn http_settled(&mut self, worker: WorkerId, link: LinkNo, number: u64) {
        if !self.http.uses(worker, link) {
            return;
        }
        let has_more = self.links.get(&link).is_some_and(Link::has_messages);
        match self.http.by_worker.get_mut(&worker) {
            Some(entry) if has_more => entry.settled.push(number),
            _ => {
                let event = HttpEvent::Settled(number);
                self.next.push_back(Next::Http { worker, link, event });
            }
        }
    }

    fn http_event(&mut self, worker: WorkerId, event: HttpEvent, actions: &mut Vec<ServerAction>) {
        let Some(entry) = self.http.by_worker.get_mut(&worker) else { return };
        for effect in entry.session.handle(self.now.monotonic, event) {
            match effect {
                HttpEffect::Open(hello) => self.open_http(worker, hello, actions),
                HttpEffect::Say(messages) => self.say_http(worker, messages, actions),
                HttpEffect::Settle(number) => {
                    let link = self.http.by_worker.get(&worker).and_then(|entry| entry.link);
                    if let Some(link) = link {
                        self.after_commit(Waiter::Http { worker, link, number }, actions);
                    }
                }
                HttpEffect::Respond(ticket, response) => {
                    actions.push(ServerAction::Respond { ticket, response });
                }
                HttpEffect::Leave => {
                    if let Some(link) = self.http.remove(worker).and_then(|entry| entry.link) {
                        self.drop_link(link, actions);
                    }
                }
            }
        }
        self.http.replan(worker);
    }

    /// Begins a session over a new link.
    fn open_http(&mut self, worker: WorkerId, hello: Hello, actions: &mut Vec<ServerAction>) {
        let known = self.dispatch.session_of(worker).unwrap_or(SessionNo(0));
        let http = &mut self.http;
        let Some(entry) = http.by_worker.get_mut(&worker) else { return };
        http.last_link += 1;
        let link = LinkNo::http(http.last_link);
        http.last_session = http.last_session.max(known).next();
        (entry.number, entry.said) = (http.last_session, MessageNo(0));
        entry.settled.clear();
        let before = entry.link.replace(link);
        let state = Link::http(entry.owner.scope.clone(), worker);
        if let Some(before) = before {
            self.drop_link(before, actions);
        }
        self.links.insert(link, state);
        self.say_http(worker, vec![FromWorker::Hello(hello)], actions);
    }

    fn say_http(
        &mut self,
        worker: WorkerId,
        messages: Vec<FromWorker>,
        actions: &mut Vec<ServerAction>,
    ) {
        let Some(entry) = self.http.by_worker.get_mut(&worker) else { return };
        let Some(link) = entry.link else { return };
        entry.said = entry.said.next();
        let (session, number) = (entry.number, entry.said);
        let batch = WorkerBatch { worker, session, number, messages };
        self.hear(link, batch, actions);
    }
}

/// Who has sent a request.
enum Admitted {
    /// The owner of the session.
    Known,
    /// The owner of the session, which has another token than before.
    Rebound,
}
