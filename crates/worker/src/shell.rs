//! The loop around a worker's agent: events in, effects out.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use filch_api::session::{self, About, Output, OutputStream, UpFrame, WireHold};
use filch_recruit::Recruiter;
use filch_scheduler::agent::{self, Agent, AgentEffect, AgentEvent, StopReason};
use filch_scheduler::id::{Hold, MessageNo, SessionNo, WorkerId};
use filch_scheduler::message::{
    Again, Assignment, Delivery, Ending, FromWorker, Report, Serves, ToWorker,
};
use filch_scheduler::name::Name;
use filch_scheduler::time::Millis;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use crate::clock;
use crate::connect::{Connect, NoConnection, Wire};
use crate::connection_log::{self, ConnectionLog};
use crate::handler::{Ended, Handlers, Outcome, Running};
use crate::side_job::SideWork;
use crate::threads::{Idle, Threads};

/// The configuration of a worker.
pub struct WorkerConfig {
    /// How many jobs it runs at once.
    pub slots: u32,
    /// Which queues it serves; all if `None`.
    pub queues: Option<Vec<String>>,
    /// Whether it runs inside the server's process.
    pub home: agent::Home,
    /// The grace period for running jobs when the server asks it to drain.
    pub grace: Duration,
    /// How many jobs to hold beyond the slots.
    pub reserve: agent::Reserve,
    /// Its name, for people.
    pub name: Option<String>,
    /// The interval at which the pool of sync handlers prints a scheduler trace to stderr; by
    /// default as `FILCH_SCHEDTRACE` is set.
    pub trace_schedule: Option<Duration>,
}

impl Default for WorkerConfig {
    /// A separate process with as many slots as there are cores, for all queues.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            slots: u32::try_from(cores).unwrap_or(u32::MAX),
            queues: None,
            home: agent::Home::Apart,
            grace: Duration::from_secs(30),
            reserve: agent::Reserve::default(),
            name: None,
            trace_schedule: None,
        }
    }
}

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It drained: nothing runs, and every report was answered or given up.
    InOrder,
    /// It panicked; the message is on stderr.
    Crashed,
}

/// A handle to a running worker.
pub struct RunningWorker {
    orders: UnboundedSender<Happened>,
    left: watch::Receiver<bool>,
    told: watch::Receiver<Option<Duration>>,
    id: WorkerId,
    recruiter: Option<Arc<Recruiter>>,
}

/// Events for the loop.
pub(crate) enum Happened {
    Wired(Result<Wire, NoConnection>),
    Ended {
        hold: Hold,
        ended: Ended,
    },
    Progressed {
        hold: Hold,
        percent: u8,
    },
    Printed {
        hold: Hold,
        stream: OutputStream,
        text: String,
    },
    Drain {
        grace: Duration,
    },
    /// A slice of a side job has done something.
    SideWorkDone,
}

