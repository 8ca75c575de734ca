//! The loop around a worker's engine: inputs in, actions out. It decides nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use filch_api::session::{self, About, Output, OutputStream, UpFrame, WireHold};
use filch_engine::worker::{WorkerAction, WorkerEngine, WorkerInput};
use filch_recruit::Recruiter;
use filch_scheduler::agent;
use filch_scheduler::id::{Hold, WorkerId};
use filch_scheduler::message::{
    Again, Assignment, Delivery, Ending, FromWorker, Report, Serves, WorkerBatch,
};
use filch_scheduler::name::Name;
use filch_scheduler::time::Millis;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use crate::clock;
use crate::connect::{Connect, NoConnection, Wire};
use crate::handler::{Ended, Handlers, Outcome, Running};
use crate::side_job::SideWork;
use crate::threads::{Idle, Threads};
use crate::worker_log;

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
        let mut actions = Vec::new();
        let engine = WorkerEngine::new(agent_config, clock::now(), &mut actions);
        let id = engine.agent().id();
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            worker = filch_api::id::worker(id),
            name = about.name,
            slots = config.slots,
            queues,
            kinds = about.kinds.as_ref().map(|kinds| kinds.join(",")),
            grace = worker_log::span(config.grace),
            "worker started"
        );
        let shell = Shell {
            engine,
            actions,
            handlers: Arc::new(handlers),
            threads,
            idle,
            connect,
            orders: orders.clone(),
            wire: None,
            stops: HashMap::new(),
            has_left: false,
            about,
            telling,
            side_work: recruiter.clone().map(SideWork::new),
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
    engine: WorkerEngine<Output>,
    actions: Vec<WorkerAction<Output>>,
    handlers: Arc<Handlers>,
    /// Where sync handlers run, if there are any.
    threads: Option<Threads>,
    /// Notifies when one of these threads is idle.
    idle: Idle,
    connect: Connect,
    orders: UnboundedSender<Happened>,
    wire: Option<Wire>,
    /// Stop signals of running jobs.
    stops: HashMap<Hold, watch::Sender<bool>>,
    has_left: bool,
    /// Facts about this worker for the server.
    about: About,
    /// The grace period, once the server has asked it to drain.
    telling: watch::Sender<Option<Duration>>,
    /// Side jobs, if there are any.
    side_work: Option<SideWork>,
}

/// The clock is checked this often, because the machine may have slept.
const TICK: Duration = Duration::from_secs(1);

/// After this many events the connection is read, however many more wait.
const TOGETHER: usize = 256;

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

/// The report of an attempt that its handler has ended.
fn report(hold: Hold, ended: Ended) -> Report {
    let Ended { outcome, log } = ended;
    let (ending, result) = match bounded(outcome) {
        Outcome::Finished(result) => (Ending::Finished, result),
        Outcome::Failed { error, forever } => {
            let again = if forever { Again::Never } else { Again::ByPolicy };
            (Ending::Failed { again, error: error.into() }, None)
        }
        Outcome::Snoozed(span) => {
            let millis = u32::try_from(span.as_millis()).unwrap_or(u32::MAX);
            (Ending::Snoozed(Millis(millis)), None)
        }
        Outcome::Unstarted(error) => {
            tracing::warn!(error, "a job could not be started on this worker");
            (Ending::Unstarted(error.into()), None)
        }
        Outcome::Stopped => (Ending::Stopped, None),
    };
    Report { hold, ending, result: result.map(Arc::from), log: log.map(Arc::from) }
}

impl Shell {
    async fn run(mut self, mut happened: UnboundedReceiver<Happened>) {
        self.perform();
        while !self.has_left {
            let wait = self.engine.next_deadline().map_or(TICK, |at| clock::until(at).min(TICK));
            let soon = self.side_work.as_ref().and_then(SideWork::wait);
            let wait = soon.map_or(wait, |soon| wait.min(soon));
            tokio::select! {
                biased;
                delivery = receive(&mut self.wire) => {
                    let input = delivery.map_or(WorkerInput::Disconnected, WorkerInput::Received);
                    self.handle(input);
                }
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
                () = self.idle.said() => self.handle(WorkerInput::Idle),
                () = tokio::time::sleep(wait) => self.handle(WorkerInput::Tick),
            }
            let agent = self.engine.agent();
            if let Some(side_work) = &mut self.side_work
                && agent.running_count() + agent.waiting_count() == 0
            {
                side_work.idle_moment(&self.orders);
            }
            self.handle(WorkerInput::Flush);
        }
        self.close_threads().await;
        if let Some(side_work) = &mut self.side_work {
            side_work.close().await;
        }
    }

    /// Waits for the threads, unless a handler ignores that it should stop.
    async fn close_threads(&mut self) {
        let closing = self.threads.as_mut().and_then(Threads::close);
        if let Some(closing) = closing.filter(|_| self.engine.agent().running_count() == 0) {
            // Panics of handlers are reported as failures of their jobs.
            let _ = closing.await;
        }
    }

