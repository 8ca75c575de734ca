//! Side jobs, and the slice of time that a recruit has for one.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::time::{Duration, Instant};

/// Why a slice failed; any error will do.
pub type SideError = Box<dyn Error + Send + Sync>;

/// Where the time comes from.
pub(crate) type Clock = fn() -> Instant;

/// Whether there was anything to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Duty {
    /// Some work was done.
    Done,
    /// There was nothing to do.
    NoWork,
}

/// The error that a slice returns if another thread or process is doing the same work: a lock is
/// held, or a transaction was aborted. It is counted separately and not logged, and an adaptive
/// rate does not change, because the slice did not find out whether there is work.
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
        f.write_str("another recruit is doing the same work")
    }
}

impl Error for Contended {}

/// The time that a recruit has.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    begun: Instant,
    length: Duration,
    clock: Clock,
}

impl Slice {
    /// A slice that begins now, for calling a job directly.
    pub fn new(length: Duration) -> Self {
        Self::begin(length, Instant::now)
    }

    pub(crate) fn begin(length: Duration, clock: Clock) -> Self {
        Self { begun: clock(), length, clock }
    }

    /// When the slice should end.
    pub fn deadline(&self) -> Instant {
        self.begun + self.length
    }

    /// Whether the slice should end now. Work that is left is for the next recruit.
    pub fn out_of_time(&self) -> bool {
        self.used() >= self.length
    }

    /// How long the slice has lasted.
    pub fn used(&self) -> Duration {
        (self.clock)().saturating_duration_since(self.begun)
    }
}

/// Work that can be done one slice at a time, on any thread, and does not have a deadline.
///
/// A side job must not block. If a lock is held, the network fails, or another recruit is doing the
/// same work, return (see [`Contended`]); the next recruit continues.
pub trait SideJob: Send + Sync {
    /// Does a small part of the work, and returns at the latest when the slice is
    /// [out of time](Slice::out_of_time).
    ///
    /// # Errors
    /// Any error is logged and counted. The slice is not retried.
    fn recruited(&self, slice: &mut Slice) -> Result<Duty, SideError>;
}

impl<F: Fn(&mut Slice) -> Result<Duty, SideError> + Send + Sync> SideJob for F {
    fn recruited(&self, slice: &mut Slice) -> Result<Duty, SideError> {
        self(slice)
    }
}

/// The future that an [`AsyncSideJob`] returns.
pub type SideFuture<'a> = Pin<Box<dyn Future<Output = Result<Duty, SideError>> + Send + 'a>>;

/// An async side job: a closure that takes a [`Slice`], or a type of your own:
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
    /// Does a small part of the work, and returns at the latest when the slice is
    /// [out of time](Slice::out_of_time).
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
