//! What can be run: handlers by kind, and commands.

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

/// One try at a job, as its handler sees it.
pub struct Attempt {
    pub(crate) assignment: Assignment,
    pub(crate) payload: Arc<str>,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) happened: mpsc::UnboundedSender<Happened>,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It succeeded, and came to this, in JSON.
    Finished(Option<String>),
    /// It failed.
    Failed {
        /// For people.
        error: String,
        /// Trying again cannot help.
        forever: bool,
    },
    /// To be called again after a while; not counted as an attempt.
    Snoozed(Duration),
    /// It was told to stop, and has.
    Stopped,
}

impl Outcome {
    /// It failed, and may be tried again.
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

    /// What kind of work it is.
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

    /// The number of the job's owner: whatever is changed outside filch can be protected by it.
    #[must_use]
    pub const fn fence(&self) -> u64 {
        self.assignment.hold.fence.0
    }

    /// What was submitted.
    #[must_use]
    pub fn work(&self) -> Work {
        // The server has made this text. If it cannot be read, it says nothing.
        serde_json::from_str(&self.payload).unwrap_or_default()
    }

    /// The arguments as they were submitted; `null` if there are none.
    #[must_use]
    pub fn args(&self) -> String {
        self.work().args.map_or_else(|| "null".to_owned(), |args| RawValue::get(&args).to_owned())
    }

    /// Whether the attempt has been told to stop. A handler that runs for long asks now and then.
    #[must_use]
    pub fn should_stop(&self) -> bool {
        *self.stop.borrow()
    }

    /// Waits until the attempt is told to stop.
    pub async fn stopped(&mut self) {
        if self.stop.wait_for(|stop| *stop).await.is_err() {
            // Nobody can say it any more.
            std::future::pending::<()>().await;
        }
    }

    /// Says how far the job has come, from 0 to 100.
    pub fn progress(&self, percent: u8) {
        let _ = self.happened.send(Happened::Progressed { hold: self.assignment.hold, percent });
    }
}

/// An attempt that is made. What it comes to is there only when nothing of it runs any more.
pub(crate) enum Running {
    /// To be awaited.
    Waits(Pin<Box<dyn Future<Output = Ended> + Send>>),
    /// To be called, on a thread for that.
    Computes(Box<dyn FnOnce() -> Ended + Send>),
}

/// What an attempt came to, and what it printed.
pub(crate) struct Ended {
    pub(crate) outcome: Outcome,
    pub(crate) log: Option<String>,
}

type Handling = Pin<Box<dyn Future<Output = Outcome> + Send>>;

enum Handler {
    Sync(Arc<dyn Fn(Attempt) -> Outcome + Send + Sync>),
    Async(Arc<dyn Fn(Attempt) -> Handling + Send + Sync>),
}

/// What a worker can do.
#[derive(Default)]
pub struct Handlers {
    by_kind: HashMap<String, Handler>,
    commands: Option<Arc<crate::command::Runner>>,
    side_jobs: Option<filch_recruit::RecruiterBuilder>,
}

impl Handlers {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs jobs of this kind on a thread of a pool that has as many as the worker has slots. There they
    /// may use `filch_pool`: what is forked and spawned is done by threads that have nothing else to do,
    /// and `filch_pool::blocking` lets another thread compute while one waits.
    #[must_use]
    pub fn sync(
        mut self,
        kind: &str,
        handler: impl Fn(Attempt) -> Outcome + Send + Sync + 'static,
    ) -> Self {
        self.by_kind.insert(kind.to_owned(), Handler::Sync(Arc::new(handler)));
        self
    }

    /// Runs jobs of this kind as tasks; one that is told to stop is dropped where it waits.
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
    /// job, within the budget that [`side_job`](crate::side_job) describes. The name is for logs and
    /// statistics.
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

    /// Whether any is to run on a thread of a pool.
    pub(crate) fn has_sync(&self) -> bool {
        self.by_kind.values().any(|handler| matches!(handler, Handler::Sync(_)))
    }

    /// Makes an attempt.
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
                // Also what it does before it first waits is within the task, panics included.
                let handler = Arc::clone(handler);
                let running = async move { handler(attempt).await };
                let running = AssertUnwindSafe(running).catch_unwind();
                Running::Waits(Box::pin(async move {
                    tokio::select! {
                        outcome = running => plain(outcome.unwrap_or_else(|_| panicked())),
                        // Dropping it where it waits is what stops it.
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
        format!("this worker has no handler for kind {kind:?}; it knows {known}{near}")
    }
}

fn panicked() -> Outcome {
    Outcome::failed("the handler panicked; its message is in the worker's own output")
}
