//! Progress of long operations: a bar on a terminal unless ids are printed there, otherwise a line
//! every ten seconds.

use std::future::Future;
use std::io::{IsTerminal as _, stderr, stdout};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::confirm::count_jobs;
use crate::output::message;
use crate::table::grouped;

const EVERY: Duration = Duration::from_secs(10);

/// The progress display, and the verb for counted jobs, such as "submitted".
pub(crate) struct Progress {
    output: ProgressOutput,
    done: &'static str,
}

enum ProgressOutput {
    Bar(ProgressBar),
    Lines { last: Instant, total: Option<u64> },
    Silent,
}

impl Progress {
    /// For this many jobs, if the total is known.
    pub(crate) fn of(total: Option<u64>, done: &'static str) -> Self {
        Self { output: ProgressOutput::new(total, done), done }
    }

    /// Shows the new count.
    pub(crate) fn show(&mut self, count: u64) {
        match &mut self.output {
            ProgressOutput::Bar(bar) => bar.set_position(count),
            ProgressOutput::Lines { last, total } if last.elapsed() >= EVERY => {
                *last = Instant::now();
                match total {
                    Some(total) => message(format_args!(
                        "{} of {} {}",
                        grouped(&count.to_string()),
                        count_jobs(*total),
                        self.done
                    )),
                    None => message(format_args!("{} {}", count_jobs(count), self.done)),
                }
            }
            ProgressOutput::Lines { .. } | ProgressOutput::Silent => {}
        }
    }

    /// Shows progress while the future runs.
    pub(crate) async fn beside<T>(&mut self, count: u64, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = tokio::time::sleep(EVERY) => self.show(count),
            }
        }
    }

    pub(crate) fn end(&self) {
        if let ProgressOutput::Bar(bar) = &self.output {
            bar.finish_and_clear();
        }
    }
}

impl ProgressOutput {
    fn new(total: Option<u64>, done: &str) -> Self {
        if !stderr().is_terminal() {
            return Self::Lines { last: Instant::now(), total };
        }
        if stdout().is_terminal() {
            return Self::Silent;
        }
        let bar = match total {
            Some(total) => {
                let style = "{wide_bar} {human_pos} of {human_len} jobs {msg}, {eta} left";
                ProgressBar::new(total).with_style(styled(style))
            }
            None => ProgressBar::no_length().with_style(styled("{spinner} {human_pos} jobs {msg}")),
        };
        bar.set_message(done.to_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        Self::Bar(bar)
    }
}

fn styled(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is well formed")
}
