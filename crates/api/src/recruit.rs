//! Side-work of a server as people and programs are shown it.

use serde::{Deserialize, Serialize};

/// What a server does in spare moments, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Recruit {
    /// How long ended jobs are kept, in milliseconds.
    pub retention_ms: u64,
    /// Whether there are ended jobs that should have been forgotten and that nobody needs, as far as was seen
    /// when somebody last looked.
    pub overdue: bool,
    /// For how many milliseconds the oldest of them has been overdue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overdue_ms: Option<u64>,
    /// How many idle moments workers have offered.
    pub offered: u64,
    /// Slices, by what they were for and what brought them about.
    pub jobs: Vec<SideJobStats>,
    /// What they have found since the server started.
    pub found: Found,
    /// What became of jobs that are forgotten by now, by the day of their end and queue; the newest first.
    pub days: Vec<Day>,
}

/// Forgotten jobs of one queue that ended on one day.
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
    /// How long they lived together, each from its submission to its end: mostly they waited.
    pub lifetime_seconds: f64,
}

/// Slices of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SideJobStats {
    /// What they are for; `sweep` is whatever is due.
    pub job: String,
    /// What brings them about: `commits`, `idle` moments of the server, or moments that `workers` offer, each
    /// of which draws by itself how many of its own it offers.
    pub place: String,
    /// What part of those who enlist is wanted now; missing where no lottery decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// The least that the rate can be; missing where it does not follow what slices find.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_min: Option<f64>,
    /// The most that it can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_max: Option<f64>,
    /// Of moments that workers offer: the least part of its idle moments that a connected worker offers;
    /// missing if none is there that says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer_rate_min: Option<f64>,
    /// The most that one of them offers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer_rate_max: Option<f64>,
    /// What part of those who enlisted since the server started was drawn.
    pub share: f64,
    /// Milliseconds of side-work a second at most, for all jobs of the place together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_ms: Option<u64>,
    /// How many have enlisted at the place.
    pub enlisted: u64,
    /// How many were drawn.
    pub selected: u64,
    /// Slices that did something.
    pub recruited: u64,
    /// Slices that found nothing to do.
    pub no_work: u64,
    /// Slices that failed.
    pub failed: u64,
    /// Slices that took too long.
    pub overrun: u64,
    /// Drawn, but there was no time left to spend.
    pub over_budget: u64,
    /// How long all slices took together.
    pub seconds: f64,
}

/// What slices have found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Found {
    /// Ended jobs that were forgotten after their time.
    pub jobs_purged: u64,
    /// Rows of the ledger that no kept job had a part in.
    pub lease_rows_trimmed: u64,
    /// Notes about workers that were as old.
    pub notes_trimmed: u64,
}
