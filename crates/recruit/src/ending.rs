//! How a slice ended: with work done, with nothing to do, in contention, with an error or a panic.
//!
//! Errors and panics of a job are caught here; only this result leaves the module.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use crate::job::{Contended, Duty, SideError};
use crate::panics;
use crate::stats::Outcome;

/// The error of an async job that did not finish in time.
const TIMED_OUT: &str = "timed out: it did not finish within the maximum slice and was dropped";

#[derive(Debug)]
pub(crate) enum Ending {
    Done,
    NoWork,
    Contended,
    Failed(String),
    Panicked {
        message: String,
        /// Where it panicked, if `trace_panics` was called.
        location: Option<String>,
    },
}

/// The return type of a job.
type Returned = Result<Duty, SideError>;

impl Ending {
    /// Runs a sync job.
    pub(crate) fn of(job: impl FnOnce() -> Returned) -> Self {
        Self::caught(|| Self::read(job())).unwrap_or_else(|panicked| panicked)
    }

    /// Runs an async job until it is ready, or until `end` is.
    pub(crate) async fn awaited(
        job: impl Future<Output = Returned>,
        end: Option<impl Future<Output = ()>>,
    ) -> Self {
        let mut job = pin!(Some(async { Self::read(job.await) }));
        let mut end = pin!(end);
        let ending = poll_fn(|context| {
            let polled = Self::caught(|| {
                let job = job.as_mut().as_pin_mut().expect("it is dropped later");
                if let Poll::Ready(ending) = job.poll(context) {
                    return Poll::Ready(ending);
                }
                let is_over = end.as_mut().as_pin_mut().map(|end| end.poll(context));
                match is_over {
                    Some(Poll::Ready(())) => Poll::Ready(Self::Failed(TIMED_OUT.to_owned())),
                    Some(Poll::Pending) | None => Poll::Pending,
                }
            });
            polled.unwrap_or_else(Poll::Ready)
        });
        let ending = ending.await;
        // The job is dropped where panics are caught, because its destructors may panic.
        Self::caught(|| job.set(None)).err().unwrap_or(ending)
    }

    /// Formats and drops the error of a job: call it where panics are caught, because the error's
    /// code may panic.
    fn read(returned: Returned) -> Self {
        match returned {
            Ok(Duty::Done) => Self::Done,
            Ok(Duty::NoWork) => Self::NoWork,
            Err(error) if error.is::<Contended>() => Self::Contended,
            Err(error) => Self::Failed(with_sources(&error)),
        }
    }

    /// Runs `work` and catches a panic.
    fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Self> {
        // Discard the location of an earlier panic.
        panics::take_location();
        catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
            // Read it before anything else can panic.
            let location = panics::take_location();
            Self::Panicked { message: message(panic), location }
        })
    }

    pub(crate) const fn outcome(&self) -> Outcome {
        match self {
            Self::Done => Outcome::Recruited,
            Self::NoWork => Outcome::NoWork,
            Self::Contended => Outcome::Contended,
            Self::Failed(_) => Outcome::Failed,
            Self::Panicked { .. } => Outcome::Panicked,
        }
    }
}

/// The text of an error and of its sources, unless a text already ends with its source.
fn with_sources(error: &SideError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

/// The message of a panic.
fn message(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&'static str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("(no message)").to_owned();
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        // Dropping this payload panics too, so it is leaked.
        Box::leak(another);
    }
    text
}
