//! The loop around the server's engine: inputs in, actions out, on its own thread. It decides
//! nothing (`filch_engine::server` does), and never waits for a disk or a socket: commits go to the
//! writer, reads to other threads, and batches to the tasks of connections.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use filch_api::session::Output;
use filch_engine::server::{
    HangUp, HttpAsk, HttpRefusal, HttpReply, HttpWorker, LinkNo, LinkScope, RetentionJob,
    ServerAction, ServerEngine, ServerInput, SliceOutcome, Ticket, WorkerTable,
};
use filch_scheduler::dispatch::{Answer, Dispatch, Request};
use filch_scheduler::id::{CommitNo, JobId, Seq, WorkerId};
use filch_scheduler::message::WorkerBatch;
use filch_scheduler::name::Name;
use filch_scheduler::record::{Mutation, Note};
use filch_scheduler::time::{Monotonic, Now};
use filch_store::{Commit, CommitError, JobText, PurgeCause, Store, StoreError, StoredText};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::events::{Events, Happened};
use crate::link::WorkerSender;
use crate::logs::Logs;
use crate::metrics::Metrics;
use crate::retention::{self, Moment, RECRUITED_ROWS, Retention};
use crate::roster::Roster;
use crate::tokens::Caller;
use crate::writer::{Receipt, Writer};

/// Inputs that wait while the engine takes no requests.
pub(crate) enum Input {
    /// A request of a client.
    Ask { by: Option<Name>, request: Request, reply: oneshot::Sender<Answer> },
    /// Reads the live state now, and returns the result once everything it saw is durable.
    Look(Look),
    /// Waits for a job to end: answered once the end is durable, or at once if the job is not in
    /// memory.
    Await { job: JobId, tell: oneshot::Sender<()> },
    /// The grace period for running jobs when this worker drains.
    Grace { worker: WorkerId, grace: Duration },
    /// Ended jobs to purge, and why.
    Purge { jobs: Vec<(Seq, JobId)>, cause: PurgeCause },
}

/// Inputs that are always taken.
pub(crate) enum Urgent {
    /// A connection was opened.
    Opened { link: LinkNo, scope: LinkScope, sender: WorkerSender },
    /// A batch of messages came over a connection.
    Heard { link: LinkNo, batch: WorkerBatch },
    /// Output of jobs, from a worker.
    Printed { link: LinkNo, worker: WorkerId, output: Vec<Output> },
    /// A batch that had to be confirmed was sent.
    Sent(LinkNo),
    /// A connection broke.
    Closed(LinkNo),
    /// A request of a worker over plain HTTP.
    Asked { from: HttpWorker, ask: HttpAsk, reply: oneshot::Sender<HttpResponse> },
    /// A token is no longer valid.
    TokenEnded(Arc<str>),
    /// The store has confirmed that this server owns it, asked at this time.
    Owned { asked: Monotonic },
    /// Another server owns the store.
    Superseded,
    /// Shuts the server down.
    Stop,
}

/// The response to a request of a worker over plain HTTP.
pub(crate) type HttpResponse = Result<HttpReply, HttpRefusal>;

/// Reads the live state.
pub(crate) type Look = Box<dyn FnOnce(&Dispatch, Now) -> Tell + Send>;

/// Returns what was read.
pub(crate) type Tell = Box<dyn FnOnce() + Send>;

/// A handle to the loop.
#[derive(Clone)]
pub(crate) struct Handle {
    inputs: Sender<Input>,
    urgent: Sender<Urgent>,
}

/// The server has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended;

/// How many inputs may wait in each channel; then senders wait, too.
pub(crate) const INPUTS_MAX: usize = 4_096;

impl Handle {
    pub(crate) const fn new(inputs: Sender<Input>, urgent: Sender<Urgent>) -> Self {
        Self { inputs, urgent }
    }

    pub(crate) async fn send(&self, input: Input) -> Result<(), Ended> {
        self.inputs.send(input).await.map_err(|_| Ended)
    }

    /// For what is taken even if no requests are.
    pub(crate) async fn urgent(&self, input: Urgent) -> Result<(), Ended> {
        self.urgent.send(input).await.map_err(|_| Ended)
    }

    /// How many inputs wait.
    #[cfg(test)]
    pub(crate) fn waiting_inputs(&self) -> usize {
        self.inputs.max_capacity() - self.inputs.capacity()
    }

