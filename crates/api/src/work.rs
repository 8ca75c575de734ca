//! Working over plain HTTP: four requests, for workers of forty lines in any language.
//!
//! A worker makes up an id, claims into its free slots, says every now and then what it holds, and
//! reports how each attempt ended. A claim has a number: the same number, the same answer, so that a
//! claim whose answer was lost can be repeated.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::limits;
use crate::problem::Problem;
use crate::session::{WireAssignment, WireEnding, WireHold, WireReport};
use crate::submission::{Span, name};

/// A worker wants jobs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Numbers the worker's claims, from 1. The same number brings the same answer; a higher one says
    /// that every answer before it has been read, or will never be.
    #[cfg_attr(feature = "schema", schema(minimum = 1))]
    pub number: u64,
    /// How many jobs it can run at once, those that it holds included. With 0 it takes none, and what
    /// was assigned and never arrived goes back to the queue.
    #[cfg_attr(feature = "schema", schema(maximum = 1000))]
    pub slots: u32,
    /// The queues it serves; all if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<Vec<String>>,
    /// Every job it was given and whose report was not answered.
    #[serde(default)]
    pub holds: Vec<WireHold>,
    /// How long the answer may wait for a job to come; not at all if missing. It also comes when the
    /// worker has said nothing else for a quarter of its lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Span>,
}

/// What a claim brings.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Claimed {
    /// These are the worker's, to be started at once.
    pub jobs: Vec<WireAssignment>,
    /// Of what it says to hold, these are not its own any more: it stops them, and reports them as
    /// `stopped`.
    pub cancel: Vec<WireHold>,
    /// It is to finish what it has, and leave.
    pub drain: bool,
    /// How long it may be silent before its jobs go to others, in milliseconds.
    pub lease_ms: u64,
}

/// A worker is still there. Due ten times a lease.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Heartbeat {
    /// Every job it was given and whose report was not answered.
    #[serde(default)]
    pub holds: Vec<WireHold>,
    /// Of those it was told to cancel, the ones that it is stopping. Whoever cancelled them is answered
    /// then; without this, when they are reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stopping: Vec<WireHold>,
}

/// What is truly the worker's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HeartbeatAnswer {
    /// What it says to hold and does.
    pub keep: Vec<WireHold>,
    /// What it says to hold and is to stop, and to report as `stopped`.
    pub cancel: Vec<WireHold>,
    /// It is to finish what it has, and leave.
    pub drain: bool,
    /// How long it may be silent before its jobs go to others, in milliseconds.
    pub lease_ms: u64,
}

/// How attempts ended.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Reports {
    /// In any order; each may be repeated.
    #[cfg_attr(feature = "schema", schema(min_items = 1))]
    pub reports: Vec<WireReport>,
}

/// Which reports are stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Answered {
    /// These are.
    pub accepted: Vec<WireHold>,
    /// These came too late, and are not. The worker forgets them all the same.
    pub refused: Vec<TooLate>,
}

/// A report that came too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TooLate {
    /// What was reported.
    pub job: WireHold,
    /// The fence that the job has now; missing if there is no such job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<u64>,
}

impl Claim {
    /// Judges a claim.
    ///
    /// # Errors
    /// With what to do about it.
    pub fn check(&self) -> Result<(), Problem> {
        if self.number == 0 {
            return Err(Problem::invalid("claims are numbered from 1").at("/number"));
        }
        if self.slots > limits::PLAIN_SLOTS {
            let title = format!("a worker with {} slots", self.slots);
            return Err(Problem::new(422, "too-many-slots", title)
                .help(format!("use at most {}, or several workers", limits::PLAIN_SLOTS))
                .at("/slots"));
        }
        let queues = self.queues.as_deref().unwrap_or_default();
        if queues.len() > limits::PLAIN_QUEUES {
            let title = format!("a worker that names {} queues", queues.len());
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
    /// Judges a beat.
    ///
    /// # Errors
    /// With what to do about it.
    pub fn check(&self) -> Result<(), Problem> {
        check_count(&self.holds, "/holds")?;
        check_count(&self.stopping, "/stopping")
    }
}

impl Reports {
    /// Judges reports.
    ///
    /// # Errors
    /// With what to do about it.
    pub fn check(&self) -> Result<(), Problem> {
        check_count(&self.reports, "/reports")?;
        for (index, report) in self.reports.iter().enumerate() {
            report.check().map_err(|problem| problem.inside(&format!("/reports/{index}")))?;
        }
        Ok(())
    }
}

fn check_count<T>(items: &[T], at: &str) -> Result<(), Problem> {
    if items.len() <= limits::REQUEST_JOBS {
        return Ok(());
    }
    Err(Problem::new(413, "too-many-jobs", format!("{} jobs at once", items.len()))
        .help(format!("send at most {} at once", limits::REQUEST_JOBS))
        .at(at))
}

impl WireReport {
    fn check(&self) -> Result<(), Problem> {
        let goes_with = |is_there: bool, ending: WireEnding, field: &str| {
            if is_there && self.ending != ending {
                let title = format!("`{field}` does not go with this ending");
                return Err(Problem::invalid(title).at(format!("/{field}")));
            }
            Ok(())
        };
        goes_with(self.error.is_some(), WireEnding::Failed, "error")?;
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
                    .help(format!("report at most {most}, and put the rest somewhere else"))
                    .at(format!("/{field}")));
            }
            Ok(())
        };
        fits(self.error.as_deref(), limits::ERROR_BYTES, "error")?;
        fits(self.result.as_deref().map(RawValue::get), limits::RESULT_BYTES, "result")?;
        fits(self.log.as_deref(), limits::LOG_BYTES, "log")
    }
}
