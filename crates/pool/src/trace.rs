//! The schedule trace: one line per period that shows what the pool is doing, in the format that Go
//! users know, and a last one when the pool has ended.
//!
//! It has its own thread, so that it also works if all workers are busy or stuck; without a trace
//! there is no such thread.

use std::fmt;
use std::io::{self, Write};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::core::Core;
use crate::pool::Pool;
use crate::protocol::sync::{self, Condvar, Mutex, thread};
use crate::stats::{PoolStats, WorkerState, WorkerStats};

/// Enables a trace of all pools of a process: the period in milliseconds.
const VARIABLE: &str = "FILCH_SCHEDTRACE";

/// Where the lines go.
pub(crate) type Writer = Box<dyn Write + Send>;

/// The trace settings of a pool.
#[derive(Default)]
pub(crate) struct Settings {
    /// Default: the environment decides. Zero disables the trace.
    pub(crate) period: Option<Duration>,
    /// Default: stderr.
    pub(crate) writer: Option<Writer>,
}

impl Settings {
    fn period(&self) -> Option<Duration> {
        let period = self.period.or_else(|| match std::env::var_os(VARIABLE) {
            Some(value) => parse(&value.to_string_lossy()).unwrap_or_else(|complaint| {
                // A pool without a trace is better than a program that does not start for lack of
                // one.
                eprintln!("{complaint}");
                None
            }),
            None => None,
        });
        period.filter(|period| !period.is_zero())
    }
}

fn parse(value: &str) -> Result<Option<Duration>, String> {
    let value = value.trim();
    if value.is_empty() {
        return Ok(None);
    }
    match value.parse() {
        Ok(milliseconds) => Ok(Some(Duration::from_millis(milliseconds))),
        Err(_) => Err(format!(
            "warning: {VARIABLE}={value} is not a number of milliseconds, no schedule trace is \
             printed\n  help: {VARIABLE}=1000 prints a line each second, 0 or an empty value disables it"
        )),
    }
}

/// The trace of one pool.
#[derive(Default)]
pub(crate) struct Trace {
    is_over: Mutex<bool>,
    over: Condvar,
    printer: Mutex<Option<thread::JoinHandle<()>>>,
}

impl Trace {
    /// Starts to print, if a trace is enabled.
    pub(crate) fn start(&self, core: &Core, settings: Settings) -> io::Result<()> {
        let Some(period) = settings.period() else { return Ok(()) };
        let writer = settings.writer.unwrap_or_else(|| Box::new(io::stderr()));
        let core = core.this().expect("the caller has the core");
        let thread = thread::Builder::new().name(format!("{}-trace", core.name));
        let printer = thread.spawn(move || core.trace.print(&core, period, writer))?;
        *sync::lock(&self.printer) = Some(printer);
        Ok(())
    }

    fn print(&self, core: &Core, period: Duration, mut writer: Writer) {
        let mut due = core.created + period;
        loop {
            let is_over = self.wait_until(due);
            // A failed write cannot be reported anywhere.
            let _ = writeln!(writer, "{}", line(&PoolStats::of(core)));
            if is_over {
                let _ = writer.flush();
                return;
            }
            // Lines that would come too late are skipped.
            let now = Instant::now();
            while due <= now {
                due += period;
            }
        }
    }

    /// Waits until `due`; true if the pool ended before.
    fn wait_until(&self, due: Instant) -> bool {
        let left = due.saturating_duration_since(Instant::now());
        let waited =
            self.over.wait_timeout_while(sync::lock(&self.is_over), left, |is_over| !*is_over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Whether this thread is the one that prints: the writer may run any code.
    pub(crate) fn is_current(&self) -> bool {
        let me = thread::current().id();
        sync::lock(&self.printer).as_ref().is_some_and(|printer| printer.thread().id() == me)
    }

    /// All workers have ended: prints the last line, and joins the thread.
    pub(crate) fn finish(&self) {
        *sync::lock(&self.is_over) = true;
        self.over.notify_all();
        let printer = sync::lock(&self.printer).take();
        if let Some(printer) = printer {
            let _ = printer.join();
        }
    }
}

/// One number per worker, in brackets.
struct Row<'a, F>(&'a [WorkerStats], F);

impl<N: fmt::Display, F: Fn(&WorkerStats) -> N> fmt::Display for Row<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (index, worker) in self.0.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            write!(f, "{space}{}", self.1(worker))?;
        }
        f.write_str("]")
    }
}