    /// Sends a request and waits for the answer. What it changes is recorded under the name of the
    /// caller's token.
    pub(crate) async fn ask(&self, caller: &Caller, request: Request) -> Result<Answer, Ended> {
        let (reply, answer) = oneshot::channel();
        let by = caller.label().cloned();
        self.send(Input::Ask { by, request, reply }).await?;
        answer.await.map_err(|_| Ended)
    }

    /// Waits until a job has ended, or is not in memory.
    pub(crate) async fn end_of(&self, job: JobId) -> Result<(), Ended> {
        let (tell, told) = oneshot::channel();
        self.send(Input::Await { job, tell }).await?;
        told.await.map_err(|_| Ended)
    }

    /// Sends a request of a worker over plain HTTP and waits for the response.
    pub(crate) async fn ask_http(
        &self,
        from: HttpWorker,
        ask: HttpAsk,
    ) -> Result<HttpResponse, Ended> {
        let (reply, response) = oneshot::channel();
        self.urgent(Urgent::Asked { from, ask, reply }).await?;
        response.await.map_err(|_| Ended)
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
        self.send(Input::Look(Box::new(look))).await?;
        seen.await.map_err(|_| Ended)
    }
}

/// The result of a read of the store.
pub(crate) type Fetched = Result<ServerInput, StoreError>;

/// The engine and everything around it.
pub(crate) struct Shell {
    pub(crate) engine: ServerEngine,
    pub(crate) clock: Clock,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) events: Arc<Events>,
    pub(crate) logs: Arc<Logs>,
    pub(crate) roster: Arc<Roster>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) writer: Writer,
    pub(crate) inputs: Receiver<Input>,
    pub(crate) urgent: Receiver<Urgent>,
    pub(crate) receipts: UnboundedReceiver<Receipt>,
    pub(crate) fetches: UnboundedSender<Fetched>,
    pub(crate) fetched: UnboundedReceiver<Fetched>,
    pub(crate) retention: Arc<Retention>,
    pub(crate) moments: UnboundedReceiver<Moment>,
    pub(crate) pending: Pending,
}

/// What waits outside of the engine, and the senders of connections.
#[derive(Default)]
pub(crate) struct Pending {
    actions: Vec<ServerAction>,
    /// What came of actions, to be fed after the last of them.
    follow: VecDeque<ServerInput>,
    tickets: HashMap<Ticket, Waits>,
    last_ticket: u64,
    /// Requests that wait for a job to end.
    awaited: HashMap<Seq, Vec<oneshot::Sender<()>>>,
    links: HashMap<LinkNo, WorkerSender>,
    /// Events whose commits are not durable yet.
    untold: VecDeque<(CommitNo, Vec<Happened>)>,
    /// Names of workers, for the log: they may be lost after they have disconnected.
    names: WorkerTable<String>,
}

/// What waits for an answer.
enum Waits {
    Request(oneshot::Sender<Answer>),
    Look(Tell),
    End(oneshot::Sender<()>),
    Http(oneshot::Sender<HttpResponse>),
    Slice(oneshot::Sender<SliceOutcome>),
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

/// How many payloads are read at a time, and how many bytes of them for one batch.
const PAYLOADS_TOGETHER: usize = 64;
const PAYLOAD_BYTES: usize = 4 << 20;

impl Shell {
    /// Runs until shutdown or a store error. `first` are the actions of loading.
    pub(crate) async fn run(mut self, first: Vec<ServerAction>) -> End {
        self.pending.actions = first;
        self.perform();
        loop {
            let mut wake = self.engine.next_deadline();
            if self.retention.uses_idle_moments()
                && let Some(moment) = self.engine.retention().next_moment()
            {
                wake = wake.min(moment);
            }
            let wake = tokio::time::Instant::from_std(self.clock.instant(wake));
            let takes_requests = self.engine.takes_requests();
            let step = tokio::select! {
                biased;
                receipt = self.receipts.recv() => match receipt {
                    Some(receipt) => self.receipt(receipt),
                    None => return End::Commit(CommitError::Broken("the writer thread has ended".into())),
                },
                Some(fetched) = self.fetched.recv() => self.fetched(fetched),
                input = self.urgent.recv() => match input {
                    Some(input) => self.take_urgent(input),
                    None => return End::Asked,
                },
                Some(input) = self.inputs.recv(), if takes_requests => {
                    self.take(input);
                    Ok(())
                }
                Some(moment) = self.moments.recv() => {
                    self.take_moment(moment);
                    Ok(())
                }
                () = tokio::time::sleep_until(wake) => {
                    self.feed(ServerInput::Tick);
                    Ok(())
                }
            };
            if let Err(end) = step.and_then(|()| self.take_more()) {
                return end;
            }
            if self.inputs.is_empty() && self.urgent.is_empty() && self.engine.is_settled() {
                self.idle_moment();
            }
        }
    }

