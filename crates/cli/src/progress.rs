//! How far something long has come: a bar where ids do not scroll by already, else a line every ten seconds.

use std::future::Future;
use std::io::{IsTerminal as _, stderr, stdout};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::confirm::count_jobs;
use crate::output::message;
use crate::table::grouped;

const EVERY: Duration = Duration::from_secs(10);

/// What is shown, and what was done to the jobs that are counted: "submitted".
pub(crate) struct Progress {
    way: Way,
    done: &'static str,
}

enum Way {
    Bar(ProgressBar),
    Lines { last: Instant, total: Option<u64> },
    Silent,
}

impl Progress {
    /// Of so many jobs, if that is known.
    pub(crate) fn of(total: Option<u64>, done: &'static str) -> Self {
        Self { way: Way::of(total, done), done }
    }

    /// To so many it is done now.
    pub(crate) fn show(&mut self, count: u64) {
        match &mut self.way {
            Way::Bar(bar) => bar.set_position(count),
            Way::Lines { last, total } if last.elapsed() >= EVERY => {
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
            Way::Lines { .. } | Way::Silent => {}
        }
    }

    /// Shows now and then that it is still going on.
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
        if let Way::Bar(bar) = &self.way {
            bar.finish_and_clear();
        }
    }
}

impl Way {
    fn of(total: Option<u64>, done: &str) -> Self {
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
