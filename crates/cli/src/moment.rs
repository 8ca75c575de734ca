//! Moments on the command line: from now on or back from now, and how they are shown.

use std::io::IsTerminal as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use filch_api::span;
use filch_api::time::Moment;
use filch_scheduler::time::Wall;

use crate::usage::Usage;

/// A moment, a day, or a span from now on.
pub(crate) fn from_now(option: &str, text: &str) -> Result<Moment> {
    read(option, text, Duration::checked_add)
}

/// A moment, a day, or a span back from now.
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
            Usage::new(format!("{option} {text}: that is too far away"), "write a shorter span")
                .into()
        });
    }
    // A day is meant from its first moment on.
    let day = || Moment::read(&format!("{text}T00:00:00Z"));
    Moment::read(text).or_else(|_| day()).map_err(|_| {
        Usage::new(
            format!("{option} {text}: this is neither a moment nor a span of time"),
            "write a moment like 2026-01-31T12:00:00Z, a day like 2026-01-31 (in UTC), or a span \
             like 90s, 1h30m or 7d",
        )
        .into()
    })
}

/// A moment in a table: as a distance for people, as it is for programs.
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
    fn distances_are_rough() {
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
    fn both_a_moment_and_a_span_can_be_written() {
        let written = "2026-01-31T12:00:00Z";
        assert_eq!(from_now("--at", written).unwrap().to_string(), written);
        assert_eq!(ago("--since", written).unwrap().to_string(), written);
        assert!(from_now("--at", "1h").unwrap() > ago("--since", "1h").unwrap());
        assert_eq!(ago("--since", "999999h").unwrap().0, Wall(0), "not before the clock began");
        let day = "2026-01-31T00:00:00Z";
        assert_eq!(ago("--since", "2026-01-31").unwrap().to_string(), day);
        let error = from_now("--at", "tomorrow").unwrap_err().to_string();
        assert!(error.starts_with("--at tomorrow: this is neither"), "{error}");
    }
}