    /// No request waits, and nothing waits to be durable.
    fn idle_moment(&self) {
        if self.retention.uses_idle_moments() && self.engine.retention().may_begin() {
            let retention = Arc::clone(&self.retention);
            tokio::spawn(async move { retention.enlist().await });
        }
    }

    /// Takes inputs that are there already, without waiting, a few at a time.
    fn take_more(&mut self) -> Result<(), End> {
        for _ in 0..INPUTS_TOGETHER {
            let mut has_taken = false;
            if let Ok(receipt) = self.receipts.try_recv() {
                self.receipt(receipt)?;
                has_taken = true;
            }
            if let Ok(fetched) = self.fetched.try_recv() {
                self.fetched(fetched)?;
                has_taken = true;
            }
            if let Ok(input) = self.urgent.try_recv() {
                self.take_urgent(input)?;
                has_taken = true;
            }
            if self.engine.takes_requests()
                && let Ok(input) = self.inputs.try_recv()
            {
                self.take(input);
                has_taken = true;
            }
            if !has_taken {
                break;
            }
        }
        Ok(())
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Ask { by, request, reply } => {
                let ticket = self.ticket(Waits::Request(reply));
                self.feed(ServerInput::Request { ticket, by, request });
            }
            Input::Look(look) => {
                let tell = look(self.engine.dispatch(), self.engine.now());
                let ticket = self.ticket(Waits::Look(tell));
                self.feed(ServerInput::Barrier { ticket });
            }
            Input::Await { job, tell } => {
                let ticket = self.ticket(Waits::End(tell));
                self.feed(ServerInput::AwaitEnd { ticket, job });
            }
            Input::Grace { worker, grace } => self.feed(ServerInput::Grace { worker, grace }),
            Input::Purge { jobs, cause } => {
                self.feed(ServerInput::Purge { jobs, cause });
            }
        }
    }

    fn take_urgent(&mut self, input: Urgent) -> Result<(), End> {
        match input {
            Urgent::Opened { link, scope, sender } => {
                self.pending.links.insert(link, sender);
                self.feed(ServerInput::LinkOpened { link, scope });
            }
            Urgent::Heard { link, batch } => self.feed(ServerInput::Batch { link, batch }),
            Urgent::Printed { link, worker, output } => {
                for output in output {
                    if self.engine.may_print(link, worker, output.job.into()) {
                        self.logs.print(output);
                    }
                }
            }
            Urgent::Sent(link) => self.feed(ServerInput::Sent(link)),
            Urgent::Closed(link) => {
                self.pending.links.remove(&link);
                self.feed(ServerInput::LinkClosed(link));
            }
            Urgent::Asked { from, ask, reply } => {
                let ticket = self.ticket(Waits::Http(reply));
                self.feed(ServerInput::Ask { ticket, from, ask });
            }
            Urgent::TokenEnded(token) => self.feed(ServerInput::TokenEnded(token)),
            Urgent::Owned { asked } => self.feed(ServerInput::Owned { asked }),
            Urgent::Superseded => return Err(End::Commit(CommitError::Superseded)),
            Urgent::Stop => return Err(End::Asked),
        }
        Ok(())
    }

    /// An idle moment was picked for a slice of retention.
    fn take_moment(&mut self, moment: Moment) {
        let Moment { job, until, done } = moment;
        let (ticket, until) = (self.ticket(Waits::Slice(done)), Some(self.clock.moment(until)));
        self.feed(ServerInput::RetentionMoment { ticket, job, rows: RECRUITED_ROWS, until });
    }

    fn fetched(&mut self, fetched: Fetched) -> Result<(), End> {
        let input = fetched.map_err(End::Read)?;
        self.feed(input);
        Ok(())
    }

    fn receipt(&mut self, receipt: Receipt) -> Result<(), End> {
        let number = receipt.map_err(End::Commit)?;
        self.feed(ServerInput::Committed(number));
        Ok(())
    }

