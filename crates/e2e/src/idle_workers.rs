//! Many workers in this process, each with its own connection to the server, that have no handlers
//! and so never run a job.

use std::time::Duration;

use filch_scheduler::agent::{AgentConfig, Home};
use filch_worker::handler::Handlers;
use filch_worker::{RunningWorker, WorkerConfig, connect};

/// Workers that wait for work. Dropping this disconnects them.
pub struct IdleWorkers(Vec<RunningWorker>);

impl IdleWorkers {
    /// Starts this many workers for the server at this URL. Needs a running tokio runtime.
    #[must_use]
    pub fn start(url: &str, count: usize) -> Self {
        let worker = |_| {
            let AgentConfig { reserve, .. } = AgentConfig::default();
            let config = WorkerConfig {
                slots: 1,
                queues: None,
                home: Home::Apart,
                grace: Duration::ZERO,
                reserve,
                name: None,
                trace_schedule: None,
            };
            RunningWorker::start(config, Handlers::default(), connect::to(vec![url.to_owned()]))
        };
        Self((0..count).map(worker).collect())
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl Drop for IdleWorkers {
    fn drop(&mut self) {
        for worker in &self.0 {
            worker.drain(Duration::ZERO);
        }
    }
}
