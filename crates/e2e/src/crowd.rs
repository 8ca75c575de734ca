//! A crowd of workers in this process: each with a connection of its own, speaking to the server as every
//! worker does, and able to do nothing.

use std::time::Duration;

use filch_scheduler::agent::{AgentConfig as Usual, Home};
use filch_worker::handler::Handlers;
use filch_worker::{RunningWorker, WorkerConfig, connect};

/// Workers that wait for work. They leave when this is dropped.
pub struct Crowd(Vec<RunningWorker>);

impl Crowd {
    /// So many workers for the server at this URL. Needs a running tokio runtime.
    #[must_use]
    pub fn gather(url: &str, count: usize) -> Self {
        let worker = |_| {
            let Usual { reserve, .. } = Usual::default();
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

impl Drop for Crowd {
    fn drop(&mut self) {
        for worker in &self.0 {
            worker.drain(Duration::ZERO);
        }
    }
}