    fn ticket(&mut self, waits: Waits) -> Ticket {
        self.pending.last_ticket += 1;
        let ticket = Ticket(self.pending.last_ticket);
        self.pending.tickets.insert(ticket, waits);
        ticket
    }

    /// Feeds an input to the engine, and performs what it decides.
    fn feed(&mut self, input: ServerInput) {
        self.pending.follow.push_back(input);
        while let Some(input) = self.pending.follow.pop_front() {
            self.engine.handle(self.clock.now(), input, &mut self.pending.actions);
            self.perform();
        }
        self.metrics.http_workers(self.engine.http_worker_count());
    }

    /// Performs the actions of the engine, in order.
    fn perform(&mut self) {
        let mut actions = std::mem::take(&mut self.pending.actions);
        for action in actions.drain(..) {
            match action {
                ServerAction::Commit(commit) => self.keep(commit),
                ServerAction::Durable(number) => {
                    let untold = &mut self.pending.untold;
                    let is_durable = |(commit, _): &(CommitNo, _)| *commit <= number;
                    let durable = std::iter::from_fn(|| untold.pop_front_if(|it| is_durable(it)));
                    self.events.tell(durable);
                }
                ServerAction::Fetch { fetch, ids, keys, seqs } => self.read(move |store| {
                    let found = store.find(&ids, &keys, &seqs)?;
                    Ok(ServerInput::Fetched { fetch, found })
                }),
                ServerAction::ReadPayloads { link, jobs } => self.read(move |store| {
                    let texts = payloads(store, &jobs)?;
                    Ok(ServerInput::PayloadsRead { link, jobs, texts })
                }),
                ServerAction::Send { link, delivery, tell } => {
                    let Some(sender) = self.pending.links.get(&link) else { continue };
                    match sender.batches.try_send((delivery, tell)) {
                        Ok(()) => {}
                        Err(TrySendError::Full(_)) => {
                            self.pending.follow.push_back(ServerInput::LinkFull(link));
                        }
                        Err(TrySendError::Closed(_)) => {
                            self.pending.follow.push_back(ServerInput::LinkClosed(link));
                        }
                    }
                }
                ServerAction::HangUp { link, why } => {
                    if let Some(sender) = self.pending.links.remove(&link) {
                        if why == HangUp::Slow {
                            tracing::debug!("closing the connection of a worker that is too slow");
                        }
                        sender.hang_up.send_replace(Some(why));
                    }
                }
                ServerAction::Answer { ticket, answer } => {
                    if let Some(Waits::Request(reply)) = self.pending.tickets.remove(&ticket) {
                        // The client may have disconnected.
                        let _ = reply.send(answer);
                    }
                }
                ServerAction::Respond { ticket, response } => {
                    if let Some(Waits::Http(reply)) = self.pending.tickets.remove(&ticket) {
                        // The client may have disconnected.
                        let _ = reply.send(response);
                    }
                }
                ServerAction::Release(ticket) => match self.pending.tickets.remove(&ticket) {
                    Some(Waits::Look(tell)) => tell(),
                    Some(Waits::End(tell)) => _ = tell.send(()),
                    _ => {}
                },
                ServerAction::Watching { ticket, job } => {
                    if let Some(Waits::End(tell)) = self.pending.tickets.remove(&ticket) {
                        let waiting = self.pending.awaited.entry(job).or_default();
                        // A client that asked again no longer waits for its earlier request.
                        waiting.retain(|tell| !tell.is_closed());
                        waiting.push(tell);
                    }
                }
                ServerAction::JobEnded(job) => {
                    for tell in self.pending.awaited.remove(&job).into_iter().flatten() {
                        let _ = tell.send(());
                    }
                }
                ServerAction::ReadExpired { after, before, limit } => {
                    self.read_for_retention(RetentionJob::Purge, move |store| {
                        store.expired(after, before, limit).map(ServerInput::Expired)
                    });
                }
                ServerAction::ReadOutdated { after, recent, limit } => {
                    self.read_for_retention(RetentionJob::Trim, move |store| {
                        store.outdated(after, &recent, limit).map(ServerInput::Outdated)
                    });
                }
                ServerAction::SliceDone { ticket, job, outcome, took } => {
                    self.slice_done(ticket, job, outcome, took);
                }
                ServerAction::Connected { worker, session, link, is_partial } => {
                    self.roster.admit(link, worker);
                    if !is_partial {
                        self.log_connected(worker, session.0);
                    }
                }
                ServerAction::Disconnected { worker } => {
                    let name = self.pending.names.get(worker);
                    tracing::info!(
                        worker = filch_api::id::worker(worker),
                        name,
                        "worker disconnected"
                    );
                }
                ServerAction::Suspended(span) => tracing::warn!(
                    seconds = span.as_secs_f64(),
                    "the process was suspended; leases were extended by as long"
                ),
            }
        }
        self.pending.actions = actions;
    }

