//! The loop around the scheduler: events in, effects out, on its own thread.
//!
//! Commits go to the writer. Messages and answers wait in the gate until their commit is durable.
//! The loop never waits for a disk or a socket: workers that read too slowly are disconnected, and
//! jobs are looked up in the store on other threads.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use filch_api::session::Output;
use filch_scheduler::dispatch::{Answer, Dispatch, DispatchEffect, DispatchEvent, Request};
use filch_scheduler::gate::{Gate, Outgoing};
use filch_scheduler::id::{CommitNo, FetchNo, JobId, RequestNo, Seq, SessionNo, WorkerId};
use filch_scheduler::message::{Assignment, FromWorker, ToWorker, WorkerBatch};
use filch_scheduler::record::{JobRow, Mutation, Note};
use filch_scheduler::time::Now;
use filch_store::{Commit, CommitError, PurgeCause, Store, StoreError};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, UnboundedSender};
use tokio::sync::{Notify, oneshot};

use crate::clock::{Clock, TICK, WakingTime};
use crate::events::{Events, Happened};
use crate::link::{Batch, LinkNo};
use crate::logs::Logs;
use crate::metrics::Metrics;
use crate::payloads::Payloads;
use crate::retention::{Proposal, Retention, Turns};
use crate::roster::Roster;
use crate::writer::{Receipt, Writer};

/// Events for the loop.
pub(crate) enum Input {
    /// A request of a client.
    Ask { request: Request, reply: oneshot::Sender<Answer> },
    /// Reads the live state now, and returns the result once everything it saw is durable.
    Look(Look),
    /// A batch of messages from a worker.
    Heard { link: LinkNo, way: Way, heard: WorkerBatch },
    /// Output of jobs, from a worker.
    Printed { link: LinkNo, worker: WorkerId, output: Vec<Output> },
    /// Waits for a job to end: answered once the end is durable, or at once if the job is not in
    /// memory.
    Await { job: JobId, tell: oneshot::Sender<()> },
    /// The grace period for running jobs when this worker drains.
    Grace { worker: WorkerId, grace: Duration },
    /// A worker's connection broke.
    LinkClosed(LinkNo),
    /// Ended jobs to purge, and why.
    Purge { jobs: Vec<(Seq, JobId)>, cause: PurgeCause },
    /// Shuts the server down.
    Stop,
}

/// Sends to a worker.
#[derive(Clone)]
pub(crate) struct Way {
    pub(crate) batches: Sender<Batch>,
    /// Ends the connection.
    pub(crate) hang_up: Arc<Notify>,
}

/// Reads the live state.
pub(crate) type Look = Box<dyn FnOnce(&Dispatch, Now) -> Tell + Send>;

/// Returns what was read.
pub(crate) type Tell = Box<dyn FnOnce() + Send>;

/// A handle to the loop.
#[derive(Clone)]
pub(crate) struct Doorbell {
    inputs: Sender<Input>,
}

/// The server has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended;

/// How many inputs may wait; then senders wait, too.
pub(crate) const INPUTS_MAX: usize = 4_096;

impl Doorbell {
    pub(crate) const fn new(inputs: Sender<Input>) -> Self {
        Self { inputs }
    }

    pub(crate) async fn ring(&self, input: Input) -> Result<(), Ended> {
        self.inputs.send(input).await.map_err(|_| Ended)
    }

    /// Sends a request and waits for the answer.
    pub(crate) async fn ask(&self, request: Request) -> Result<Answer, Ended> {
        let (reply, answer) = oneshot::channel();
        self.ring(Input::Ask { request, reply }).await?;
        answer.await.map_err(|_| Ended)
    }

    /// Waits until a job has ended, or is not in memory.
    pub(crate) async fn end_of(&self, job: JobId) -> Result<(), Ended> {
        let (tell, told) = oneshot::channel();
        self.ring(Input::Await { job, tell }).await?;
        told.await.map_err(|_| Ended)
    }

    /// Reads the live state.
    pub(crate) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Dispatch, Now) -> T + Send + 'static,
    ) -> Result<T, Ended> {
        let (tell, seen) = oneshot::channel();
        let look = move |dispatch: &Dispatch, now| -> Tell {
            let seen = look(dispatch, now);
            // The receiver may have stopped waiting.
            Box::new(move || drop(tell.send(seen)))
        };
        self.ring(Input::Look(Box::new(look))).await?;
        seen.await.map_err(|_| Ended)
    }
}