impl RunningWorker {
    /// Starts a worker. Needs a running tokio runtime.
    ///
    /// # Panics
    /// If there are sync handlers and no threads can be started for them, or if the side jobs do
    /// not fit together: two have the same name, or their rates add up to more than 1.
    #[must_use]
    pub fn start(config: WorkerConfig, mut handlers: Handlers, connect: Connect) -> Self {
        let recruiter = handlers.recruiter().map(Arc::new);
        let (orders, happened) = unbounded_channel();
        let (gone, left) = watch::channel(false);
        let (telling, told) = watch::channel(None);
        let about = About {
            name: config.name,
            kinds: Some(handlers.kinds()),
            pid: Some(std::process::id()),
        };
        let queues = config.queues.as_ref().map(|queues| queues.join(","));
        let serves = config.queues.map_or(Serves::All, |queues| {
            Serves::Named(queues.iter().map(|queue| Name::from(queue.as_str())).collect())
        });
        let agent_config = agent::AgentConfig {
            seed: filch_api::id::seed(),
            home: config.home,
            slots: config.slots,
            serves,
            reserve: config.reserve,
            grace: config.grace,
            ..agent::AgentConfig::default()
        };
        let idle = Idle::default();
        let threads = handlers
            .has_sync()
            .then(|| Threads::start(config.slots, config.trace_schedule, idle.clone()));
        let mut effects = Vec::new();
        let agent = Agent::new(agent_config, clock::now(), &mut effects);
        let id = agent.id();
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            worker = filch_api::id::worker(id),
            name = about.name,
            slots = config.slots,
            queues,
            kinds = about.kinds.as_ref().map(|kinds| kinds.join(",")),
            grace = connection_log::span(config.grace),
            "worker started"
        );
        let shell = Shell {
            agent,
            effects,
            handlers: Arc::new(handlers),
            threads,
            idle,
            connect,
            orders: orders.clone(),
            wire: None,
            works: HashMap::new(),
            stops: HashMap::new(),
            printed: Vec::new(),
            deadline: None,
            has_left: false,
            about,
            grace: config.grace,
            telling,
            side_work: recruiter.clone().map(SideWork::new),
            connection_log: ConnectionLog::default(),
            incarnation: id,
        };
        tokio::spawn(async move {
            shell.run(happened).await;
            gone.send_replace(true);
        });
        Self { orders, left, told, id, recruiter }
    }

    /// The id of its first incarnation: a worker that was lost continues under another id.
    #[must_use]
    pub const fn id(&self) -> WorkerId {
        self.id
    }

    /// Statistics of its side jobs, if it has any.
    #[must_use]
    pub fn side_jobs(&self) -> Option<filch_recruit::RecruiterStats> {
        self.recruiter.as_ref().map(|recruiter| recruiter.stats())
    }

    /// Graceful shutdown: takes no new jobs, hands back those that have not started, waits for
    /// running jobs until the grace period is over, and ends. It may be called again with a shorter
    /// grace period.
    pub fn drain(&self, grace: Duration) {
        let _ = self.orders.send(Happened::Drain { grace });
    }

    /// Waits until the server asks it to drain, and returns the grace period for running jobs.
    pub async fn told_to_leave(&self) -> Duration {
        let mut told = self.told.clone();
        let grace = told.wait_for(Option::is_some).await.map(|grace| *grace);
        match grace {
            Ok(Some(grace)) => grace,
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// Waits until it has ended, and returns how.
    pub async fn left(&self) -> Left {
        let mut left = self.left.clone();
        match left.wait_for(|left| *left).await {
            Ok(_) => Left::InOrder,
            Err(_) => Left::Crashed,
        }
    }
}

struct Shell {
    agent: Agent,
    effects: Vec<AgentEffect>,
    handlers: Arc<Handlers>,
    /// Where sync handlers run, if there are any.
    threads: Option<Threads>,
    /// Notifies when one of these threads is idle.
    idle: Idle,
    connect: Connect,
    orders: UnboundedSender<Happened>,
    wire: Option<Wire>,
    /// The payloads of jobs that have not started.
    works: HashMap<Hold, Arc<str>>,
    /// Stop signals of running jobs.
    stops: HashMap<Hold, watch::Sender<bool>>,
    /// Output of running jobs that has not been sent.
    printed: Vec<Output>,
    /// The deadline that the guardian has.
    deadline: Option<filch_scheduler::time::Monotonic>,
    has_left: bool,
    /// Facts about this worker for the server.
    about: About,
    /// The grace period, unless the server sets another.
    grace: Duration,
    /// The grace period, once the server has asked it to drain.
    telling: watch::Sender<Option<Duration>>,
    /// Side jobs, if there are any.
    side_work: Option<SideWork>,
    connection_log: ConnectionLog,
    /// The id that was logged last: a fenced worker goes on under another.
    incarnation: WorkerId,
}

/// The clock is checked this often, because the machine may have slept.
const TICK: Duration = Duration::from_secs(1);

/// After this many events the connection is read, however many more wait.
const TOGETHER: usize = 256;

/// How many pieces of output may wait for a connection; the rest is only in the stored log.
const PRINTED_MAX: usize = 1_024;

/// If this many frames wait, output of running jobs is not sent.
const PRINTS_WAITING: usize = 16;

/// A result that exceeds the limits is a permanent failure.
fn bounded(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Finished(Some(result)) => match session::excess(&result) {
            Some(error) => Outcome::Failed { error, forever: true },
            None => Outcome::Finished(Some(result)),
        },
        other => other,
    }
}

impl Shell {
    async fn run(mut self, mut happened: UnboundedReceiver<Happened>) {
        self.perform();
        while !self.has_left {
            let wait = self.agent.next_deadline().map_or(TICK, |at| clock::until(at).min(TICK));
            let soon = self.side_work.as_ref().and_then(SideWork::wait);
            let wait = soon.map_or(wait, |soon| wait.min(soon));
            tokio::select! {
                biased;
                delivery = receive(&mut self.wire) => match delivery {
                    Some(delivery) => self.received(delivery),
                    None => self.lost(),
                },
                Some(order) = happened.recv() => {
                    self.take(order);
                    for _ in 0..TOGETHER {
                        match happened.try_recv() {
                            Ok(order) => self.take(order),
                            Err(_) => break,
                        }
                    }
                }
                // After the events of jobs that have ended, so that the agent knows of free slots
                // first.
                () = self.idle.said() => self.handle(AgentEvent::Idle),
                () = tokio::time::sleep(wait) => self.handle(AgentEvent::Tick),
            }
            if let Some(side_work) = &mut self.side_work
                && self.agent.running_count() + self.agent.waiting_count() == 0
            {
                side_work.idle_moment(&self.orders);
            }
            self.print();
        }
        self.close_threads().await;
        if let Some(side_work) = &mut self.side_work {
            side_work.close().await;
        }
    }