    /// Reads for retention, which goes on later if that fails. If the store is broken, the
    /// scheduler's next read or commit fails, too.
    fn read_for_retention(
        &self,
        job: RetentionJob,
        read: impl FnOnce(&dyn Store) -> Fetched + Send + 'static,
    ) {
        self.read(move |store| {
            Ok(read(store).unwrap_or_else(|error| {
                let job = retention::name(job);
                tracing::warn!(job, %error, "a slice of retention failed");
                ServerInput::RetentionFailed
            }))
        });
    }

    fn slice_done(
        &mut self,
        ticket: Option<Ticket>,
        job: RetentionJob,
        outcome: SliceOutcome,
        took: Duration,
    ) {
        tracing::debug!(
            job = retention::name(job),
            ?outcome,
            ?took,
            "a slice of retention is done"
        );
        let state = self.engine.retention();
        self.retention.publish(state.totals(), state.overdue_since_ms());
        match ticket.and_then(|ticket| self.pending.tickets.remove(&ticket)) {
            // The recruiter may have stopped waiting.
            Some(Waits::Slice(done)) => _ = done.send(outcome),
            _ => self.retention.count_turn(outcome, took),
        }
    }

    /// Reads from the store on a thread that may wait for the disk.
    fn read(&self, read: impl FnOnce(&dyn Store) -> Fetched + Send + 'static) {
        let (store, fetches) = (Arc::clone(&self.store), self.fetches.clone());
        tokio::task::spawn_blocking(move || {
            let read = AssertUnwindSafe(|| read(&*store));
            let fetched =
                catch_unwind(read).unwrap_or_else(|_| Err(StoreError::panicked("read the store")));
            // If the receiver is gone, the server is ending.
            let _ = fetches.send(fetched);
        });
    }

    fn keep(&mut self, commit: Commit) {
        let happened = Happened::all(&commit.mutations, self.clock.now().wall);
        self.pending.untold.push_back((commit.last, happened));
        self.log_lost(&commit.mutations);
        for mutation in &commit.mutations {
            if let Mutation::Write(write) = mutation
                && write.holder.is_none()
            {
                self.logs.finished(write.job.0);
            }
        }
        let dispatch = self.engine.dispatch();
        self.metrics.committed(&commit.mutations, |job| dispatch.job_at(job));
        self.writer.keep(commit);
    }

    fn log_connected(&mut self, worker: WorkerId, session: u64) {
        let name = self.roster.about(worker).and_then(|about| about.name);
        tracing::info!(worker = filch_api::id::worker(worker), name, session, "worker connected");
        let Some(name) = name else { return };
        let dispatch = self.engine.dispatch();
        self.pending.names.insert(worker, name, || dispatch.worker_views().map(|view| view.id));
    }

    /// Logs the workers that a commit gives up.
    fn log_lost(&mut self, mutations: &[Mutation]) {
        for mutation in mutations {
            if let Mutation::Note(Note::WorkerLost { worker, jobs }) = mutation {
                let name = self.pending.names.remove(*worker);
                let id = filch_api::id::worker(*worker);
                tracing::warn!(worker = id, name, jobs, "worker lost: its lease has expired");
            }
        }
    }
}

/// The payloads of these jobs, or of the first of them, if they are large.
fn payloads(store: &dyn Store, jobs: &[Seq]) -> Result<Vec<Option<StoredText>>, StoreError> {
    let (mut texts, mut bytes) = (Vec::new(), 0);
    for some in jobs.chunks(PAYLOADS_TOGETHER) {
        let read = store.texts(JobText::Payload, some)?;
        bytes += read.iter().flatten().map(|text| text.len()).sum::<usize>();
        texts.extend(read);
        if bytes >= PAYLOAD_BYTES {
            break;
        }
    }
    Ok(texts)
}
