//! Dead jobs: selecting, grouping, retrying and discarding many at once.

use serde::{Deserialize, Serialize};

use crate::fingerprint;
use crate::job::Job;
use crate::limits;
use crate::problem::Problem;
use crate::time::Moment;

/// Which dead jobs to act on: by id, or by filter.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// Jobs by full UUID. Can only be combined with `dry_run`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<String>>,
    /// Jobs of this queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Jobs of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Jobs that died at this moment or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Moment>,
    /// Jobs with similar errors: the fingerprint of a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Every dead job. Required if there is no other filter.
    #[serde(default)]
    pub all: bool,
    /// Only count them.
    #[serde(default)]
    pub dry_run: bool,
}

/// The result of an action on several jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Count {
    /// How many jobs were changed; with `dry_run`, how many would be.
    pub count: u64,
    /// The named jobs that were not changed, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refusal>,
}

/// Why one of several jobs was not changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Refusal {
    /// The job.
    pub id: String,
    /// A stable code for programs.
    pub code: String,
    /// What is wrong, for people.
    pub title: String,
}

impl Selection {
    /// Rejects a selection that contradicts itself, or that would match every dead job by mistake.
    ///
    /// # Errors
    /// Returns an error that suggests what to write instead.
    pub fn check(&self) -> Result<(), Problem> {
        let is_like = self.queue.is_some()
            || self.kind.is_some()
            || self.since.is_some()
            || self.group.is_some();
        match &self.ids {
            Some(_) if is_like || self.all => {
                Err(Problem::invalid("`ids` and a filter cannot be combined")
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
                Err(Problem::new(422, "no-filter", "no filter: this would affect every dead job")
                    .help("select jobs with \"ids\", \"queue\", \"kind\", \"since\" or \"group\", or write \"all\": true"))
            }
            _ => self.group.as_deref().map_or(Ok(()), check_group),
        }
    }
}

/// Rejects a malformed fingerprint.
///
/// # Errors
/// Returns an error that explains where to find one.
pub fn check_group(group: &str) -> Result<(), Problem> {
    if fingerprint::is_one(group) {
        return Ok(());
    }
    Err(Problem::invalid(format!("malformed group fingerprint {group:?}"))
        .help("GET /v1/dead/groups lists them; each has twelve hexadecimal digits")
        .at("/group"))
}

/// A dead job in a list.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DeadJob {
    /// The job.
    #[serde(flatten)]
    pub job: Job,
    /// The last error; shortened if it is long.
    pub error: String,
    /// The fingerprint of its group: dead jobs with similar errors.
    pub fingerprint: String,
}

/// Dead jobs of one queue and kind with similar errors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Group {
    /// The group's name: twelve hexadecimal digits.
    pub fingerprint: String,
    /// Their queue.
    pub queue: String,
    /// Their kind.
    pub kind: String,
    /// How many jobs it has.
    pub count: u64,
    /// When the first of them died.
    pub oldest: Moment,
    /// When the last of them died.
    pub newest: Moment,
    /// The id of the job that died last.
    pub example: String,
    /// The error of that job; shortened if it is long.
    pub error: String,
    /// The command that retries the group.
    pub retry: String,
}

/// Dead jobs grouped by error, the largest group first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Groups {
    /// The groups.
    pub groups: Vec<Group>,
    /// How many dead jobs were examined.
    pub jobs: u64,
    /// How many of them belong to groups that are not shown.
    pub rest: u64,
}