    /// Waits for the threads, unless a handler ignores that it should stop.
    async fn close_threads(&mut self) {
        let closing = self.threads.as_mut().and_then(Threads::close);
        if let Some(closing) = closing.filter(|_| self.agent.running_count() == 0) {
            // Panics of handlers are reported as failures of their jobs.
            let _ = closing.await;
        }
    }

    fn take(&mut self, happened: Happened) {
        match happened {
            Happened::Wired(Ok(wire)) => {
                self.wire = Some(wire);
                self.handle(AgentEvent::Connected);
            }
            Happened::Wired(Err(_)) => self.handle(AgentEvent::Disconnected),
            Happened::Ended { hold, ended } => self.ended(hold, ended),
            Happened::Progressed { hold, percent } => {
                self.handle(AgentEvent::Progressed { hold, percent });
            }
            Happened::Printed { hold, stream, text } => {
                if self.printed.len() < PRINTED_MAX {
                    self.printed.push(Output { job: WireHold::from(hold), stream, text });
                }
            }
            Happened::Drain { grace } => {
                self.log_drain(grace);
                self.handle(AgentEvent::Drain { grace });
            }
            Happened::SideWorkDone => {
                if let Some(side_work) = &mut self.side_work {
                    side_work.done();
                }
            }
        }
    }

    fn received(&mut self, delivery: Delivery) {
        let Delivery { session, number, mut messages, works, grace, .. } = delivery;
        self.connection_log.connected(self.agent.id(), clock::now().monotonic);
        self.works.extend(works);
        let is_told = messages.contains(&ToWorker::DrainNow);
        if is_told {
            let grace = grace.unwrap_or(self.grace);
            self.log_drain(grace);
            self.telling.send_replace(Some(grace));
        }
        // With a grace period from the server, it is the same as a local drain.
        let drain = grace.filter(|_| is_told).map(|grace| AgentEvent::Drain { grace });
        if drain.is_some() {
            messages.retain(|message| *message != ToWorker::DrainNow);
        }
        self.handle(AgentEvent::Received { session, number, messages });
        if let Some(drain) = drain {
            self.handle(drain);
        }
    }

    fn lost(&mut self) {
        self.hang_up();
        self.handle(AgentEvent::Disconnected);
    }

    fn log_drain(&self, grace: Duration) {
        tracing::info!(
            running = self.agent.running_count(),
            not_started = self.agent.waiting_count(),
            grace = connection_log::span(grace),
            "draining: no new jobs, waiting for those that run"
        );
    }

    fn hang_up(&mut self) {
        self.wire = None;
        self.connection_log.disconnected(self.agent.id(), clock::now().monotonic);
    }

    fn ended(&mut self, hold: Hold, ended: Ended) {
        self.stops.remove(&hold);
        // Its last output is sent before the report of its end: later the server ignores it.
        self.print();
        let Ended { outcome, log } = ended;
        let outcome = bounded(outcome);
        let (ending, result) = match outcome {
            Outcome::Finished(result) => (Ending::Finished, result),
            Outcome::Failed { error, forever } => {
                let again = if forever { Again::Never } else { Again::ByPolicy };
                (Ending::Failed { again, error: error.into() }, None)
            }
            Outcome::Snoozed(span) => {
                let millis = u32::try_from(span.as_millis()).unwrap_or(u32::MAX);
                (Ending::Snoozed(Millis(millis)), None)
            }
            Outcome::Stopped => (Ending::Stopped, None),
        };
        let (result, log) = (result.map(Arc::from), log.map(Arc::from));
        self.handle(AgentEvent::Ended(Report { hold, ending, result, log }));
    }

    fn handle(&mut self, event: AgentEvent) {
        self.agent.handle(clock::now(), event, &mut self.effects);
        // Before anything starts: no command may run without its deadline.
        self.tell_guardian();
        self.perform();
    }

