//! Durations as people write them: `90s`, `1h30m`, `200us`, `1.5s`, `PT90S`, `30d`, `2w`.

use std::time::Duration;

use jiff::{Span, SpanRelativeTo};

/// Parses a duration. A day always has 24 hours.
///
/// # Errors
/// Returns an error that suggests what to write instead.
pub fn read(text: &str) -> Result<Duration, String> {
    let read = text.parse::<Span>().ok();
    let read = read.and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()).ok());
    read.and_then(|span| Duration::try_from(span).ok()).ok_or_else(|| {
        "malformed duration: write one like 90s, 10m, 1h30m, 30d, 2w, 200us, 1.5s or PT90S".into()
    })
}

/// The duration as [`read`] parses it.
#[must_use]
pub fn write(span: Duration) -> String {
    let units = [
        (3_600_000_000_000, "h"),
        (60_000_000_000, "m"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
        (1, "ns"),
    ];
    let mut rest = span.as_nanos();
    let mut text = String::new();
    for (unit, word) in units {
        if rest >= unit {
            text.push_str(&format!("{}{word}", rest / unit));
            rest %= unit;
        }
    }
    if text.is_empty() { "0s".into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_and_written() {
        for (text, micros, written) in [
            ("90s", 90_000_000, "1m30s"),
            ("10m", 600_000_000, "10m"),
            ("1h30m", 5_400_000_000, "1h30m"),
            ("200us", 200, "200us"),
            ("1.5s", 1_500_000, "1s500ms"),
            ("PT90S", 90_000_000, "1m30s"),
            ("2 minutes", 120_000_000, "2m"),
            ("0s", 0, "0s"),
            ("1d", 86_400_000_000, "24h"),
            ("1w2d3h", 788_400_000_000, "219h"),
            ("P1D", 86_400_000_000, "24h"),
        ] {
            let span = Duration::from_micros(micros);
            assert_eq!(read(text), Ok(span), "{text}");
            assert_eq!(write(span), written);
            assert_eq!(read(written), Ok(span), "{written}");
        }
        assert_eq!(read(&write(Duration::MAX)), Err(read("").unwrap_err()), "none so long is read");
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "5", "abc", "-2s", "2s ago", "-1d", "1mo", "P1Y", "1e3s"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
