//! What goes wrong is told through `tracing`: which job, what it said, and how long it took.

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

/// What was told, as text, by the names of the fields.
#[derive(Debug)]
struct Told {
    level: Level,
    fields: BTreeMap<&'static str, String>,
}

impl Visit for Told {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}

/// Keeps everything that is told.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Vec<Told>>>);

impl Subscriber for Listener {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut told = Told { level: *event.metadata().level(), fields: BTreeMap::new() };
        event.record(&mut told);
        self.0.lock().expect("nobody panics").push(told);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

type Job = fn(&mut Slice) -> Result<Duty, SideError>;

/// What one slice of the job, which may last that long, becomes and what is told of it.
fn enlist(job: Job, max: Duration) -> (bool, Vec<Told>) {
    let builder = Recruiter::builder().unbounded().job("gc", Rate::ALL, job).budget(max, max);
    let recruiter = builder.build().expect("it makes sense");
    let listener = Listener::default();
    let enlisted = tracing::subscriber::with_default(listener.clone(), || recruiter.enlist());
    let told = std::mem::take(&mut *listener.0.lock().expect("nobody panics"));
    (enlisted == Enlisted::Failed { job: "gc" }, told)
}

const LONG: Duration = Duration::from_secs(3600);

/// The one thing that was told says which job it was, and for how long.
fn only(told: Vec<Told>) -> Told {
    let [told] = <[Told; 1]>::try_from(told).expect("one thing is told");
    assert_eq!(told.fields["job"], "gc");
    let used = &told.fields["used"];
    assert!(used.starts_with(|first: char| first.is_ascii_digit()), "{used} is a time");
    assert!(used.ends_with('s'), "{used} is a time");
    told
}

#[test]
fn an_error_is_told_with_its_job_its_text_and_its_time() {
    let (has_failed, told) = enlist(|_| Err("no network".into()), LONG);
    assert!(has_failed);
    let told = only(told);
    assert_eq!(told.level, Level::WARN);
    assert_eq!(told.fields["error"], "no network");
    assert_eq!(told.fields["message"], "a slice of side-work failed");
}

/// A failure that has another behind it, and that a third.
#[derive(Debug)]
struct Behind(u32);

impl Display for Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "failure {}", self.0)
    }
}

impl Error for Behind {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self.0 {
            1 => Some(&Self(2)),
            2 => Some(&Self(3)),
            _ => None,
        }
    }
}

#[test]
fn an_error_is_told_with_all_that_is_behind_it() {
    let (_, told) = enlist(|_| Err(Behind(1).into()), LONG);
    assert_eq!(only(told).fields["error"], "failure 1: failure 2: failure 3");
}

#[test]
fn a_panic_is_told_with_its_job_its_text_and_its_time() {
    let (has_failed, told) = enlist(|_| panic!("not {}", "planned"), LONG);
    assert!(has_failed);
    let told = only(told);
    assert_eq!(told.level, Level::ERROR);
    assert_eq!(told.fields["panic"], "not planned");
    assert_eq!(told.fields["message"], "a slice of side-work panicked");
}

#[test]
fn where_it_panicked_is_told_if_that_is_wanted() {
    filch_recruit::trace_panics();
    filch_recruit::trace_panics();
    let (_, told) = enlist(|_| panic!("planned"), LONG);
    let place = &only(told).fields["place"];
    assert!(place.contains("log.rs:"), "{place}");
    let is_traced = Backtrace::capture().status() == BacktraceStatus::Captured;
    assert_eq!(place.lines().count() > 1, is_traced, "{place}");
    // Another panic, which somebody else has caught, was not of this job; and this one has no place.
    let _ = std::panic::catch_unwind(|| panic!("another"));
    let (_, told) = enlist(|_| std::panic::resume_unwind(Box::new("planned")), LONG);
    assert!(!only(told).fields.contains_key("place"));
}

#[test]
fn that_nobody_can_await_is_told_once() {
    let awaits = |_: Slice| async { Ok(Duty::Done) };
    let builder = Recruiter::builder().async_job("gc", Rate::ALL, awaits);
    let recruiter = builder.build().expect("it makes sense");
    let listener = Listener::default();
    tracing::subscriber::with_default(listener.clone(), || {
        for _ in 0..3 {
            recruiter.enlist();
        }
    });
    let told = listener.0.lock().expect("nobody panics");
    let [told] = &told[..] else { panic!("{told:?}") };
    assert_eq!((told.level, &*told.fields["job"]), (Level::WARN, "gc"));
    assert!(told.fields["message"].contains("enlist_async"), "{told:?}");
}

#[test]
fn an_overrun_is_told_with_its_job_its_bound_and_its_time() {
    let long: Job = |slice| {
        while !slice.out_of_time() {
            std::hint::spin_loop();
        }
        // By a moment at least.
        std::thread::sleep(Duration::from_micros(10));
        Ok(Duty::Done)
    };
    let (has_failed, told) = enlist(long, Duration::from_millis(1));
    assert!(!has_failed);
    let told = only(told);
    assert_eq!(told.level, Level::WARN);
    assert_eq!(told.fields["max"], "1ms");
    assert_eq!(told.fields["message"], "a slice of side-work took too long");
}

#[test]
fn what_goes_well_or_is_given_up_is_not_told() {
    let jobs: [Job; 3] = [|_| Ok(Duty::Done), |_| Ok(Duty::NoWork), |_| Err(Contended.into())];
    for job in jobs {
        let (has_failed, told) = enlist(job, LONG);
        assert!(!has_failed && told.is_empty(), "{told:?}");
    }
}