fn line(stats: &PoolStats) -> String {
    format!(
        "SCHED {}ms: workers={} idle={} searching={} parked={} runqueue={} {} ticks={} \
         steal={} stealfail={} stolen={} overflow={} done={}",
        stats.elapsed.as_millis(),
        stats.workers.len(),
        stats.searching + stats.sleeping,
        stats.searching,
        stats.in_state(WorkerState::Sleeping) + stats.in_state(WorkerState::Waiting),
        stats.shared,
        Row(&stats.workers, WorkerStats::queued),
        Row(&stats.workers, |worker: &WorkerStats| worker.ticks),
        stats.steals(),
        stats.failed_steals(),
        stats.stolen(),
        stats.overflowed(),
        stats.executed(),
    )
}

impl PoolStats {
    /// This snapshot as a line of the schedule trace.
    ///
    /// | field | is |
    /// |---|---|
    /// | `workers` | how many there are, including external threads and reserves |
    /// | `idle` | how many of them search or sleep |
    /// | `searching` | how many search for work to steal |
    /// | `parked` | how many threads sleep, for lack of work or until a stolen fork is done |
    /// | `runqueue` | how many tasks are in the shared queue, and in brackets at each worker |
    /// | `ticks` | turns: how often each worker looked for its next work |
    /// | `steal` | successful steals since the pool was created |
    /// | `stealfail` | how often a worker searched all others in vain |
    /// | `stolen` | the tasks and forks that the steals moved |
    /// | `overflow` | tasks moved to the shared queue because a worker's own queue was full |
    /// | `done` | tasks and stolen forks that were run |
    ///
    /// ```
    /// let pool = filch_pool::Pool::builder().threads(2).build()?;
    /// let stats = pool.stats();
    /// assert!(stats.trace_line().ends_with(&format!("done={}", stats.executed())));
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn trace_line(&self) -> String {
        line(self)
    }
}

impl Pool {
    /// The line that a [schedule trace](crate::PoolBuilder::trace) would print now.
    ///
    /// ```
    /// let pool = filch_pool::Pool::builder().threads(2).build()?;
    /// let line = pool.trace_line();
    /// assert!(line.starts_with("SCHED ") && line.contains("ms: workers=2 "));
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn trace_line(&self) -> String {
        self.stats().trace_line()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_a_number_of_milliseconds() {
        assert_eq!(parse("1000"), Ok(Some(Duration::from_secs(1))));
        assert_eq!(parse(" 5 "), Ok(Some(Duration::from_millis(5))));
        assert_eq!(parse(""), Ok(None));
        for bad in ["1s", "-1", "1.5", "yes"] {
            let complaint = parse(bad).unwrap_err();
            assert!(complaint.contains(&format!("FILCH_SCHEDTRACE={bad} is not")), "{complaint}");
        }
    }

    #[test]
    fn zero_disables_the_trace() {
        let settings = Settings { period: Some(Duration::ZERO), writer: None };
        assert_eq!(settings.period(), None);
    }

    #[test]
    fn the_line_has_the_documented_shape() {
        let worker = WorkerStats {
            state: WorkerState::Working,
            executed: 3,
            steals: 1,
            stolen: 2,
            stolen_from: 0,
            failed_steals: 4,
            parks: 5,
            wakes: 0,
            wasted_wakes: 0,
            promotions: 0,
            overflowed: 6,
            ticks: 17,
            exposed_forks: 1,
            exposed_tasks: 2,
        };
        let asleep = WorkerStats { state: WorkerState::Sleeping, ticks: 9, ..worker.clone() };
        let stats = PoolStats {
            elapsed: Duration::from_millis(1000),
            workers: vec![worker, asleep],
            shared: 7,
            searching: 0,
            sleeping: 1,
        };
        assert_eq!(
            stats.trace_line(),
            "SCHED 1000ms: workers=2 idle=1 searching=0 parked=1 runqueue=7 [3 3] ticks=[17 9] \
             steal=2 stealfail=8 stolen=4 overflow=12 done=6"
        );
    }
}
