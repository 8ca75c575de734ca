//! Failures, panics and overruns are logged with `tracing`: the job, the message and the duration.

mod virtual_clock;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::{self, Debug, Display};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use filch_recruit::{Contended, Duty, Enlisted, Rate, Recruiter, SideError, Slice};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use virtual_clock::{advance, now};

/// A log event: its level, and its fields as text.
#[derive(Debug)]
struct Logged {
    level: Level,
    fields: BTreeMap<&'static str, String>,
}

impl Visit for Logged {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

/// Keeps every event.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Logged>>>);

impl Subscriber for Collector {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut logged = Logged { level: *event.metadata().level(), fields: BTreeMap::new() };
        event.record(&mut logged);
        self.0.lock().expect("no code panics with the lock").push(logged);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

type Job = fn(&mut Slice) -> Result<Duty, SideError>;

/// Whether one slice of the job failed, and what was logged. `max` is its maximum duration.
fn enlist(job: Job, max: Duration) -> (bool, Vec<Logged>) {
    let builder = Recruiter::builder().unbounded().clock(now).job("gc", Rate::ALL, job);
    let recruiter = builder.budget(max, max).build().expect("valid set-up");
    let collector = Collector::default();
    let enlisted = tracing::subscriber::with_default(collector.clone(), || recruiter.enlist());
    let logged = std::mem::take(&mut *collector.0.lock().expect("no code panics with the lock"));
    (enlisted == Enlisted::Failed { job: "gc" }, logged)
}

const LONG: Duration = Duration::from_secs(3600);

/// The only event, which has the job and the duration.
fn only(logged: Vec<Logged>) -> Logged {
    let [logged] = <[Logged; 1]>::try_from(logged).expect("one event is logged");
    assert_eq!(logged.fields["job"], "gc");
    let used = &logged.fields["used"];
    assert!(used.ends_with('s'), "{used} is a duration");
    logged
}

#[test]
fn an_error_is_logged_with_its_job_message_and_duration() {
    let (has_failed, logged) = enlist(|_| Err("no network".into()), LONG);
    assert!(has_failed);
    let logged = only(logged);
    assert_eq!(logged.level, Level::WARN);
    assert_eq!(logged.fields["error"], "no network");
    assert_eq!(logged.fields["message"], "side job failed");
}

/// An error with two levels of sources.
#[derive(Debug)]
struct Nested(u32);

impl Display for Nested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "failure {}", self.0)
    }
}

impl Error for Nested {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self.0 {
            1 => Some(&Self(2)),
            2 => Some(&Self(3)),
            _ => None,
        }
    }
}

#[test]
fn an_error_is_logged_with_all_its_sources() {
    let (_, logged) = enlist(|_| Err(Nested(1).into()), LONG);
    assert_eq!(only(logged).fields["error"], "failure 1: failure 2: failure 3");
}

#[test]
fn a_panic_is_logged_with_its_job_message_and_duration() {
    let (has_failed, logged) = enlist(|_| panic!("not {}", "planned"), LONG);
    assert!(has_failed);
    let logged = only(logged);
    assert_eq!(logged.level, Level::ERROR);
    assert_eq!(logged.fields["panic"], "not planned");
    assert_eq!(logged.fields["message"], "side job panicked");
}

#[test]
fn the_location_of_a_panic_is_logged_after_trace_panics() {
    filch_recruit::trace_panics();
    filch_recruit::trace_panics();
    let (_, logged) = enlist(|_| panic!("planned"), LONG);
    let location = &only(logged).fields["location"];
    assert!(location.contains("log.rs:"), "{location}");
    let is_traced = Backtrace::capture().status() == BacktraceStatus::Captured;
    assert_eq!(location.lines().count() > 1, is_traced, "{location}");
    // A panic caught elsewhere does not belong to this job, and the job's own panic has no
    // location.
    let _ = std::panic::catch_unwind(|| panic!("another"));
    let (_, logged) = enlist(|_| std::panic::resume_unwind(Box::new("planned")), LONG);
    assert!(!only(logged).fields.contains_key("location"));
}

#[test]
fn a_skipped_async_job_is_logged_once() {
    let awaits = |_: Slice| async { Ok(Duty::Done) };
    let builder = Recruiter::builder().async_job("gc", Rate::ALL, awaits);
    let recruiter = builder.build().expect("valid set-up");
    let collector = Collector::default();
    tracing::subscriber::with_default(collector.clone(), || {
        for _ in 0..3 {
            recruiter.enlist();
        }
    });
    let logged = collector.0.lock().expect("no code panics with the lock");
    let [logged] = &logged[..] else { panic!("{logged:?}") };
    assert_eq!((logged.level, &*logged.fields["job"]), (Level::WARN, "gc"));
    assert!(logged.fields["message"].contains("enlist_async"), "{logged:?}");
}

#[test]
fn an_overrun_is_logged_with_its_job_limit_and_duration() {
    let long: Job = |_| {
        advance(Duration::from_micros(1_500));
        Ok(Duty::Done)
    };
    let (has_failed, logged) = enlist(long, Duration::from_millis(1));
    assert!(!has_failed);
    let logged = only(logged);
    assert_eq!(logged.level, Level::WARN);
    assert_eq!((&*logged.fields["max"], &*logged.fields["used"]), ("1ms", "1.5ms"));
    assert_eq!(logged.fields["message"], "side job exceeded its maximum slice");
}

#[test]
fn success_and_contention_are_not_logged() {
    let jobs: [Job; 3] = [|_| Ok(Duty::Done), |_| Ok(Duty::NoWork), |_| Err(Contended.into())];
    for job in jobs {
        let (has_failed, logged) = enlist(job, LONG);
        assert!(!has_failed && logged.is_empty(), "{logged:?}");
    }
}
