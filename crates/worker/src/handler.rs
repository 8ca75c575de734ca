//! Handlers: which code runs jobs of which kind.

use std::collections::HashMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use filch_api::submission::{COMMAND, Work};
use filch_api::suggest::did_you_mean;
use filch_recruit::Recruiter;
use filch_scheduler::message::Assignment;
use futures_util::FutureExt as _;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};

use crate::shell::Happened;

/// One attempt at a job, as its handler sees it.
pub struct Attempt {
    pub(crate) assignment: Assignment,
    pub(crate) payload: Arc<str>,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) happened: mpsc::UnboundedSender<Happened>,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded, with this result in JSON.
    Finished(Option<String>),
    /// It failed.
    Failed {
        /// The error, for people.
        error: String,
        /// Whether the failure is permanent, so that a retry cannot help.
        forever: bool,
    },
    /// Run the job again after this time; this does not count as an attempt.
    Snoozed(Duration),
    /// This worker could not start it, for this reason, which is not the job's fault: the job goes
    /// back to its queue, and this does not count as an attempt. After a few of these in a row, the
    /// worker takes no jobs for a while.
    Unstarted(String),
    /// It was asked to stop, and has stopped.
    Stopped,
}

impl Outcome {
    /// It failed, and may be retried.
    #[must_use]
    pub fn failed(error: impl Into<String>) -> Self {
        Self::Failed { error: error.into(), forever: false }
    }
}

impl Attempt {
    /// The job's UUID.
    #[must_use]
    pub fn job(&self) -> String {
        filch_api::id::job(self.assignment.id)
    }

    /// The job's kind.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.assignment.kind.as_str()
    }

    /// Its queue.
    #[must_use]
    pub fn queue(&self) -> &str {
        self.assignment.queue.as_str()
    }

    /// Which attempt this is, from 1.
    #[must_use]
    pub const fn number(&self) -> u16 {
        self.assignment.attempt
    }

    /// The fencing token: it grows with each owner of the job, so external systems can use it to
    /// refuse writes of earlier owners.
    #[must_use]
    pub const fn fence(&self) -> u64 {
        self.assignment.hold.fence.0
    }

    /// What was submitted: the command or arguments, and the environment.
    #[must_use]
    pub fn work(&self) -> Work {
        // The server wrote this text. If it cannot be parsed, the job has no arguments.
        serde_json::from_str(&self.payload).unwrap_or_default()
    }

    /// The arguments as they were submitted; `null` if there are none.
    #[must_use]
    pub fn args(&self) -> String {
        self.work().args.map_or_else(|| "null".to_owned(), |args| RawValue::get(&args).to_owned())
    }

    /// Whether the attempt should stop. Handlers that run for long should check this now and then.
    #[must_use]
    pub fn should_stop(&self) -> bool {
        *self.stop.borrow()
    }

    /// Waits until the attempt should stop.
    pub async fn stopped(&mut self) {
        if self.stop.wait_for(|stop| *stop).await.is_err() {
            // The worker is gone, so nothing can ask it to stop.
            std::future::pending::<()>().await;
        }
    }

    /// Reports the progress of the job in percent, from 0 to 100.
    pub fn progress(&self, percent: u8) {
        let _ = self.happened.send(Happened::Progressed { hold: self.assignment.hold, percent });
    }
}

/// A running attempt. Its result is available only when nothing of it runs any more.
pub(crate) enum Running {
    /// A future to await.
    Waits(Pin<Box<dyn Future<Output = Ended> + Send>>),
    /// A function to call on a thread of the pool.
    Computes(Box<dyn FnOnce() -> Ended + Send>),
}

/// The outcome of an attempt, and its log.
pub(crate) struct Ended {
    pub(crate) outcome: Outcome,
    pub(crate) log: Option<String>,
}

type Handling = Pin<Box<dyn Future<Output = Outcome> + Send>>;

enum Handler {
    Sync(Arc<dyn Fn(Attempt) -> Outcome + Send + Sync>),
    Async(Arc<dyn Fn(Attempt) -> Handling + Send + Sync>),
}

/// The handlers of a worker, and its side jobs.
#[derive(Default)]
pub struct Handlers {
    by_kind: HashMap<String, Handler>,
    commands: Option<Arc<crate::command::Runner>>,
    side_jobs: Option<filch_recruit::RecruiterBuilder>,
}