    /// Performs the effects of the agent, in order.
    fn perform(&mut self) {
        // Sending may find the connection broken, which is a separate event.
        let mut is_lost = false;
        for effect in std::mem::take(&mut self.effects) {
            match effect {
                AgentEffect::Connect { wait } => {
                    let (connect, orders) = (Arc::clone(&self.connect), self.orders.clone());
                    tokio::spawn(async move {
                        tokio::time::sleep(wait).await;
                        let _ = orders.send(Happened::Wired(connect().await));
                    });
                }
                AgentEffect::Disconnect { .. } => self.hang_up(),
                AgentEffect::Send { worker, session, number, messages } => {
                    is_lost |= !self.send(worker, session, number, &messages);
                }
                AgentEffect::Start(assignment) => self.start(assignment),
                AgentEffect::Stop { hold, why } => {
                    log_stop(why);
                    if let Some(stop) = self.stops.get(&hold) {
                        stop.send_replace(true);
                    }
                }
                AgentEffect::Answered { .. } => {}
                AgentEffect::Leave => {
                    tracing::info!("worker stopped: nothing runs, and every report is answered");
                    self.has_left = true;
                }
            }
        }
        if self.agent.id() != self.incarnation {
            let before = filch_api::id::worker(self.incarnation);
            self.incarnation = self.agent.id();
            let worker = filch_api::id::worker(self.incarnation);
            tracing::warn!(worker, before, "the lease has expired; continuing as a new worker");
        }
        // Jobs that wait for confirmation are counted as running.
        if self.agent.waiting_count() + self.agent.running_count() == 0 {
            self.works.clear();
        }
        if is_lost {
            self.lost();
        }
    }

    /// False if the connection is broken or full.
    fn send(
        &mut self,
        worker: WorkerId,
        session: SessionNo,
        number: MessageNo,
        messages: &[FromWorker],
    ) -> bool {
        for message in messages {
            match message {
                FromWorker::Given { jobs, .. } => {
                    for job in jobs {
                        self.works.remove(job);
                    }
                }
                FromWorker::Report(report) => {
                    self.works.remove(&report.hold);
                }
                _ => {}
            }
        }
        let Some(wire) = &self.wire else {
            return true;
        };
        let mut frame = UpFrame::say(worker, session, number, messages);
        if matches!(messages.first(), Some(FromWorker::Hello(_))) {
            frame.about = Some(Box::new(self.about.clone()));
        }
        wire.up.try_send(frame).is_ok()
    }

    fn start(&mut self, assignment: Assignment) {
        let hold = assignment.hold;
        // A job without a payload would be a bug of the server; the job then fails.
        let work = self.works.remove(&hold).unwrap_or_else(|| Arc::from("{}"));
        let (stop, stopped) = watch::channel(false);
        self.stops.insert(hold, stop);
        let orders = self.orders.clone();
        match self.handlers.start(assignment, work, stopped, orders.clone()) {
            Running::Waits(running) => {
                tokio::spawn(async move {
                    let ended = running.await;
                    let _ = orders.send(Happened::Ended { hold, ended });
                });
            }
            Running::Computes(running) => {
                let threads = self.threads.as_ref().expect("sync handlers have threads");
                // Sent by the thread itself, so before its idle notification.
                threads.run(move || {
                    let ended = running();
                    let _ = orders.send(Happened::Ended { hold, ended });
                });
            }
        }
    }

    /// Sends output of running jobs, if the connection is not full.
    fn print(&mut self) {
        if self.printed.is_empty() {
            return;
        }
        let output = std::mem::take(&mut self.printed);
        // Messages of the protocol have priority: output is dropped rather than queued.
        let has_room = |wire: &&Wire| wire.up.max_capacity() - wire.up.capacity() < PRINTS_WAITING;
        if let Some(wire) = self.wire.as_ref().filter(has_room) {
            let worker = filch_api::id::worker(self.agent.id());
            let messages = Vec::new();
            let frame = UpFrame { worker, session: 0, number: 0, messages, output, about: None };
            // Output that does not fit is still in the stored log.
            let _ = wire.up.try_send(frame);
        }
    }

    fn tell_guardian(&mut self) {
        let deadline = self.agent.fence_at();
        if deadline != self.deadline
            && let Some(runner) = self.handlers.runner()
        {
            self.deadline = deadline;
            runner.deadline(deadline.map(clock::until));
        }
    }
}

fn log_stop(why: StopReason) {
    match why {
        StopReason::Fenced => tracing::warn!("fenced: stopping a job, because the lease expired"),
        StopReason::Drained => tracing::info!("draining: the grace is over, stopping a job"),
        StopReason::Cancelled => tracing::debug!("stopping a job: it was cancelled or reassigned"),
        StopReason::TimedOut => tracing::debug!("stopping a job: it has timed out"),
    }
}

/// Waits for a frame; for ever if there is no connection.
async fn receive(wire: &mut Option<Wire>) -> Option<Delivery> {
    match wire {
        Some(wire) => wire.down.recv().await,
        None => std::future::pending().await,
    }
}