/// The result of a look-up in the store.
pub(crate) type Fetched = (FetchNo, Result<Vec<JobRow>, StoreError>);

/// The scheduler and everything around it.
pub(crate) struct Brain {
    pub(crate) dispatch: Dispatch,
    pub(crate) clock: Clock,
    pub(crate) waking: WakingTime,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) events: Arc<Events>,
    pub(crate) logs: Arc<Logs>,
    pub(crate) roster: Arc<Roster>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) writer: Writer,
    pub(crate) inputs: Receiver<Input>,
    pub(crate) receipts: UnboundedReceiver<Receipt>,
    pub(crate) fetches: UnboundedSender<Fetched>,
    pub(crate) fetched: UnboundedReceiver<Fetched>,
    pub(crate) retention: Arc<Retention>,
    pub(crate) proposed: UnboundedReceiver<Proposal>,
    pub(crate) desk: Desk,
}

/// Pending requests, messages and commits.
#[derive(Default)]
pub(crate) struct Desk {
    gate: Gate,
    payloads: Payloads,
    effects: Vec<DispatchEffect>,
    told: Vec<Outgoing>,
    /// Requests that wait for an answer.
    asked: HashMap<RequestNo, oneshot::Sender<Answer>>,
    last_request: u64,
    looks: VecDeque<(CommitNo, Tell)>,
    /// Requests that wait for a job to end.
    awaited: HashMap<Seq, Vec<oneshot::Sender<()>>>,
    sessions: HashMap<WorkerId, Connection>,
    links: HashMap<LinkNo, (WorkerId, SessionNo)>,
    /// Events whose commits are not durable yet.
    untold: VecDeque<(CommitNo, Vec<Happened>)>,
    receipted: CommitNo,
    /// The cause of the last proposal to purge jobs.
    purge_cause: Option<PurgeCause>,
    /// Counts commits between slices of retention.
    turns: Turns,
    /// Grace periods for workers that drain, where a request has set one.
    graces: HashMap<WorkerId, Duration>,
    /// Names of workers whose connection broke, for the log: they may still be lost.
    names: HashMap<WorkerId, String>,
}

/// Once as many names are remembered, those of workers that are gone are dropped.
const NAMES_MAX: usize = 1_024;

/// The connection of a worker's current session.
struct Connection {
    session: SessionNo,
    link: LinkNo,
    way: Way,
    /// The worker's name, if it has one.
    name: Option<String>,
}

/// Why the loop has ended.
#[derive(Debug)]
pub(crate) enum End {
    /// A shutdown was requested.
    Asked,
    /// A commit failed.
    Commit(CommitError),
    /// The store cannot be read.
    Read(StoreError),
}

/// After this many inputs the clock is read, however many more wait.
const INPUTS_TOGETHER: usize = 64;

impl Brain {
    /// Runs until shutdown or a store error. `first` are the effects of loading.
    pub(crate) async fn run(mut self, first: Vec<DispatchEffect>) -> End {
        self.desk.effects = first;
        if let Err(end) = self.perform() {
            return end;
        }
        loop {
            let now = self.waking.now();
            let latest = now.monotonic.plus(self.retention.next_moment(now).unwrap_or(TICK));
            let wake = self.dispatch.next_deadline().map_or(latest, |at| at.min(latest));
            let wake = tokio::time::Instant::from_std(self.waking.instant(wake));
            let is_full = self.dispatch.is_full();
            let step = tokio::select! {
                biased;
                receipt = self.receipts.recv() => match receipt {
                    Some(receipt) => self.receipt(receipt),
                    None => return End::Commit(CommitError::Broken("the writer thread has ended".into())),
                },
                Some(fetched) = self.fetched.recv() => self.fetched(fetched),
                input = self.inputs.recv(), if !is_full => match input {
                    Some(input) => self.take(input),
                    None => return End::Asked,
                },
                Some(proposal) = self.proposed.recv(), if !is_full => self.propose(proposal),
                () = tokio::time::sleep_until(wake) => self.handle(DispatchEvent::Tick),
            };
            if let Err(end) = step.and_then(|()| self.take_more()) {
                return end;
            }
            if self.inputs.is_empty() && self.dispatch.newest_commit().is_none() {
                self.retention.idle_moment(self.clock.now());
            }
        }
    }

