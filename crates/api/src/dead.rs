//! What is done about jobs that ended badly, many at once.

use serde::{Deserialize, Serialize};

use crate::fingerprint;
use crate::job::Job;
use crate::limits;
use crate::problem::Problem;
use crate::time::Moment;

/// Which dead jobs are meant: these, or all that are like this.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// These, by their whole UUIDs. Nothing else may be said then but `dry_run`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<String>>,
    /// Those of this queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Those of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Those that died at this moment or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Moment>,
    /// Those that ended alike: a fingerprint, as the groups have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// All of them are meant, should nothing else be said.
    #[serde(default)]
    pub all: bool,
    /// Count them, and do nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Count {
    /// To how many jobs; with `dry_run`, to how many it would be.
    pub count: u64,
    /// The named jobs to which it was not done, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refusal>,
}

/// Why something was not done to one of several jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Refusal {
    /// The job.
    pub id: String,
    /// What kind of problem it is; programs may go by it.
    pub code: String,
    /// What is wrong, for people.
    pub title: String,
}

impl Selection {
    /// Refuses what contradicts itself, and what would take everything by mistake.
    ///
    /// # Errors
    /// With what to write instead.
    pub fn check(&self) -> Result<(), Problem> {
        let is_like = self.queue.is_some()
            || self.kind.is_some()
            || self.since.is_some()
            || self.group.is_some();
        match &self.ids {
            Some(_) if is_like || self.all => {
                Err(Problem::invalid("ids and a filter cannot both say which jobs are meant")
                    .help("write either \"ids\", or \"queue\", \"kind\", \"since\", \"group\" and \"all\"")
                    .at("/ids"))
            }
            Some(ids) if ids.len() > limits::REQUEST_JOBS => {
                let title = format!("{} ids at once", ids.len());
                Err(Problem::new(413, "too-many-jobs", title)
                    .help(format!("send at most {} at once", limits::REQUEST_JOBS))
                    .at("/ids"))
            }
            None if !is_like && !self.all => {
                Err(Problem::new(422, "no-filter", "this would be done to every dead job")
                    .help("say which ones by \"ids\", \"queue\", \"kind\", \"since\" or \"group\", or write \"all\": true"))
            }
            _ => self.group.as_deref().map_or(Ok(()), check_group),
        }
    }
}

/// Refuses what is no fingerprint.
///
/// # Errors
/// With where to find one.
pub fn check_group(group: &str) -> Result<(), Problem> {
    if fingerprint::is_one(group) {
        return Ok(());
    }
    Err(Problem::invalid(format!("{group:?} is no fingerprint of a group"))
        .help("GET /v1/dead/groups shows them: twelve hexadecimal digits each")
        .at("/group"))
}

/// A dead job in a list.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DeadJob {
    /// The job.
    #[serde(flatten)]
    pub job: Job,
    /// What went wrong at last; the beginning of it, if it is long.
    pub error: String,
    /// The group of those that ended alike.
    pub fingerprint: String,
}

/// Dead jobs of one queue and one kind that ended alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Group {
    /// The group's name: twelve hexadecimal digits.
    pub fingerprint: String,
    /// Their queue.
    pub queue: String,
    /// Their kind.
    pub kind: String,
    /// How many they are.
    pub count: u64,
    /// When the first of them died.
    pub oldest: Moment,
    /// When the last of them died.
    pub newest: Moment,
    /// The one that died last.
    pub example: String,
    /// What it said; the beginning of it, if it is long.
    pub error: String,
    /// The command that tries all of them again.
    pub retry: String,
}

/// Dead jobs by what went wrong, the largest group first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Groups {
    /// The groups.
    pub groups: Vec<Group>,
    /// How many dead jobs were looked at.
    pub jobs: u64,
    /// How many of them are in no group that is shown.
    pub rest: u64,
}
