//! Retention: S1 nothing is purged before its retention is over, L9 what is overdue is purged.
//!
//! Judged by true time, however the server's wall clock jumps. Only a server that starts has
//! nothing but its wall clock to tell how old the jobs of earlier servers are.

use std::collections::BTreeSet;
use std::time::Duration;

use filch_scheduler::id::Seq;
use filch_scheduler::time::{Monotonic, Wall};

use super::facts::{Facts, Job};
use super::{Commit, Holds, Rule, ensure};
use crate::log::Observed;

/// The state of these rules.
pub(super) struct Purges {
    retention: Option<Duration>,
    /// When the present server started, and its wall clock then.
    started: Option<(Monotonic, Wall)>,
    /// Ended jobs that are stored, by their ends.
    ended: BTreeSet<(Monotonic, Seq)>,
    /// How far the server's wall clock is ahead of true time, in milliseconds, and when that last
    /// changed.
    ahead: Option<i64>,
    jumped_at: Option<Monotonic>,
    /// When the server was last found to be full, or to have been suspended.
    missed_at: Monotonic,
    /// When overdue jobs are looked for next.
    looks_at: Monotonic,
}

/// L9: how long after the end of the retention, and of all faults of the server, a job may still be
/// stored. After a failed read, and if a job is still needed, the server waits for 30 s.
const PURGED_WITHIN: Duration = Duration::from_secs(60);

/// How often overdue jobs are looked for.
const LOOKS_EVERY: Duration = Duration::from_secs(1);

impl Purges {
    pub(super) fn new(retention: Option<Duration>) -> Self {
        Self {
            retention,
            started: None,
            ended: BTreeSet::new(),
            ahead: None,
            jumped_at: None,
            missed_at: Monotonic(0),
            looks_at: Monotonic(0),
        }
    }

    pub(super) fn observe(&mut self, at: Monotonic, seen: &Observed<'_>) {
        match *seen {
            Observed::ServerStarted { .. } => self.started = None,
            Observed::ServerRead(now) => {
                self.started.get_or_insert((at, now.wall));
                let ahead = now.wall.0.cast_signed() - (at.0 / 1_000).cast_signed();
                // Both are rounded.
                if self.ahead.is_some_and(|before| (before - ahead).abs() > 2) {
                    self.jumped_at = Some(at);
                }
                self.ahead = Some(ahead);
            }
            Observed::Retention(retention) => self.retention = retention,
            Observed::Missed(_) => self.missed_at = at,
            _ => {}
        }
    }

    /// A job was put or written, and is as `job` says since then.
    pub(super) fn written(&mut self, before: Option<Monotonic>, job: &Job) {
        if let Some(before) = before {
            self.ended.remove(&(before, job.seq));
        }
        self.ended.extend(job.ended_at.map(|at| (at, job.seq)));
    }

    /// S1: only jobs whose retention is over are purged.
    pub(super) fn purged(&mut self, commit: &Commit<'_>, job: &Job) -> Holds {
        let now = commit.decided.0;
        let elapsed = |since: Monotonic| now.since(since).as_millis() as u64;
        let true_age = elapsed(job.ended_at.unwrap_or(job.written_since));
        // By the clock of the server's start, for jobs of earlier servers.
        let age_at_start = self.started.filter(|(at, _)| job.written_since < *at);
        let age_at_start =
            age_at_start.map(|(at, wall)| (wall.0 + elapsed(at)).saturating_sub(job.written_at.0));
        let age = true_age.max(age_at_start.unwrap_or(0));
        let is_old = self.retention.is_some_and(|span| u128::from(age) >= span.as_millis());
        ensure(job.is_ended() && job.held_by.is_none() && is_old, Rule::S1, || {
            format!("{} is purged, but is {} for {age} ms only", job.name(), job.state)
        })?;
        if let Some(ended_at) = job.ended_at {
            self.ended.remove(&(ended_at, job.seq));
        }
        Ok(())
    }

    /// L9.
    pub(super) fn time_passes(&mut self, at: Monotonic, facts: &Facts) -> Holds {
        if at < self.looks_at {
            return Ok(());
        }
        self.looks_at = at.plus(LOOKS_EVERY);
        let (Some(retention), Some(server_since)) = (self.retention, facts.server_since) else {
            return Ok(());
        };
        // A server whose clock was set cannot tell at once how old its jobs are.
        let is_set = self.jumped_at.map(|at| at.max(server_since).plus(2 * retention));
        let is_well = server_since.max(facts.trouble_for_all).max(self.missed_at);
        let since = is_well.max(is_set.unwrap_or_default());
        for &(ended_at, seq) in &self.ended {
            if at.since(ended_at.plus(retention).max(since)) <= PURGED_WITHIN {
                break;
            }
            let Some(job) = facts.job(seq) else { continue };
            let free_since = facts.needed_until(job);
            let is_overdue = free_since.is_some_and(|free| at.since(free) > PURGED_WITHIN);
            ensure(!is_overdue, Rule::L9, || {
                let age = at.since(ended_at).as_millis();
                format!("{} ended {age} ms ago, and is not purged", job.name())
            })?;
        }
        Ok(())
    }
}
