//! Logs of servers and workers: which events are written to stderr, and in which form.
//!
//! The events themselves are made by `filch_server`, `filch_worker` and `filch_recruit`. Those of
//! other crates are left out: they might contain what requests carry.

use clap::{Args, ValueEnum};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Which events are logged, and how
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Logging {
    /// Log events of this level and above: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", hide_possible_values = true)]
    log_level: Level,
    /// Write the log as text or json, to stderr
    #[arg(long, value_name = "FORMAT", hide_possible_values = true)]
    log_format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A line of text for each event
    Text,
    /// A JSON object on a line for each event
    Json,
}

impl Logging {
    /// Only warnings and errors, for a server that lives inside another command.
    pub(crate) const QUIET: Self = Self { log_level: Level::Warn, log_format: Format::Text };

    /// Starts to log. Only the first call in a process counts.
    pub(crate) fn start(self) {
        let targets = Targets::new().with_target("filch", LevelFilter::from(self.log_level));
        let events = tracing_subscriber::registry().with(targets);
        // A log that cannot be written must not end the program, so errors of writing are dropped.
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .log_internal_errors(false);
        let started = match self.log_format {
            Format::Text => events.with(lines).try_init(),
            Format::Json => events.with(lines.json().flatten_event(true)).try_init(),
        };
        // It fails only if there is a subscriber already.
        let _ = started;
    }
}

impl From<Level> for LevelFilter {
    fn from(level: Level) -> Self {
        match level {
            Level::Error => Self::ERROR,
            Level::Warn => Self::WARN,
            Level::Info => Self::INFO,
            Level::Debug => Self::DEBUG,
            Level::Trace => Self::TRACE,
        }
    }
}