impl Handlers {
    /// No handlers yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs jobs of this kind on a pool with as many threads as the worker has slots. Handlers may
    /// use `filch_pool`: idle threads run what they fork and spawn, and `filch_pool::blocking` lets
    /// another thread compute while one waits.
    #[must_use]
    pub fn sync(
        mut self,
        kind: &str,
        handler: impl Fn(Attempt) -> Outcome + Send + Sync + 'static,
    ) -> Self {
        self.by_kind.insert(kind.to_owned(), Handler::Sync(Arc::new(handler)));
        self
    }

    /// Runs jobs of this kind as async tasks. A task that should stop is dropped at its next await.
    #[must_use]
    pub fn asynchronous<F>(
        mut self,
        kind: &str,
        handler: impl Fn(Attempt) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let handler = move |attempt: Attempt| -> Handling { Box::pin(handler(attempt)) };
        self.by_kind.insert(kind.to_owned(), Handler::Async(Arc::new(handler)));
        self
    }

    /// Runs commands.
    #[must_use]
    pub fn commands(mut self, runner: crate::command::Runner) -> Self {
        self.commands = Some(Arc::new(runner));
        self
    }

    /// Runs a side job while the worker is idle: this share of its idle moments gets a slice of the
    /// job, within the budget that [`side_job`](crate::side_job) describes. The name is for logs
    /// and statistics.
    #[must_use]
    pub fn side_job(
        mut self,
        name: &str,
        rate: filch_recruit::Rate,
        job: impl filch_recruit::SideJob + 'static,
    ) -> Self {
        let jobs = self.side_jobs.unwrap_or_else(Recruiter::builder);
        self.side_jobs = Some(jobs.job(name, rate, job));
        self
    }

    /// Takes the side jobs out, as a recruiter.
    pub(crate) fn recruiter(&mut self) -> Option<Recruiter> {
        let jobs = self.side_jobs.take()?;
        Some(jobs.build().unwrap_or_else(|error| panic!("{error}")))
    }

    pub(crate) fn runner(&self) -> Option<&Arc<crate::command::Runner>> {
        self.commands.as_ref()
    }

    /// Whether there are sync handlers.
    pub(crate) fn has_sync(&self) -> bool {
        self.by_kind.values().any(|handler| matches!(handler, Handler::Sync(_)))
    }

    /// Starts an attempt.
    pub(crate) fn start(
        &self,
        assignment: Assignment,
        payload: Arc<str>,
        stop: watch::Receiver<bool>,
        happened: mpsc::UnboundedSender<Happened>,
    ) -> Running {
        let plain = |outcome| Ended { outcome, log: None };
        let attempt = Attempt { assignment, payload, stop, happened };
        match self.by_kind.get(attempt.kind()) {
            Some(Handler::Async(handler)) => {
                let mut stop = attempt.stop.clone();
                // Called inside the task, so that panics before the first await are caught, too.
                let handler = Arc::clone(handler);
                let running = async move { handler(attempt).await };
                let running = AssertUnwindSafe(running).catch_unwind();
                Running::Waits(Box::pin(async move {
                    tokio::select! {
                        outcome = running => plain(outcome.unwrap_or_else(|_| panicked())),
                        // Dropping the future stops it.
                        _ = stop.wait_for(|stop| *stop) => plain(Outcome::Stopped),
                    }
                }))
            }
            Some(Handler::Sync(handler)) => {
                let handler = Arc::clone(handler);
                Running::Computes(Box::new(move || {
                    let outcome = catch_unwind(AssertUnwindSafe(|| handler(attempt)));
                    plain(outcome.unwrap_or_else(|_| panicked()))
                }))
            }
            None => match &self.commands {
                Some(runner) if attempt.kind() == COMMAND => {
                    let runner = Arc::clone(runner);
                    let running =
                        async move { crate::command_handler::run(&runner, attempt).await };
                    Running::Waits(Box::pin(running))
                }
                _ => {
                    let error = self.unknown(attempt.kind());
                    Running::Waits(Box::pin(async move { plain(Outcome::failed(error)) }))
                }
            },
        }
    }

    /// The kinds of jobs that there are handlers for, sorted.
    #[must_use]
    pub fn kinds(&self) -> Vec<String> {
        let mut kinds: Vec<String> = self.by_kind.keys().cloned().collect();
        kinds.extend(self.commands.as_ref().map(|_| COMMAND.to_owned()));
        kinds.sort_unstable();
        kinds
    }

    fn unknown(&self, kind: &str) -> String {
        let kinds = self.kinds();
        let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
        let known = if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") };
        let near = did_you_mean(kind, &kinds);
        format!("this worker has no handler for kind {kind:?}; known kinds: {known}{near}")
    }
}

fn panicked() -> Outcome {
    Outcome::failed("the handler panicked; the message is in the worker's stderr")
}