    /// Takes inputs that are there already, without waiting, a few at a time.
    fn take_more(&mut self) -> Result<(), End> {
        for _ in 0..INPUTS_TOGETHER {
            if let Ok(receipt) = self.receipts.try_recv() {
                self.receipt(receipt)?;
            }
            if self.dispatch.is_full() {
                break;
            }
            match self.inputs.try_recv() {
                Ok(input) => self.take(input)?,
                Err(_) => break,
            }
        }
        Ok(())
    }

    fn take(&mut self, input: Input) -> Result<(), End> {
        match input {
            Input::Ask { request, reply } => {
                self.desk.last_request += 1;
                let from = RequestNo(self.desk.last_request);
                self.desk.asked.insert(from, reply);
                self.handle(DispatchEvent::Request { from, request })
            }
            Input::Look(look) => {
                let tell = look(&self.dispatch, self.waking.now());
                match self.dispatch.newest_commit() {
                    Some(commit) => self.desk.looks.push_back((commit, tell)),
                    None => tell(),
                }
                Ok(())
            }
            Input::Heard { link, way, heard } => self.hear(link, way, heard),
            Input::Printed { link, worker, output } => {
                self.print(link, worker, output);
                Ok(())
            }
            Input::Await { job, tell } => {
                let live = self.dispatch.job_view(job).filter(|view| !view.state.is_ended());
                match live {
                    Some(view) => {
                        let waiting = self.desk.awaited.entry(view.seq).or_default();
                        // A client that asked again no longer waits for its earlier request.
                        waiting.retain(|tell| !tell.is_closed());
                        waiting.push(tell);
                    }
                    None => {
                        let _ = tell.send(());
                    }
                }
                Ok(())
            }
            Input::Grace { worker, grace } => {
                let known: BTreeSet<WorkerId> =
                    self.dispatch.worker_views().map(|view| view.id).collect();
                self.desk.graces.retain(|worker, _| known.contains(worker));
                self.desk.graces.insert(worker, grace);
                Ok(())
            }
            Input::LinkClosed(link) => match self.desk.links.remove(&link) {
                Some((worker, session)) => self.closed(worker, session),
                None => Ok(()),
            },
            Input::Purge { jobs, cause } => {
                self.desk.purge_cause = Some(cause);
                self.handle(DispatchEvent::Expired(jobs))
            }
            Input::Stop => Err(End::Asked),
        }
    }

    /// Handles a proposal of retention, and answers once the decision is durable.
    fn propose(&mut self, proposal: Proposal) -> Result<(), End> {
        let Proposal { event, cause, decided } = proposal;
        self.desk.purge_cause = cause.or(self.desk.purge_cause);
        let before = self.desk.turns.cleared();
        self.handle(event)?;
        let count = self.desk.turns.cleared() - before;
        // The proposer may have stopped waiting.
        let tell: Tell = Box::new(move || _ = decided.send(count));
        match self.dispatch.newest_commit() {
            Some(commit) => self.desk.looks.push_back((commit, tell)),
            None => tell(),
        }
        Ok(())
    }

    fn hear(&mut self, link: LinkNo, way: Way, heard: WorkerBatch) -> Result<(), End> {
        let WorkerBatch { worker, session, number, messages } = heard;
        let known = self.desk.sessions.get(&worker).map(|connection| connection.session);
        if matches!(messages.first(), Some(FromWorker::Hello(_)))
            && known.is_none_or(|known| session > known)
        {
            let name = self.roster.about(worker).and_then(|about| about.name);
            let id = filch_api::id::worker(worker);
            tracing::info!(worker = id, name, session = session.0, "worker connected");
            self.desk.names.remove(&worker);
            let connection = Connection { session, link, way, name };
            if let Some(older) = self.desk.sessions.insert(worker, connection) {
                self.desk.links.remove(&older.link);
                older.way.hang_up.notify_one();
            }
            self.desk.links.insert(link, (worker, session));
        } else if known.is_none() {
            // An unknown worker gets its answer over the same connection.
            self.desk.sessions.insert(worker, Connection { session, link, way, name: None });
            self.desk.links.insert(link, (worker, session));
        } else if known.is_some_and(|known| session > known) {
            // No session begins without a hello.
            way.hang_up.notify_one();
        }
        self.handle(DispatchEvent::Worker { worker, session, number, messages })
    }

