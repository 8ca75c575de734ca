//! How a slice ended: what it found, that somebody else was at it, or what it said when it failed or panicked.
//!
//! Whatever a job does, nothing of it gets beyond here but this.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use crate::job::{Contended, Duty, SideError};
use crate::panics;
use crate::stats::Outcome;

/// What is told of a job that awaits for too long.
const LATE: &str = "it had not come to an end when its time was over, and was thrown away";

#[derive(Debug)]
pub(crate) enum Ending {
    Done,
    NoWork,
    Contended,
    Failed(String),
    Panicked {
        message: String,
        /// Where, if that is noted.
        place: Option<String>,
    },
}

/// What a job returns.
type Returned = Result<Duty, SideError>;

impl Ending {
    /// That of a job which is called.
    pub(crate) fn of(job: impl FnOnce() -> Returned) -> Self {
        Self::caught(|| Self::read(job())).unwrap_or_else(|panicked| panicked)
    }

    /// That of a job which is awaited, but not beyond this end, if there is one.
    pub(crate) async fn awaited(
        job: impl Future<Output = Returned>,
        end: Option<impl Future<Output = ()>>,
    ) -> Self {
        let mut job = pin!(Some(async { Self::read(job.await) }));
        let mut end = pin!(end);
        let ending = poll_fn(|context| {
            let polled = Self::caught(|| {
                let job = job.as_mut().as_pin_mut().expect("it is thrown away later");
                if let Poll::Ready(ending) = job.poll(context) {
                    return Poll::Ready(ending);
                }
                let is_over = end.as_mut().as_pin_mut().map(|end| end.poll(context));
                match is_over {
                    Some(Poll::Ready(())) => Poll::Ready(Self::Failed(LATE.to_owned())),
                    Some(Poll::Pending) | None => Poll::Pending,
                }
            });
            polled.unwrap_or_else(Poll::Ready)
        });
        let ending = ending.await;
        // What was not done is thrown away where panics are caught, too.
        Self::caught(|| job.set(None)).err().unwrap_or(ending)
    }

    /// An error is the job's, so it is asked, and thrown away, where panics are caught.
    fn read(returned: Returned) -> Self {
        match returned {
            Ok(Duty::Done) => Self::Done,
            Ok(Duty::NoWork) => Self::NoWork,
            Err(error) if error.is::<Contended>() => Self::Contended,
            Err(error) => Self::Failed(told(&error)),
        }
    }

    /// What the work comes to, or how it panicked.
    fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Self> {
        // What is noted by now was not of this work.
        panics::take_place();
        catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
            // Before anything else can panic.
            let place = panics::take_place();
            Self::Panicked { message: message(panic), place }
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

/// What an error says, and what is behind it, as far as it does not say that itself.
fn told(error: &SideError) -> String {
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

/// What a panic said.
fn message(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&'static str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("not with a text").to_owned();
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        // Who panics when it is thrown away is kept.
        Box::leak(another);
    }
    text
}
