//! Working over plain HTTP: four requests, for small workers in any language.
//!
//! A worker chooses an id and an instance at random, claims jobs into its free slots, sends
//! heartbeats with the jobs that it holds, and reports how each attempt ended. A claim has a
//! number, and the same number gets the same answer, so a claim whose answer was lost can be
//! repeated. Reports and assignments are those of `session`.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::limits;
use crate::problem::Problem;
use crate::session::{WireAssignment, WireEnding, WireHold, WireReport};
use crate::submission::{Span, name};

/// A request for jobs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Identifies the worker's process: 1 to 64 characters, chosen at random when it starts, and
    /// the same in all its requests. Another process that uses the same worker id is refused.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 64))]
    pub instance: String,
    /// The number of this claim, from 1. The same number gets the same answer; a higher number
    /// means that the worker has read all earlier answers, or never will.
    #[cfg_attr(feature = "schema", schema(minimum = 1))]
    pub number: u64,
    /// How many jobs the worker can run at once, including those that it holds. With 0 it gets
    /// none, and jobs that were assigned but never arrived go back to their queue.
    #[cfg_attr(feature = "schema", schema(maximum = 1000))]
    pub slots: u32,
    /// The queues that it serves; all if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<Vec<String>>,
    /// Every job that it was assigned and whose report is not answered yet.
    #[serde(default)]
    pub holds: Vec<WireHold>,
    /// How long the server may wait for a job before it answers; not at all if missing. It answers
    /// earlier if the worker sends nothing else for a quarter of its lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Span>,
}

/// The answer to a claim.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Claimed {
    /// The jobs that the worker now owns, to be started at once.
    pub jobs: Vec<WireAssignment>,
    /// Jobs in `holds` that are no longer the worker's: it stops them and reports them as
    /// `stopped`.
    pub cancel: Vec<WireHold>,
    /// The worker must finish its jobs and leave.
    pub drain: bool,
    /// The lease: how long the worker may be silent before its jobs go to others, in milliseconds.
    pub lease_ms: u64,
}

/// A heartbeat, due ten times per lease.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Heartbeat {
    /// Identifies the worker's process: 1 to 64 characters, chosen at random when it starts, and
    /// the same in all its requests. Another process that uses the same worker id is refused.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 64))]
    pub instance: String,
    /// Every job that it was assigned and whose report is not answered yet.
    #[serde(default)]
    pub holds: Vec<WireHold>,
    /// Cancelled jobs that the worker is stopping. The request that cancelled them is answered
    /// then; otherwise, when they are reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stopping: Vec<WireHold>,
}

/// The answer to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HeartbeatAnswer {
    /// Jobs in `holds` that the worker owns.
    pub keep: Vec<WireHold>,
    /// Jobs in `holds` that it must stop and report as `stopped`.
    pub cancel: Vec<WireHold>,
    /// The worker must finish its jobs and leave.
    pub drain: bool,
    /// The lease: how long the worker may be silent before its jobs go to others, in milliseconds.
    pub lease_ms: u64,
}

/// Reports of how attempts ended.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Reports {
    /// Identifies the worker's process: 1 to 64 characters, chosen at random when it starts, and
    /// the same in all its requests. Another process that uses the same worker id is refused.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 64))]
    pub instance: String,
    /// In any order; each may be repeated.
    #[cfg_attr(feature = "schema", schema(min_items = 1))]
    pub reports: Vec<WireReport>,
}

/// The last request of a worker.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Goodbye {
    /// Identifies the worker's process: 1 to 64 characters, chosen at random when it starts, and
    /// the same in all its requests. Another process that uses the same worker id is refused.
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 64))]
    pub instance: String,
}

/// The answer to reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Answered {
    /// These are durable.
    pub accepted: Vec<WireHold>,
    /// These came too late and changed nothing. The worker can forget them too.
    pub refused: Vec<TooLate>,
}

/// A report that came too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TooLate {
    /// The job as it was reported.
    pub job: WireHold,
    /// The job's current fence; missing if there is no such job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<u64>,
}

