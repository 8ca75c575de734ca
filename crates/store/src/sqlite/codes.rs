//! The small integers that stand for enumerations in the tables.
//!
//! They are part of the file format, so they do not depend on the order of the variants in the
//! code.

use filch_scheduler::id::WorkerId;
use filch_scheduler::record::{LeaseCause, Reason, ReportKind, Strategy};
use filch_scheduler::spec::{Backoff, Condition, Otherwise, Retry};
use filch_scheduler::state::JobState;
use filch_scheduler::time::{Duration, Millis};

use super::error::Failure;

/// The first code of an ended state; the tables' partial indexes rely on it.
pub(super) const ENDED: i64 = 5;

/// The retry policy of a row that has none. Part of the file format, independent of present
/// defaults.
pub(super) const PLAIN_RETRY: Retry = Retry {
    max: 3,
    backoff: Backoff::Exponential {
        base: Millis(1_000),
        factor_percent: 200,
        cap: Millis(300_000),
    },
    jitter_percent: 0,
};

pub(super) const fn of_state(state: JobState) -> i64 {
    match state {
        JobState::Blocked => 0,
        JobState::Scheduled => 1,
        JobState::Queued => 2,
        JobState::Leased => 3,
        JobState::Running => 4,
        JobState::Succeeded => ENDED,
        JobState::Dead => 6,
        JobState::Cancelled => 7,
    }
}

pub(super) fn state(code: i64) -> Result<JobState, Failure> {
    JobState::ALL
        .into_iter()
        .find(|&state| of_state(state) == code)
        .ok_or_else(|| no("state", code))
}

pub(super) const fn of_reason(reason: Reason) -> i64 {
    match reason {
        Reason::Request => 0,
        Reason::Condition => 1,
        Reason::Failed => 2,
        Reason::WorkerLost => 3,
    }
}

pub(super) fn reason(code: i64) -> Result<Reason, Failure> {
    Ok(match code {
        0 => Reason::Request,
        1 => Reason::Condition,
        2 => Reason::Failed,
        3 => Reason::WorkerLost,
        _ => return Err(no("reason", code)),
    })
}

pub(super) const fn of_report(kind: ReportKind) -> i64 {
    match kind {
        ReportKind::Finished => 0,
        ReportKind::Failed => 1,
        ReportKind::Snoozed => 2,
    }
}

pub(super) fn report(code: i64) -> Result<ReportKind, Failure> {
    Ok(match code {
        0 => ReportKind::Finished,
        1 => ReportKind::Failed,
        2 => ReportKind::Snoozed,
        _ => return Err(no("report", code)),
    })
}

pub(super) const fn of_condition(condition: Condition) -> i64 {
    match condition {
        Condition::AllSucceeded => 0,
        Condition::AnySucceeded => 1,
        Condition::AllDone => 2,
        Condition::AnyFailed => 3,
    }
}

pub(super) fn condition(code: i64) -> Result<Condition, Failure> {
    Ok(match code {
        0 => Condition::AllSucceeded,
        1 => Condition::AnySucceeded,
        2 => Condition::AllDone,
        3 => Condition::AnyFailed,
        _ => return Err(no("condition", code)),
    })
}

pub(super) const fn of_otherwise(otherwise: Otherwise) -> i64 {
    match otherwise {
        Otherwise::Cancel => 0,
        Otherwise::Hold => 1,
        Otherwise::Run => 2,
    }
}

pub(super) fn otherwise(code: i64) -> Result<Otherwise, Failure> {
    Ok(match code {
        0 => Otherwise::Cancel,
        1 => Otherwise::Hold,
        2 => Otherwise::Run,
        _ => return Err(no("otherwise", code)),
    })
}

/// Which backoff, and its base, factor and cap.
pub(super) const fn of_backoff(backoff: Backoff) -> (i64, [Option<u32>; 3]) {
    match backoff {
        Backoff::None => (0, [None, None, None]),
        Backoff::Fixed(wait) => (1, [Some(wait.0), None, None]),
        Backoff::Exponential { base, factor_percent, cap } => {
            (2, [Some(base.0), Some(factor_percent as u32), Some(cap.0)])
        }
    }
}

pub(super) fn backoff(code: i64, numbers: [Option<u32>; 3]) -> Result<Backoff, Failure> {
    Ok(match (code, numbers) {
        (0, _) => Backoff::None,
        (1, [Some(wait), _, _]) => Backoff::Fixed(Millis(wait)),
        (2, [Some(base), Some(factor), Some(cap)]) => Backoff::Exponential {
            base: Millis(base),
            factor_percent: u16::try_from(factor).map_err(|_| no("factor", factor.into()))?,
            cap: Millis(cap),
        },
        _ => return Err(no("backoff", code)),
    })
}

/// Why jobs changed owner, and the former owner.
pub(super) const fn of_cause(cause: LeaseCause) -> (i64, Option<WorkerId>) {
    match cause {
        LeaseCause::Claim => (0, None),
        LeaseCause::Steal(from) => (1, Some(from)),
        LeaseCause::Lost(from) => (2, Some(from)),
        LeaseCause::Returned(from) => (3, Some(from)),
    }
}

pub(super) fn cause(code: i64, from: Option<WorkerId>) -> Result<LeaseCause, Failure> {
    Ok(match (code, from) {
        (0, None) => LeaseCause::Claim,
        (1, Some(from)) => LeaseCause::Steal(from),
        (2, Some(from)) => LeaseCause::Lost(from),
        (3, Some(from)) => LeaseCause::Returned(from),
        _ => return Err(no("cause", code)),
    })
}

/// Which strategy, and its aging.
pub(super) fn of_strategy(strategy: Strategy) -> (i64, Option<i64>) {
    match strategy {
        Strategy::Fifo => (0, None),
        Strategy::Priority { aging } => (1, Some(of_duration(aging))),
        Strategy::RoundRobin => (2, None),
        Strategy::Fair => (3, None),
    }
}

pub(super) fn strategy(code: i64, aging: Option<i64>) -> Result<Strategy, Failure> {
    Ok(match (code, aging) {
        (0, _) => Strategy::Fifo,
        (1, Some(aging)) => Strategy::Priority { aging: duration(aging)? },
        (2, _) => Strategy::RoundRobin,
        (3, _) => Strategy::Fair,
        _ => return Err(no("strategy", code)),
    })
}

/// In nanoseconds, at most 292 years.
pub(super) fn of_duration(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

pub(super) fn duration(nanos: i64) -> Result<Duration, Failure> {
    u64::try_from(nanos).map(Duration::from_nanos).map_err(|_| no("duration", nanos))
}

pub(super) fn no(what: &str, code: i64) -> Failure {
    Failure::Content(format!("invalid {what} {code}"))
}
