//! How far a long submit has come: a bar where ids do not scroll by already, else a line every ten seconds.

use std::io::{IsTerminal as _, stderr, stdout};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::confirm::jobs;
use crate::output::talk;

const EVERY: Duration = Duration::from_secs(10);

pub(crate) enum Progress {
    Bar(ProgressBar),
    Lines { last: Instant },
    Silent,
}

impl Progress {
    /// Of so many jobs, if that is known.
    pub(crate) fn of(total: Option<u64>) -> Self {
        if !stderr().is_terminal() {
            return Self::Lines { last: Instant::now() };
        }
        if stdout().is_terminal() {
            return Self::Silent;
        }
        let bar = match total {
            Some(total) => {
                let style = "{wide_bar} {human_pos} of {human_len} jobs, {eta} left";
                ProgressBar::new(total).with_style(styled(style))
            }
            None => ProgressBar::no_length().with_style(styled("{spinner} {human_pos} jobs")),
        };
        bar.enable_steady_tick(Duration::from_millis(200));
        Self::Bar(bar)
    }

    /// So many are kept now.
    pub(crate) fn show(&mut self, count: u64) {
        match self {
            Self::Bar(bar) => bar.set_position(count),
            Self::Lines { last } if last.elapsed() >= EVERY => {
                *last = Instant::now();
                talk(format_args!("{} submitted", jobs(count)));
            }
            Self::Lines { .. } | Self::Silent => {}
        }
    }

    pub(crate) fn end(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn styled(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is well formed")
}