    fn take(&mut self, happened: Happened) {
        match happened {
            Happened::Wired(Ok(wire)) => {
                self.wire = Some(wire);
                self.handle(WorkerInput::Connected);
            }
            Happened::Wired(Err(_)) => self.handle(WorkerInput::Disconnected),
            Happened::Ended { hold, ended } => {
                self.stops.remove(&hold);
                self.handle(WorkerInput::Ended(report(hold, ended)));
            }
            Happened::Progressed { hold, percent } => {
                self.handle(WorkerInput::Progressed { hold, percent });
            }
            Happened::Printed { hold, stream, text } => {
                let bytes = text.len();
                let piece = Output { job: WireHold::from(hold), stream, text };
                self.handle(WorkerInput::Printed { piece, bytes });
            }
            Happened::Drain { grace } => self.handle(WorkerInput::Drain { grace }),
            Happened::SideWorkDone => {
                if let Some(side_work) = &mut self.side_work {
                    side_work.done();
                }
            }
        }
    }

    fn handle(&mut self, input: WorkerInput<Output>) {
        if matches!(input, WorkerInput::Disconnected) {
            self.wire = None;
        }
        self.engine.handle(clock::now(), input, &mut self.actions);
        self.perform();
    }

    /// Performs the actions of the engine, in order. A failed send is an input of its own, after
    /// the others.
    fn perform(&mut self) {
        while !self.actions.is_empty() {
            let mut has_failed = false;
            for action in std::mem::take(&mut self.actions) {
                has_failed |= !self.act(action);
            }
            if has_failed {
                let now = clock::now();
                self.engine.handle(now, WorkerInput::SendFailed, &mut self.actions);
            }
        }
    }

    /// False if a batch could not be sent.
    fn act(&mut self, action: WorkerAction<Output>) -> bool {
        match action {
            WorkerAction::Connect { wait } => {
                let (connect, orders) = (Arc::clone(&self.connect), self.orders.clone());
                tokio::spawn(async move {
                    tokio::time::sleep(wait).await;
                    let _ = orders.send(Happened::Wired(connect().await));
                });
            }
            WorkerAction::Disconnect => self.wire = None,
            WorkerAction::Send(batch) => return self.send(&batch),
            WorkerAction::SendOutput { worker, output } => self.print(worker, output),
            WorkerAction::Deadline(deadline) => {
                if let Some(runner) = self.handlers.runner() {
                    runner.deadline(deadline);
                }
            }
            WorkerAction::Start { assignment, payload } => self.start(assignment, payload),
            WorkerAction::Stop { hold, why } => {
                worker_log::stop(why);
                if let Some(stop) = self.stops.get(&hold) {
                    stop.send_replace(true);
                }
            }
            WorkerAction::Answered { .. } => {}
            WorkerAction::ToldToDrain { grace } => {
                self.telling.send_replace(Some(grace));
            }
            WorkerAction::Leave => {
                tracing::info!("worker stopped: nothing runs, and every report is answered");
                self.has_left = true;
            }
            WorkerAction::Log(log) => worker_log::write(log),
        }
        true
    }

    /// False if the connection is broken or full.
    fn send(&self, batch: &WorkerBatch) -> bool {
        let Some(wire) = &self.wire else {
            return true;
        };
        let WorkerBatch { worker, session, number, messages } = batch;
        let mut frame = UpFrame::say(*worker, *session, *number, messages);
        if matches!(messages.first(), Some(FromWorker::Hello(_))) {
            frame.about = Some(Box::new(self.about.clone()));
        }
        wire.up.try_send(frame).is_ok()
    }

    fn print(&self, worker: WorkerId, output: Vec<Output>) {
        let has_room = |wire: &&Wire| wire.up.max_capacity() - wire.up.capacity() < PRINTS_WAITING;
        if let Some(wire) = self.wire.as_ref().filter(has_room) {
            let worker = filch_api::id::worker(worker);
            let messages = Vec::new();
            let frame = UpFrame { worker, session: 0, number: 0, messages, output, about: None };
            // Output that does not fit is still in the stored log.
            let _ = wire.up.try_send(frame);
        }
    }

    fn start(&mut self, assignment: Assignment, payload: Arc<str>) {
        let hold = assignment.hold;
        let (stop, stopped) = watch::channel(false);
        self.stops.insert(hold, stop);
        let orders = self.orders.clone();
        match self.handlers.start(assignment, payload, stopped, orders.clone()) {
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
}

/// Waits for a frame; for ever if there is no connection.
async fn receive(wire: &mut Option<Wire>) -> Option<Delivery> {
    match wire {
        Some(wire) => wire.down.recv().await,
        None => std::future::pending().await,
    }
}
