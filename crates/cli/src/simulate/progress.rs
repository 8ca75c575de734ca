//! Progress of a seed search: a bar on a terminal, otherwise a line every ten seconds.

use std::io::{IsTerminal as _, stderr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use filch_sim::search::SearchStats;
use indicatif::{ProgressBar, ProgressStyle};

use crate::output::message;

const EVERY: Duration = Duration::from_secs(10);

pub(crate) enum Progress {
    Bar(ProgressBar),
    Lines { seeds: u64, last: Mutex<Instant> },
}

impl Progress {
    pub(crate) fn of(seeds: u64) -> Self {
        if !stderr().is_terminal() {
            return Self::Lines { seeds, last: Mutex::new(Instant::now()) };
        }
        let style = "{wide_bar} {human_pos} of {human_len} seeds, {msg}, {eta} left";
        let style = ProgressStyle::with_template(style).expect("the template is well formed");
        let bar = ProgressBar::new(seeds).with_style(style);
        bar.enable_steady_tick(Duration::from_millis(200));
        Self::Bar(bar)
    }

    /// Called after each seed, by the thread that ran it.
    pub(crate) fn show(&self, stats: &SearchStats) {
        match self {
            Self::Bar(bar) => {
                bar.set_position(stats.seeds);
                bar.set_message(text(stats));
            }
            Self::Lines { seeds, last } => {
                let mut last = last.lock().expect("no thread panics while it holds this lock");
                if last.elapsed() >= EVERY {
                    *last = Instant::now();
                    message(format_args!("{} of {seeds} seeds, {}", stats.seeds, text(stats)));
                }
            }
        }
    }

    pub(crate) fn end(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn text(stats: &SearchStats) -> String {
    let hours = stats.simulated.as_secs_f64() / 3_600.0;
    format!("{hours:.1} cluster-hours, {} violations", stats.violations)
}
