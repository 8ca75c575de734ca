//! A message as it was sent: the envelope, and the request in its body.
//!
//! Fields are kept as they were written, because a whole number is one that was written as such: `6` and
//! `-0` are, `6.0`, `6e0` and `true` are not. Of a key that is there twice the last one counts, and keys
//! that nobody asks for are nobody's business.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::cluster::{DEFAULT_JOB_DURATION_MS, Placement};
use crate::limits;

/// Who says what to whom.
#[derive(Debug)]
pub(crate) struct Message<'a> {
    pub(crate) src: String,
    pub(crate) dest: String,
    pub(crate) body: Fields<'a>,
}

/// What a node can be asked.
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
    /// The node's own where none was given.
    pub(crate) seed: Option<u64>,
    pub(crate) job_duration_ms: u64,
    pub(crate) placement: Placement,
}

/// Why a body is no request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    Missing(&'static str),
    Invalid(&'static str),
    UnsupportedType(String),
}

/// An object whose values were not looked into yet.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Fields<'a>(#[serde(borrow)] HashMap<String, &'a RawValue>);

type Outcome<T> = Result<T, Malformed>;

impl<'a> Message<'a> {
    /// Reads one JSON value; says what is wrong where it is no message that could be answered.
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
    pub(crate) fn read(body: &Fields<'_>) -> Outcome<Self> {
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
    fn read(body: &Fields<'_>) -> Outcome<Self> {
        // Maelstrom's own `init` calls them nodes.
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

    /// The number by which an answer refers to this request: any whole number of 64 bits, with or
    /// without a sign.
    pub(crate) fn msg_id(&self) -> Option<i128> {
        let written = self.0.get("msg_id")?.get();
        let signed = written.parse::<i64>().map(i128::from);
        signed.or_else(|_| written.parse::<u64>().map(i128::from)).ok()
    }

    fn optional<T: Deserialize<'a>>(&self, name: &'static str) -> Outcome<Option<T>> {
        let Some(value) = self.0.get(name) else {
            return Ok(None);
        };
        serde_json::from_str(value.get()).map(Some).map_err(|_| Malformed::Invalid(name))
    }

    fn require<T: Deserialize<'a>>(&self, name: &'static str) -> Outcome<T> {
        self.optional(name)?.ok_or(Malformed::Missing(name))
    }

    fn string(&self, name: &'static str) -> Outcome<String> {
        self.require(name)
    }

    fn whole(&self, name: &'static str, range: RangeInclusive<u64>) -> Outcome<Option<u64>> {
        let Some(value) = self.0.get(name) else {
            return Ok(None);
        };
        let written = value.get();
        let number = written.parse::<u64>().ok().or_else(|| (written == "-0").then_some(0));
        number.filter(|number| range.contains(number)).map(Some).ok_or(Malformed::Invalid(name))
    }
}

impl Malformed {
    /// The number that Maelstrom gives to this kind of answer.
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
