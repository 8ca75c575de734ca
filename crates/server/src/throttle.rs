//! Rate limits for log lines that clients can cause at will: failed logins, failed TLS handshakes,
//! refused sessions.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The length of a window.
const WINDOW: Duration = Duration::from_secs(60);

/// Lines of one kind in a window.
const LINES: u32 = 10;

/// One limit for each kind of line, so that a flood of one does not hide the others.
#[derive(Debug, Default)]
pub(crate) struct LogLimits {
    pub(crate) requests: Throttle,
    pub(crate) accept: Throttle,
    pub(crate) tls: Throttle,
    pub(crate) sessions: Throttle,
    pub(crate) disk: Throttle,
}

/// Lets a few lines through in each window, and counts the others.
#[derive(Debug, Default)]
pub(crate) struct Throttle(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    began: Option<Instant>,
    lines: u32,
    suppressed: u64,
}

impl Throttle {
    /// Whether a line may be logged now; if so, how many were suppressed since the last one.
    pub(crate) fn admit(&self) -> Option<u64> {
        self.admit_at(Instant::now())
    }

    fn admit_at(&self, now: Instant) -> Option<u64> {
        let mut window = self.0.lock().expect("no panic while it is locked");
        if window.began.is_none_or(|began| now.duration_since(began) >= WINDOW) {
            window.began = Some(now);
            window.lines = 0;
        }
        if window.lines == LINES {
            window.suppressed += 1;
            return None;
        }
        window.lines += 1;
        Some(std::mem::take(&mut window.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_lines_pass_in_each_window_and_the_next_one_counts_the_others() {
        let throttle = Throttle::default();
        let start = Instant::now();
        for _ in 0..LINES {
            assert_eq!(throttle.admit_at(start), Some(0));
        }
        assert_eq!(throttle.admit_at(start), None);
        assert_eq!(throttle.admit_at(start + WINDOW / 2), None);
        assert_eq!(throttle.admit_at(start + WINDOW), Some(2));
        assert_eq!(throttle.admit_at(start + WINDOW), Some(0));
    }
}
