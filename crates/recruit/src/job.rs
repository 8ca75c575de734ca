//! What a recruit does: a slice of a side job.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::time::{Duration, Instant};

/// Why a slice failed; any error will do.
pub type SideError = Box<dyn Error + Send + Sync>;

/// Whether there was anything to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Duty {
    /// Something was done.
    Done,
    /// There was nothing to do.
    NoWork,
}

/// What a slice returns as its error if somebody else was at it: a lock is held, a transaction was aborted. It is
/// counted apart, nobody is told, and a rate that follows the work learns nothing from it, because whether
/// there is any is not known.
///
/// ```
/// use std::sync::Mutex;
/// use filch_recruit::{Contended, Duty, SideError, Slice};
///
/// fn trim(cache: &Mutex<Vec<u32>>, _: &mut Slice) -> Result<Duty, SideError> {
///     let mut cache = cache.try_lock().map_err(|_| Contended)?;
///     Ok(if cache.pop().is_some() { Duty::Done } else { Duty::NoWork })
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Contended;

impl fmt::Display for Contended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("somebody else is at it: the next recruit takes over")
    }
}

impl Error for Contended {}

/// The time that a recruit has.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    begun: Instant,
    length: Duration,
}

impl Slice {
    /// A slice that begins now: to call a job by hand.
    pub fn new(length: Duration) -> Self {
        Self { begun: Instant::now(), length }
    }

    /// When it should have come to an end.
    pub fn deadline(&self) -> Instant {
        self.begun + self.length
    }

    /// Whether it should end now. Whatever is left is for the next recruit.
    pub fn out_of_time(&self) -> bool {
        self.used() >= self.length
    }

    /// How long it has lasted.
    pub fn used(&self) -> Duration {
        self.begun.elapsed()
    }
}

/// Work that can be done a slice at a time, by anybody, and need not be done at any moment.
///
/// It must not wait: a lock that is held, a network that fails, somebody who is at it already are
/// reasons to return (see [`Contended`]), and the next recruit takes over.
pub trait SideJob: Send + Sync {
    /// Does a little, and returns at the latest when the slice is [out of time](Slice::out_of_time).
    ///
    /// # Errors
    /// Whatever went wrong: it is logged and counted, and not tried again.
    fn recruited(&self, slice: &mut Slice) -> Result<Duty, SideError>;
}

impl<F: Fn(&mut Slice) -> Result<Duty, SideError> + Send + Sync> SideJob for F {
    fn recruited(&self, slice: &mut Slice) -> Result<Duty, SideError> {
        self(slice)
    }
}

/// What an [`AsyncSideJob`] returns.
pub type SideFuture<'a> = Pin<Box<dyn Future<Output = Result<Duty, SideError>> + Send + 'a>>;

/// A side job that awaits. A closure will do that takes a [`Slice`], and so will a type of your own:
///
/// ```
/// use filch_recruit::{AsyncSideJob, Duty, SideFuture, Slice};
///
/// struct Reap;
///
/// impl AsyncSideJob for Reap {
///     fn recruited<'a>(&'a self, slice: &'a mut Slice) -> SideFuture<'a> {
///         Box::pin(async move { Ok(if slice.out_of_time() { Duty::Done } else { Duty::NoWork }) })
///     }
/// }
/// ```
pub trait AsyncSideJob: Send + Sync {
    /// Does a little, and returns at the latest when the slice is [out of time](Slice::out_of_time).
    fn recruited<'a>(&'a self, slice: &'a mut Slice) -> SideFuture<'a>;
}

impl<F, R> AsyncSideJob for F
where
    F: Fn(Slice) -> R + Send + Sync,
    R: Future<Output = Result<Duty, SideError>> + Send + 'static,
{
    fn recruited<'a>(&'a self, slice: &'a mut Slice) -> SideFuture<'a> {
        Box::pin(self(*slice))
    }
}
