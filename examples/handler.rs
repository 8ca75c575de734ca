//! A worker with a custom handler. Usage: handler [URL]

use std::error::Error;
use std::time::Duration;

use filch_worker::connect;
use filch_worker::handler::{Attempt, Handlers, Outcome};
use filch_worker::{RunningWorker, WorkerConfig};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
struct Resize {
    path: String,
    width: u32,
}

fn resize(attempt: Attempt) -> Outcome {
    let job: Resize = match serde_json::from_str(&attempt.args()) {
        Ok(job) => job,
        // A retry would get the same arguments, so the failure is permanent.
        Err(error) => return Outcome::Failed { error: error.to_string(), forever: true },
    };
    // Real work would call `progress` now and then, and check `should_stop`.
    attempt.progress(50);
    let thumbnail = json!({ "thumbnail": format!("{}@{}", job.path, job.width) });
    Outcome::Finished(Some(thumbnail.to_string()))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:7420".to_owned());
    let config =
        WorkerConfig { slots: 4, queues: Some(vec!["img".to_owned()]), ..WorkerConfig::default() };
    let handlers = Handlers::new().sync("resize", resize);
    let worker = RunningWorker::start(config, handlers, connect::to(vec![url]));
    tokio::select! {
        // An operator has drained it.
        _ = worker.left() => {}
        _ = tokio::signal::ctrl_c() => {
            worker.drain(Duration::from_secs(30));
            worker.left().await;
        }
    }
    Ok(())
}
