//! Times on the command line: absolute, or a duration from or before now; and how tables show them.

use std::io::IsTerminal as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use filch_api::span;
use filch_api::time::Moment;
use filch_scheduler::time::Wall;

use crate::usage::Usage;

/// A time, a date, or a duration from now.
pub(crate) fn from_now(option: &str, text: &str) -> Result<Moment> {
    read(option, text, Duration::checked_add)
}

/// A time, a date, or a duration before now.
pub(crate) fn ago(option: &str, text: &str) -> Result<Moment> {
    read(option, text, |now, span| Some(now.saturating_sub(span)))
}

fn read(
    option: &str,
    text: &str,
    shift: impl Fn(Duration, Duration) -> Option<Duration>,
) -> Result<Moment> {
    if let Ok(span) = span::read(text) {
        let moment = shift(now(), span).and_then(|moment| u64::try_from(moment.as_millis()).ok());
        return moment.map(|millis| Moment(Wall(millis))).ok_or_else(|| {
            Usage::new(
                format!("{option} {text}: the time is out of range"),
                "write a shorter duration",
            )
            .into()
        });
    }
    // A date means midnight UTC.
    let day = || Moment::read(&format!("{text}T00:00:00Z"));
    Moment::read(text).or_else(|_| day()).map_err(|_| {
        Usage::new(
            format!("{option} {text}: expected a time or a duration"),
            "write a time like 2026-01-31T12:00:00Z, a date like 2026-01-31 (UTC), or a duration \
             like 90s, 1h30m or 7d",
        )
        .into()
    })
}

/// A time in a table: relative (`5m ago`) on a terminal, absolute in a pipe.
pub(crate) fn cell(moment: Moment) -> String {
    if std::io::stdout().is_terminal() { distance(moment, now()) } else { moment.to_string() }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn distance(moment: Moment, now: Duration) -> String {
    let moment = Duration::from_millis(moment.0.0);
    let (is_past, span) = if moment <= now { (true, now - moment) } else { (false, moment - now) };
    let seconds = span.as_secs();
    let text = match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    };
    if is_past { format!("{text} ago") } else { format!("in {text}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_times_are_rounded() {
        let now = Duration::from_secs(1_000_000_000);
        let at = |seconds: i64| {
            let seconds = now.as_secs().checked_add_signed(seconds).unwrap();
            distance(Moment(Wall(seconds * 1_000)), now)
        };
        assert_eq!(at(0), "0s ago");
        assert_eq!(at(-59), "59s ago");
        assert_eq!(at(-7_199), "1h ago");
        assert_eq!(at(-172_800), "2d ago");
        assert_eq!(at(90), "in 1m");
    }

    #[test]
    fn times_dates_and_durations_are_accepted() {
        let written = "2026-01-31T12:00:00Z";
        assert_eq!(from_now("--at", written).unwrap().to_string(), written);
        assert_eq!(ago("--since", written).unwrap().to_string(), written);
        assert!(from_now("--at", "1h").unwrap() > ago("--since", "1h").unwrap());
        assert_eq!(ago("--since", "999999h").unwrap().0, Wall(0), "not before 1970");
        let day = "2026-01-31T00:00:00Z";
        assert_eq!(ago("--since", "2026-01-31").unwrap().to_string(), day);
        let error = from_now("--at", "tomorrow").unwrap_err().to_string();
        assert!(error.starts_with("--at tomorrow: expected"), "{error}");
    }
}
