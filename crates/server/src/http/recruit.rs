//! Side-work of the server: statistics of retention.

use axum::Json;
use axum::extract::State as Given;
use filch_api::recruit::{Day, Found, Recruit, SideJobStats};
use filch_api::time::Moment;
use filch_scheduler::time::Wall;
use filch_store::DailyCount;

use super::extract::{Nothing, Params};
use super::{Failure, State};
use crate::retention::{IDLE_SPARE, Place, Row};

/// How many rows of daily counts are shown.
const DAYS_SHOWN: usize = 1_000;

const DAY_MS: u64 = 24 * 3_600 * 1_000;

/// Show side-work
///
/// Statistics of retention since the server started: purging jobs that ended long ago and trimming
/// their history. Also the daily counts of purged jobs by outcome.
#[utoipa::path(
    get,
    path = "/v1/recruit",
    operation_id = "recruit",
    tag = "server",
    responses((status = 200, body = Recruit))
)]
pub(crate) async fn show(
    Given(state): Given<State>,
    Params(Nothing {}): Params<Nothing>,
) -> Result<Json<Recruit>, Failure> {
    let retention = &state.retention;
    let found = retention.found();
    let overdue = retention.overdue();
    let daily_counts = state.read(|store| store.daily_counts(DAYS_SHOWN)).await?;
    Ok(Json(Recruit {
        retention_ms: u64::try_from(retention.period().as_millis()).unwrap_or(u64::MAX),
        overdue: overdue.is_some(),
        overdue_ms: overdue.map(|span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX)),
        jobs: retention.rows().into_iter().map(shown).collect(),
        found: Found {
            jobs_purged: found.jobs_purged,
            lease_rows_trimmed: found.lease_rows_trimmed,
            notes_trimmed: found.notes_trimmed,
        },
        days: daily_counts.into_iter().map(day).collect(),
    }))
}

fn day(count: DailyCount) -> Day {
    let DailyCount { day, queue, succeeded, dead, cancelled, spent_ms } = count;
    let mut text = Moment(Wall(day.saturating_mul(DAY_MS))).to_string();
    text.truncate("2026-01-31".len());
    let (queue, lifetime_seconds) = (queue.to_string(), spent_ms as f64 / 1e3);
    Day { day: text, queue, succeeded, dead, cancelled, lifetime_seconds }
}

fn part(per_million: u32) -> f64 {
    f64::from(per_million) / 1e6
}

fn shown(row: Row) -> SideJobStats {
    let (place, spare) = match row.place {
        Place::Commits => ("commits", None),
        Place::Idle => ("idle", Some(IDLE_SPARE)),
    };
    let share = if row.enlisted == 0 { 0.0 } else { row.selected as f64 / row.enlisted as f64 };
    SideJobStats {
        job: row.job,
        place: place.to_owned(),
        rate: row.rate,
        rate_min: row.bounds.map(|(least, _)| part(least.parts_per_million())),
        rate_max: row.bounds.map(|(_, most)| part(most.parts_per_million())),
        share,
        budget_ms: spare.map(|part| (part * 1_000.0) as u64),
        enlisted: row.enlisted,
        selected: row.selected,
        recruited: row.recruited,
        no_work: row.no_work,
        failed: row.failed,
        overrun: row.overrun,
        over_budget: row.over_budget,
        seconds: row.time.as_secs_f64(),
    }
}
