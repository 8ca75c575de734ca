//! The node: executes one message after the other on its cluster, and replies.

use crate::cluster::{Cluster, Refused, Setup, Theft};
use crate::reply::{self, Object};
use crate::request::{Init, Malformed, Message, Request};
use crate::simulation::Report;

/// With this seed a fresh node that is asked to steal from `w1` or `w2` chooses `w1`.
pub const DEFAULT_SEED: u64 = 2221;

pub(crate) struct Node {
    /// The seed of clusters whose `init` has none.
    seed: u64,
    cluster: Cluster,
}

/// What to log about a message, besides its answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LogNote {
    /// The value is not a message.
    Ignored(&'static str),
    Simulated(String),
}

/// The answer to a request that succeeded.
enum Done {
    Init,
    Stolen { thief: String, theft: Theft },
    State,
    Simulated { report: Report, is_wanted: bool },
    Pushed { worker: String, queue_size: usize },
    Popped { worker: String, job: String, queue_size: usize },
    Completed { worker: String, job: String },
}

/// The answer to a request that failed.
struct ErrorReply {
    code: u32,
    text: String,
}

impl Node {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, cluster: Cluster::fresh(seed) }
    }

    /// Executes one message and appends the answer, if there is one, as a line.
    pub(crate) fn handle(&mut self, value: &str, answer: &mut String) -> Option<LogNote> {
        let message = match Message::read(value) {
            Ok(message) => message,
            Err(why) => return Some(LogNote::Ignored(why)),
        };
        if message.body.has("in_reply_to") {
            return None;
        }
        let outcome = Request::read(&message.body)
            .map_err(ErrorReply::from)
            .and_then(|request| self.execute(request).map_err(ErrorReply::from));
        let is_silent = matches!(&outcome, Ok(Done::Simulated { is_wanted: false, .. }));
        if let Some(msg_id) = message.body.msg_id()
            && !is_silent
        {
            reply::line(answer, |envelope| {
                envelope.string("src", &message.dest);
                envelope.string("dest", &message.src);
                envelope.object("body", |body| self.answer(msg_id, &outcome, body));
            });
        }
        match outcome {
            Ok(Done::Simulated { report, .. }) => Some(LogNote::Simulated(report.summary())),
            _ => None,
        }
    }

    fn execute(&mut self, request: Request) -> Result<Done, Refused> {
        let cluster = &mut self.cluster;
        Ok(match request {
            Request::Init(Init { workers, jobs, seed, job_duration_ms, placement }) => {
                let seed = seed.unwrap_or(self.seed);
                *cluster = Cluster::new(Setup { workers, jobs, placement, job_duration_ms, seed });
                Done::Init
            }
            Request::StealJob { thief, busy } => {
                Done::Stolen { theft: cluster.steal(&thief, &busy)?, thief }
            }
            Request::CheckClusterState => Done::State,
            Request::RunSimulation { duration_ms, report } => {
                Done::Simulated { report: cluster.simulate(duration_ms), is_wanted: report }
            }
            Request::PushJob { worker, job } => {
                Done::Pushed { queue_size: cluster.push(&worker, &job)?, worker }
            }
            Request::PopJob { worker } => {
                let (job, queue_size) = cluster.pop(&worker)?;
                Done::Popped { worker, job, queue_size }
            }
            Request::CompleteJob { worker, job } => {
                cluster.complete(&worker, &job)?;
                Done::Completed { worker, job }
            }
        })
    }

    fn answer(&self, msg_id: i128, outcome: &Result<Done, ErrorReply>, body: &mut Object<'_>) {
        let mut begin = |kind| {
            body.string("type", kind);
            body.number("in_reply_to", msg_id);
        };
        match outcome {
            Ok(Done::Init) => begin("init_ok"),
            Ok(Done::Stolen { thief, theft }) => {
                begin("job_stolen");
                body.string("thief", thief);
                body.string("victim", &theft.victim);
                body.string("job_id", &theft.job);
                body.number("victim_queue_size", theft.victim_queue_size as i128);
            }
            Ok(Done::State) => {
                begin("cluster_state_ok");
                body.object("workers", |workers| {
                    for (name, queue_size, is_idle) in self.cluster.states() {
                        workers.object(name, |worker| {
                            worker.number("queue_size", queue_size as i128);
                            worker.string("state", if is_idle { "idle" } else { "busy" });
                        });
                    }
                });
                body.boolean("all_idle", self.cluster.all_idle());
            }
            Ok(Done::Simulated { report, .. }) => {
                begin("simulation_complete");
                body.object("results", |results| self.results(report, results));
            }
            Ok(Done::Pushed { worker, queue_size }) => {
                begin("push_job_ok");
                body.string("worker", worker);
                body.number("queue_size", *queue_size as i128);
            }
            Ok(Done::Popped { worker, job, queue_size }) => {
                begin("pop_job_ok");
                body.string("worker", worker);
                body.string("job_id", job);
                body.number("queue_size", *queue_size as i128);
            }
            Ok(Done::Completed { worker, job }) => {
                begin("complete_job_ok");
                body.string("worker", worker);
                body.string("job_id", job);
            }
            Err(ErrorReply { code, text }) => {
                begin("error");
                body.number("code", *code);
                body.string("text", text);
            }
        }
    }

    fn results(&self, report: &Report, results: &mut Object<'_>) {
        results.number("duration_ms", report.duration_ms);
        results.number("elapsed_ms", report.elapsed_ms);
        results.number("completed", report.completed);
        results.number("in_flight", report.in_flight);
        results.number("queued", report.queued);
        results.number("steals", report.steals);
        results.object("workers", |workers| {
            for ((name, _, _), effort) in self.cluster.states().zip(&report.workers) {
                workers.object(name, |worker| {
                    worker.number("executed", effort.executed);
                    worker.number("stolen", effort.stolen);
                    worker.number("busy_ms", effort.busy_ms);
                });
            }
        });
    }
}

impl Report {
    fn summary(&self) -> String {
        let Self { duration_ms, elapsed_ms, completed, in_flight, queued, steals, workers } = self;
        format!(
            "simulated {elapsed_ms} of {duration_ms} ms on {} workers: {completed} completed, \
             {in_flight} in flight, {queued} queued, {steals} stolen",
            workers.len()
        )
    }
}

impl From<Malformed> for ErrorReply {
    fn from(malformed: Malformed) -> Self {
        Self { code: malformed.code(), text: malformed.to_string() }
    }
}

impl From<Refused> for ErrorReply {
    fn from(refused: Refused) -> Self {
        Self { code: refused.code(), text: refused.to_string() }
    }
}