    /// Output counts only if it comes from the job's owner, over the owner's connection.
    fn print(&self, link: LinkNo, worker: WorkerId, output: Vec<Output>) {
        if self.desk.sessions.get(&worker).is_none_or(|open| open.link != link) {
            return;
        }
        for output in output {
            if self.dispatch.is_held(worker, output.job.into()) {
                self.logs.print(output);
            }
        }
    }

    fn closed(&mut self, worker: WorkerId, session: SessionNo) -> Result<(), End> {
        if self.desk.sessions.get(&worker).is_some_and(|open| open.session == session)
            && let Some(open) = self.desk.sessions.remove(&worker)
        {
            self.disconnected(worker, open.name);
        }
        self.desk.gate.close(worker, session);
        self.handle(DispatchEvent::Closed { worker, session })
    }

    /// Logs that a worker's connection is over, and remembers the worker's name.
    fn disconnected(&mut self, worker: WorkerId, name: Option<String>) {
        tracing::info!(worker = filch_api::id::worker(worker), name, "worker disconnected");
        let Some(name) = name else { return };
        if self.desk.names.len() >= NAMES_MAX {
            let known: BTreeSet<WorkerId> =
                self.dispatch.worker_views().map(|view| view.id).collect();
            self.desk.names.retain(|worker, _| known.contains(worker));
        }
        self.desk.names.insert(worker, name);
    }

    /// Logs the workers that a commit gives up.
    fn log_lost(&mut self, mutations: &[Mutation]) {
        for mutation in mutations {
            if let Mutation::Note(Note::WorkerLost { worker, jobs }) = mutation {
                let open = self.desk.sessions.get(worker).and_then(|open| open.name.clone());
                let name = open.or_else(|| self.desk.names.remove(worker));
                let id = filch_api::id::worker(*worker);
                tracing::warn!(worker = id, name, jobs, "worker lost: its lease has expired");
            }
        }
    }

    fn fetched(&mut self, (fetch, found): Fetched) -> Result<(), End> {
        let found = found.map_err(End::Read)?;
        self.handle(DispatchEvent::Fetched { fetch, found })
    }

    fn receipt(&mut self, receipt: Receipt) -> Result<(), End> {
        let number = receipt.map_err(End::Commit)?;
        self.desk.receipted = number;
        self.tell_events(number);
        self.handle(DispatchEvent::Committed(number))?;
        let mut told = std::mem::take(&mut self.desk.told);
        self.desk.gate.receipt(number, &mut told);
        self.deliver(told)?;
        while let Some((_, tell)) = self.desk.looks.pop_front_if(|(commit, _)| *commit <= number) {
            tell();
        }
        Ok(())
    }

    fn tell_events(&mut self, receipted: CommitNo) {
        let untold = &mut self.desk.untold;
        let durable =
            std::iter::from_fn(|| untold.pop_front_if(|(number, _)| *number <= receipted));
        self.events.tell(durable);
    }

    fn handle(&mut self, event: DispatchEvent) -> Result<(), End> {
        self.dispatch.handle(self.waking.now(), event, &mut self.desk.effects);
        self.perform()
    }

    /// Performs the effects of the scheduler, in order.
    fn perform(&mut self) -> Result<(), End> {
        let mut effects = std::mem::take(&mut self.desk.effects);
        let mut told = std::mem::take(&mut self.desk.told);
        for effect in effects.drain(..) {
            match self.desk.gate.pass(effect, &mut told) {
                Some(DispatchEffect::Commit { number, mutations }) => self.keep(number, mutations),
                Some(DispatchEffect::Fetch { fetch, ids, keys, seqs }) => {
                    let (store, fetches) = (Arc::clone(&self.store), self.fetches.clone());
                    tokio::task::spawn_blocking(move || {
                        // If the receiver is gone, the server is ending.
                        let _ = fetches.send((fetch, store.find(&ids, &keys, &seqs)));
                    });
                }
                Some(DispatchEffect::HangUp { worker, session }) => {
                    let id = filch_api::id::worker(worker);
                    tracing::debug!(
                        worker = id,
                        session = session.0,
                        "session ended by the server"
                    );
                    self.hang_up(worker, session);
                }
                Some(DispatchEffect::Send { .. } | DispatchEffect::Reply { .. }) | None => {}
            }
        }
        self.desk.effects = effects;
        self.deliver(told)
    }