impl Claim {
    /// Validates a claim.
    ///
    /// # Errors
    /// If it is invalid; the error explains what to do.
    pub fn check(&self) -> Result<(), Problem> {
        check_instance(&self.instance)?;
        if self.number == 0 {
            return Err(Problem::invalid("claims are numbered from 1").at("/number"));
        }
        if self.slots > limits::PLAIN_SLOTS {
            let title = format!("too many slots: {}", self.slots);
            return Err(Problem::new(422, "too-many-slots", title)
                .help(format!("use at most {}, or several workers", limits::PLAIN_SLOTS))
                .at("/slots"));
        }
        let queues = self.queues.as_deref().unwrap_or_default();
        if queues.len() > limits::PLAIN_QUEUES {
            let title = format!("too many queues: {}", queues.len());
            return Err(Problem::new(422, "too-many-queues", title)
                .help(format!("name at most {}, or leave `queues` out", limits::PLAIN_QUEUES))
                .at("/queues"));
        }
        for (index, queue) in queues.iter().enumerate() {
            name("queue", queue).map_err(|problem| problem.at(format!("/queues/{index}")))?;
        }
        check_count(&self.holds, "/holds")
    }
}

impl Heartbeat {
    /// Validates a heartbeat.
    ///
    /// # Errors
    /// If it is invalid; the error explains what to do.
    pub fn check(&self) -> Result<(), Problem> {
        check_instance(&self.instance)?;
        check_count(&self.holds, "/holds")?;
        check_count(&self.stopping, "/stopping")
    }
}

impl Reports {
    /// Validates reports.
    ///
    /// # Errors
    /// If it is invalid; the error explains what to do.
    pub fn check(&self) -> Result<(), Problem> {
        check_instance(&self.instance)?;
        check_count(&self.reports, "/reports")?;
        for (index, report) in self.reports.iter().enumerate() {
            report.check().map_err(|problem| problem.inside(&format!("/reports/{index}")))?;
        }
        Ok(())
    }
}

impl Goodbye {
    /// Validates a goodbye.
    ///
    /// # Errors
    /// If it is invalid; the error explains what to do.
    pub fn check(&self) -> Result<(), Problem> {
        check_instance(&self.instance)
    }
}

fn check_instance(instance: &str) -> Result<(), Problem> {
    let characters = instance.chars().count();
    if (1..=limits::INSTANCE_CHARACTERS).contains(&characters) {
        return Ok(());
    }
    let title = format!("`instance` has {characters} characters");
    Err(Problem::invalid(title)
        .help(format!(
            "choose 1 to {} random characters when the process starts",
            limits::INSTANCE_CHARACTERS
        ))
        .at("/instance"))
}

fn check_count<T>(items: &[T], at: &str) -> Result<(), Problem> {
    if items.len() <= limits::REQUEST_JOBS {
        return Ok(());
    }
    Err(Problem::new(
        413,
        "too-many-jobs",
        format!("too many jobs in one request: {}", items.len()),
    )
    .help(format!("send at most {} at once", limits::REQUEST_JOBS))
    .at(at))
}

impl WireReport {
    fn check(&self) -> Result<(), Problem> {
        let goes_with = |is_there: bool, ending: WireEnding, field: &str| {
            if is_there && self.ending != ending {
                let title = format!("`{field}` is not allowed with this `ending`");
                return Err(Problem::invalid(title).at(format!("/{field}")));
            }
            Ok(())
        };
        if self.ending != WireEnding::Unstarted {
            goes_with(self.error.is_some(), WireEnding::Failed, "error")?;
        }
        goes_with(self.forever, WireEnding::Failed, "forever")?;
        goes_with(self.wait.is_some(), WireEnding::Snoozed, "wait")?;
        goes_with(self.result.is_some(), WireEnding::Finished, "result")?;
        if self.ending == WireEnding::Snoozed && self.wait.is_none() {
            return Err(Problem::invalid("a snoozed report needs `wait`")
                .help("write \"wait\": \"30s\"")
                .at("/wait"));
        }
        let fits = |text: Option<&str>, most: usize, field: &str| {
            let bytes = text.map_or(0, str::len);
            if bytes > most {
                let code = format!("{field}-too-large");
                let title = format!("the {field} has {bytes} bytes");
                return Err(Problem::new(413, &code, title)
                    .help(format!("report at most {most} bytes, and store the rest elsewhere"))
                    .at(format!("/{field}")));
            }
            Ok(())
        };
        fits(self.error.as_deref(), limits::ERROR_BYTES, "error")?;
        fits(self.result.as_deref().map(RawValue::get), limits::RESULT_BYTES, "result")?;
        fits(self.log.as_deref(), limits::LOG_BYTES, "log")
    }
}
