//! The inputs and actions of a worker's engine.

use filch_scheduler::agent::{StopReason, Verdict};
use filch_scheduler::id::{Hold, WorkerId};
use filch_scheduler::message::{Assignment, Delivery, Report, WorkerBatch};
use filch_scheduler::record::StoredText;
use filch_scheduler::time::{Duration, Monotonic};

/// An input of a worker's engine. `O` is a piece of output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WorkerInput<O> {
    /// A connection to the server was made.
    Connected,
    /// The connection broke, or could not be made.
    Disconnected,
    /// A batch came.
    Received(Delivery),
    /// A batch could not be sent, because the connection is full or broken. Reported after the
    /// remaining actions were performed.
    SendFailed,
    /// An attempt ended, and nothing of it runs any more.
    Ended(Report),
    /// A running job reported its progress.
    Progressed {
        /// Which one.
        hold: Hold,
        /// From 0 to 100.
        percent: u8,
    },
    /// A running job has printed something.
    Printed {
        /// What it printed.
        piece: O,
        /// Its size.
        bytes: usize,
    },
    /// Graceful shutdown within this grace period.
    Drain {
        /// How long running jobs may take.
        grace: Duration,
    },
    /// A thread that runs jobs is idle.
    Idle,
    /// Time has passed.
    Tick,
    /// No other input waits at the moment.
    Flush,
}

/// An action of a worker's engine. The shell performs actions in order and never waits in between.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WorkerAction<O> {
    /// Connect to the server after this wait, and report [`WorkerInput::Connected`] or
    /// [`WorkerInput::Disconnected`].
    Connect {
        /// Random, so that many workers do not reconnect at once.
        wait: Duration,
    },
    /// Close the connection. No [`WorkerInput::Disconnected`] is needed for it.
    Disconnect,
    /// Send this batch.
    Send(WorkerBatch),
    /// Send this output of running jobs, unless batches wait already: they have priority.
    SendOutput {
        /// The incarnation that sends it.
        worker: WorkerId,
        /// The output, in order.
        output: Vec<O>,
    },
    /// From this moment on, unless it is moved, no command may run. It comes before the start of
    /// every job that it covers.
    Deadline(Option<Monotonic>),
    /// Run this job, and report [`WorkerInput::Ended`] when it is over.
    Start {
        /// The job.
        assignment: Assignment,
        /// Its payload.
        payload: StoredText,
    },
    /// Stop this job, and report [`WorkerInput::Ended`] when nothing of it runs any more.
    Stop {
        /// Which one.
        hold: Hold,
        /// Why.
        why: StopReason,
    },
    /// The server answered the report of this job.
    Answered {
        /// Which one.
        hold: Hold,
        /// The answer.
        verdict: Verdict,
    },
    /// The server has asked the worker to drain.
    ToldToDrain {
        /// How long running jobs may take.
        grace: Duration,
    },
    /// The worker can end.
    Leave,
    /// Something to log.
    Log(WorkerLog),
}

/// An event that is worth a line in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkerLog {
    /// The server has answered over a new connection.
    Connected {
        /// This worker.
        worker: WorkerId,
        /// How long there was no connection; `None` for the first one.
        after: Option<Duration>,
    },
    /// The connection is over.
    Disconnected {
        /// This worker.
        worker: WorkerId,
    },
    /// The worker drains.
    Draining {
        /// How many jobs run.
        running: usize,
        /// How many jobs have not started, and are handed back.
        waiting: usize,
        /// How long running jobs may take.
        grace: Duration,
    },
    /// The last jobs could not be started here, so the worker takes none for a while.
    Resting {
        /// For how long.
        wait: Duration,
    },
    /// The lease has expired; the worker continues as another incarnation.
    Replaced {
        /// The id until now.
        before: WorkerId,
        /// The new id.
        worker: WorkerId,
    },
}
