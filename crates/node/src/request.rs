//! A parsed message: the envelope, and the request in its body.
//!
//! Fields keep their raw JSON text, because whole numbers are recognized by their form: `6` and
//! `-0` are whole, `6.0`, `6e0` and `true` are not. If a key is repeated, the last one counts.
//! Unknown keys are ignored.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::cluster::{DEFAULT_JOB_DURATION_MS, Placement};
use crate::limits;

/// A message with its sender and receiver.
#[derive(Debug)]
pub(crate) struct Message<'a> {
    pub(crate) src: String,
    pub(crate) dest: String,
    pub(crate) body: Fields<'a>,
}

/// The requests that a node supports.
#[derive(Debug)]
pub(crate) enum Request {
    Init(Init),
    StealJob { thief: String, busy: Vec<String> },
    CheckClusterState,
    RunSimulation { duration_ms: u64, report: bool },
    PushJob { worker: String, job: String },
    PopJob { worker: String },
    CompleteJob { worker: String, job: String },
}

#[derive(Debug)]
pub(crate) struct Init {
    pub(crate) workers: Vec<String>,
    pub(crate) jobs: u32,
    /// `None` means the seed of the node.
    pub(crate) seed: Option<u64>,
    pub(crate) job_duration_ms: u64,
    pub(crate) placement: Placement,
}

/// Why a body is not a valid request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    Missing(&'static str),
    Invalid(&'static str),
    UnsupportedType(String),
}

/// An object whose values have not been parsed yet.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Fields<'a>(#[serde(borrow)] HashMap<String, &'a RawValue>);

type Parsed<T> = Result<T, Malformed>;

impl<'a> Message<'a> {
    /// Parses one JSON value. The error is the reason why it cannot be answered.
    pub(crate) fn read(value: &'a str) -> Result<Self, &'static str> {
        let envelope: Fields<'a> =
            serde_json::from_str(value).map_err(|_| "a message is an object")?;
        Ok(Self {
            src: envelope.string("src").map_err(|_| "`src` must be a string")?,
            dest: envelope.string("dest").map_err(|_| "`dest` must be a string")?,
            body: envelope.require("body").map_err(|_| "`body` must be an object")?,
        })
    }
}

impl Request {
    pub(crate) fn read(body: &Fields<'_>) -> Parsed<Self> {
        let kind = body.string("type")?;
        Ok(match kind.as_str() {
            "init" => Self::Init(Init::read(body)?),
            "steal_job" => Self::StealJob {
                thief: body.string("thief_worker")?,
                busy: body.require("busy_workers")?,
            },
            "check_cluster_state" => Self::CheckClusterState,
            "run_simulation" => Self::RunSimulation {
                duration_ms: body
                    .whole("duration_ms", 0..=limits::DURATION_MS)?
                    .ok_or(Malformed::Missing("duration_ms"))?,
                report: body.optional("report")?.unwrap_or(false),
            },
            "push_job" => {
                Self::PushJob { worker: body.string("worker")?, job: body.string("job_id")? }
            }
            "pop_job" => Self::PopJob { worker: body.string("worker")? },
            "complete_job" => {
                Self::CompleteJob { worker: body.string("worker")?, job: body.string("job_id")? }
            }
            _ => return Err(Malformed::UnsupportedType(kind)),
        })
    }
}

impl Init {
    fn read(body: &Fields<'_>) -> Parsed<Self> {
        // Maelstrom's own `init` calls the workers nodes.
        let workers_field =
            if body.has("workers") || !body.has("node_ids") { "workers" } else { "node_ids" };
        let workers: Vec<String> = body.require(workers_field)?;
        let distinct: HashSet<&str> = workers.iter().map(String::as_str).collect();
        if distinct.len() != workers.len()
            || distinct.contains("")
            || !(1..=limits::WORKERS).contains(&workers.len())
        {
            return Err(Malformed::Invalid(workers_field));
        }
        let jobs = body.whole("jobs_to_distribute", 0..=limits::JOBS as u64)?.unwrap_or(0);
        Ok(Self {
            workers,
            jobs: u32::try_from(jobs).expect("the limit of jobs fits"),
            seed: body.whole("seed", 0..=u64::MAX)?,
            job_duration_ms: body
                .whole("job_duration_ms", 1..=limits::DURATION_MS)?
                .unwrap_or(DEFAULT_JOB_DURATION_MS),
            placement: match body.optional::<String>("placement")?.as_deref() {
                None | Some("modulo") => Placement::Modulo,
                Some("blocks") => Placement::Blocks,
                Some("single") => Placement::Single,
                Some(_) => return Err(Malformed::Invalid("placement")),
            },
        })
    }
}

impl<'a> Fields<'a> {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The id by which an answer refers to this request: any whole number of 64 bits, signed or
    /// unsigned.
    pub(crate) fn msg_id(&self) -> Option<i128> {
        let written = self.0.get("msg_id")?.get();
        let signed = written.parse::<i64>().map(i128::from);
        signed.or_else(|_| written.parse::<u64>().map(i128::from)).ok()
    }

    fn optional<T: Deserialize<'a>>(&self, name: &'static str) -> Parsed<Option<T>> {
        let Some(value) = self.0.get(name) else {
            return Ok(None);
        };
        serde_json::from_str(value.get()).map(Some).map_err(|_| Malformed::Invalid(name))
    }

    fn require<T: Deserialize<'a>>(&self, name: &'static str) -> Parsed<T> {
        self.optional(name)?.ok_or(Malformed::Missing(name))
    }

    fn string(&self, name: &'static str) -> Parsed<String> {
        self.require(name)
    }

    fn whole(&self, name: &'static str, range: RangeInclusive<u64>) -> Parsed<Option<u64>> {
        let Some(value) = self.0.get(name) else {
            return Ok(None);
        };
        let written = value.get();
        let number = written.parse::<u64>().ok().or_else(|| (written == "-0").then_some(0));
        number.filter(|number| range.contains(number)).map(Some).ok_or(Malformed::Invalid(name))
    }
}

impl Malformed {
    /// The Maelstrom error code.
    pub(crate) const fn code(&self) -> u32 {
        match self {
            Self::UnsupportedType(_) => 10,
            Self::Missing(_) | Self::Invalid(_) => 12,
        }
    }
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing(field) => write!(formatter, "missing field: {field}"),
            Self::Invalid(field) => write!(formatter, "invalid field: {field}"),
            Self::UnsupportedType(kind) => write!(formatter, "unsupported message type: {kind}"),
        }
    }
}
