//! The server's side-work, as clients see it.

use serde::{Deserialize, Serialize};

/// The server's side jobs and their results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Recruit {
    /// How long ended jobs are kept, in milliseconds.
    pub retention_ms: u64,
    /// Whether there are ended jobs that should have been purged and can be, as of the last look.
    pub overdue: bool,
    /// For how many milliseconds the oldest of them has been overdue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overdue_ms: Option<u64>,
    /// Statistics of slices, by side job and by what starts them.
    pub jobs: Vec<SideJobStats>,
    /// What they have removed since the server started.
    pub found: Found,
    /// Purged jobs by the day of their end and by queue, newest first.
    pub days: Vec<Day>,
}

/// Purged jobs of one queue that ended on one day.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Day {
    /// The day, in UTC: `2026-01-31`.
    pub day: String,
    /// The queue; `(others)` for those beyond a thousand.
    pub queue: String,
    /// How many succeeded.
    pub succeeded: u64,
    /// How many died.
    pub dead: u64,
    /// How many were cancelled.
    pub cancelled: u64,
    /// The sum of their lifetimes, from submission to end, including waiting.
    pub lifetime_seconds: f64,
}

/// Statistics of the slices of one side job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SideJobStats {
    /// The side job: `retention`, `trimming`, or `due` for whichever of them is due.
    pub job: String,
    /// What starts them: `commits`, or `idle` moments of the server.
    pub place: String,
    /// The share of idle moments that it gets now; missing for slices that follow commits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// The lowest rate; missing if the rate is not adaptive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_min: Option<f64>,
    /// The highest rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_max: Option<f64>,
    /// The share of moments that were selected for it since the server started.
    pub share: f64,
    /// Time budget in milliseconds per second, shared by all side jobs that are started this way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_ms: Option<u64>,
    /// Number of moments in which a side job could have been started.
    pub enlisted: u64,
    /// Number of moments for which this side job was drawn.
    pub selected: u64,
    /// Slices that did something.
    pub recruited: u64,
    /// Slices that found nothing to do.
    pub no_work: u64,
    /// Slices that failed.
    pub failed: u64,
    /// Slices that took too long.
    pub overrun: u64,
    /// Number of draws without a slice, because the time budget was used up.
    pub over_budget: u64,
    /// How long all slices took together.
    pub seconds: f64,
}

/// What the side jobs have removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Found {
    /// Jobs purged after their retention.
    pub jobs_purged: u64,
    /// Rows of the ledger that were removed with their last job.
    pub lease_rows_trimmed: u64,
    /// Notes about workers that were removed after the retention.
    pub notes_trimmed: u64,
}
