//! What simulated jobs do, by their kind.
//!
//! `run-20ms` runs and succeeds; `fail-2-20ms` fails twice, then succeeds; `never-20ms` fails and
//! must not be retried; `snooze-2-20ms` snoozes twice; `poison-2-20ms` kills its worker twice;
//! `hang` never ends.

use std::time::Duration;

use filch_scheduler::id::{Hold, JobId};
use filch_scheduler::name::Name;
use filch_scheduler::record::StoredText;

/// How one execution of a job ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Deed {
    Succeed,
    Fail,
    FailForGood,
    Snooze,
    KillWorker,
    Hang,
    /// Its worker cannot start it; not a matter of the job's kind.
    CannotStart,
}

/// How the `run`th execution (from 1) of a job of this kind ends, and after how long. `None` for an
/// unknown kind.
pub(crate) fn deed(kind: &Name, run: u32) -> Option<(Deed, Duration)> {
    let (word, rest) = kind.as_str().split_once('-').unwrap_or((kind.as_str(), ""));
    let counted = |deed| {
        let (times, span) = rest.split_once('-')?;
        let is_early = run <= times.parse().ok()?;
        Some((if is_early { deed } else { Deed::Succeed }, read_span(span)?))
    };
    match word {
        "run" => Some((Deed::Succeed, read_span(rest)?)),
        "never" => Some((Deed::FailForGood, read_span(rest)?)),
        "hang" if rest.is_empty() => Some((Deed::Hang, Duration::MAX)),
        "fail" => counted(Deed::Fail),
        "snooze" => counted(Deed::Snooze),
        "poison" => counted(Deed::KillWorker),
        _ => None,
    }
}

/// How long a job of this kind occupies a slot, over all its executions, without faults. `None` if
/// it has too many executions.
pub(crate) fn all_runs(kind: &Name) -> Option<Duration> {
    let mut sum = Duration::ZERO;
    for run in 1..=RUNS_MAX {
        match deed(kind, run) {
            None | Some((Deed::Hang, _)) => return Some(sum),
            Some((Deed::Succeed | Deed::FailForGood, span)) => return sum.checked_add(span),
            Some((Deed::Fail | Deed::Snooze | Deed::KillWorker | Deed::CannotStart, span)) => {
                sum = sum.checked_add(span)?;
            }
        }
    }
    None
}

/// More executions than any job of a plan has.
const RUNS_MAX: u32 = 1_000;

/// The kind of a job that runs for this long and succeeds.
pub(crate) fn runs_for(span: Duration) -> Name {
    Name::from(format!("run-{}us", span.as_micros()).as_str())
}

/// The payload of a job, which no other job has.
pub(crate) fn payload(job: JobId) -> StoredText {
    format!("{:032x}", job.0).into()
}

/// Whether this is the payload of that job.
pub(crate) fn is_payload(text: &str, job: JobId) -> bool {
    u128::from_str_radix(text, 16) == Ok(job.0)
}

/// The result of a successful attempt, which no other attempt has.
pub(crate) fn result(hold: Hold) -> StoredText {
    let length = (hold.job.0 % 4) as usize * 60;
    format!("\"{}.{} {:.<length$}\"", hold.job.0, hold.fence.0, "").into()
}

fn read_span(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok()?;
    match &text[digits.len()..] {
        "us" => Some(Duration::from_micros(number)),
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_determines_what_its_jobs_do() {
        let millis = Duration::from_millis;
        for (kind, run, expected) in [
            ("run-20ms", 1, Some((Deed::Succeed, millis(20)))),
            ("fail-2-5s", 2, Some((Deed::Fail, millis(5_000)))),
            ("fail-2-5s", 3, Some((Deed::Succeed, millis(5_000)))),
            ("poison-1-9ms", 1, Some((Deed::KillWorker, millis(9)))),
            ("snooze-1-9ms", 1, Some((Deed::Snooze, millis(9)))),
            ("never-9us", 7, Some((Deed::FailForGood, Duration::from_micros(9)))),
            ("hang", 1, Some((Deed::Hang, Duration::MAX))),
            ("hang-on", 1, None),
            ("run-20", 1, None),
            ("default", 1, None),
        ] {
            assert_eq!(deed(&Name::from(kind), run), expected, "{kind}");
        }
        assert_eq!(deed(&runs_for(millis(3)), 1), Some((Deed::Succeed, millis(3))));
        assert_eq!(all_runs(&Name::from("fail-2-5ms")), Some(millis(15)));
        assert_eq!(all_runs(&Name::from("hang")), Some(Duration::ZERO));
        assert_eq!(all_runs(&Name::from("fail-4000000000-5ms")), None);
    }
}