    fn keep(&mut self, number: CommitNo, mutations: Vec<Mutation>) {
        self.desk.payloads.committed(&mutations);
        let mut commit = Commit::new(number, mutations);
        let is_purge = |mutation: &&Mutation| matches!(mutation, Mutation::Purge(_));
        // Jobs are purged only after a proposal, in the same step.
        let cause = commit.mutations.iter().filter(is_purge).filter_map(|_| self.desk.purge_cause);
        commit.purges.extend(cause);
        let happened = Happened::all(&commit.mutations, self.clock.now().wall);
        self.desk.untold.push_back((number, happened));
        self.note_ends(number, &commit.mutations);
        self.log_lost(&commit.mutations);
        let dispatch = &self.dispatch;
        self.metrics.committed(&commit.mutations, |job| dispatch.job_at(job));
        self.desk.turns.committed(&commit.mutations);
        self.writer.keep(commit);
        self.retention.after_commit(&mut self.desk.turns, self.clock.now());
    }

    /// Answers requests that wait for one of these jobs to end, once the end is durable.
    fn note_ends(&mut self, number: CommitNo, mutations: &[Mutation]) {
        if self.desk.awaited.is_empty() {
            return;
        }
        for mutation in mutations {
            if let Mutation::Write(write) = mutation
                && write.state.is_ended()
                && let Some(waiting) = self.desk.awaited.remove(&write.job)
            {
                let tell = move || {
                    for tell in waiting {
                        let _ = tell.send(());
                    }
                };
                self.desk.looks.push_back((number, Box::new(tell)));
            }
        }
    }

    fn deliver(&mut self, mut told: Vec<Outgoing>) -> Result<(), End> {
        let mut broken = Vec::new();
        for told in told.drain(..) {
            match told {
                Outgoing::Request { to, answer } => {
                    let reply = self.desk.asked.remove(&to).expect("every answer has its request");
                    // The client may have disconnected.
                    let _ = reply.send(answer);
                }
                Outgoing::Worker { worker, session, number, messages } => {
                    if !self.send(worker, session, number, messages) {
                        broken.push((worker, session));
                    }
                }
            }
        }
        self.desk.told = told;
        for (worker, session) in broken {
            let id = filch_api::id::worker(worker);
            tracing::debug!(worker = id, "closing a connection that is broken or too slow");
            self.hang_up(worker, session);
            self.closed(worker, session)?;
        }
        Ok(())
    }

    /// False if the worker's connection is broken or full.
    fn send(
        &mut self,
        worker: WorkerId,
        session: SessionNo,
        number: filch_scheduler::id::MessageNo,
        messages: Vec<ToWorker>,
    ) -> bool {
        let mut works = Vec::new();
        let mut grace = None;
        for message in &messages {
            match message {
                ToWorker::Assign(jobs) => {
                    let payloads = &self.desk.payloads;
                    let work = |job: &Assignment| (job.hold, payloads.cached(job.hold.job));
                    works.extend(jobs.iter().map(work));
                }
                ToWorker::DrainNow => grace = self.desk.graces.get(&worker).copied(),
                _ => {}
            }
        }
        let Some(open) = self.desk.sessions.get(&worker).filter(|open| open.session == session)
        else {
            return true;
        };
        match open.way.batches.try_send(Batch { session, number, messages, works, grace }) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Closed(_)) => false,
        }
    }

    /// Closes the connection.
    fn hang_up(&mut self, worker: WorkerId, session: SessionNo) {
        if let Some(open) = self.desk.sessions.get(&worker)
            && open.session == session
        {
            // The link itself reports that it has closed.
            open.way.hang_up.notify_one();
            let name = self.desk.sessions.remove(&worker).and_then(|open| open.name);
            self.disconnected(worker, name);
        }
    }
}
