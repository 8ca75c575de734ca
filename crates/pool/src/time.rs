//! Timers for futures: sleep, timeout and interval.
//!
//! A timer is watched by the pool on whose thread it is first polled; on any other thread, by the
//! global pool.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;

use crate::core::Core;
use crate::current;
use crate::deadlines::Deadline;
use crate::global;
use crate::reactor::Reactor;

/// Waits for a duration.
///
/// ```
/// # use std::time::{Duration, Instant};
/// let begun = Instant::now();
/// filch_pool::block_on(filch_pool::time::sleep(Duration::from_millis(5)));
/// assert!(begun.elapsed() >= Duration::from_millis(5));
/// ```
pub fn sleep(duration: Duration) -> Sleep {
    Sleep { until: Instant::now().checked_add(duration), timer: None }
}

/// Waits until a deadline.
///
/// ```
/// # use std::time::{Duration, Instant};
/// let then = Instant::now() + Duration::from_millis(5);
/// filch_pool::block_on(filch_pool::time::sleep_until(then));
/// assert!(Instant::now() >= then);
/// ```
pub fn sleep_until(until: Instant) -> Sleep {
    Sleep { until: Some(until), timer: None }
}

/// A future that resolves at a certain time: see [`sleep`]. Dropping it cancels the timer.
///
/// ```
/// let nap = filch_pool::time::sleep(std::time::Duration::ZERO);
/// filch_pool::block_on(nap);
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct Sleep {
    /// None if it is too far away to be represented: then it never resolves.
    until: Option<Instant>,
    timer: Option<Timer>,
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("until", &self.until).finish()
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(until) = self.until else { return Poll::Pending };
        if Instant::now() >= until {
            self.timer = None;
            return Poll::Ready(());
        }
        let is_waiting = self.timer.as_ref().is_some_and(|timer| timer.renew(context.waker()));
        if !is_waiting {
            self.timer = Timer::new(until, context.waker());
        }
        Poll::Pending
    }
}

/// A registered timer.
struct Timer {
    reactor: Arc<Reactor>,
    deadline: Deadline,
}

impl Timer {
    /// None on a thread of a pool that is being closed, where nothing can wait any more.
    fn new(until: Instant, waker: &Waker) -> Option<Self> {
        let add = |core: &Core| {
            let reactor = core
                .make_reactor()
                .unwrap_or_else(|error| panic!("cannot create a timer: {error}"));
            let deadline = reactor.add_timer(until, waker.clone())?;
            Some(Self { reactor: Arc::clone(reactor), deadline })
        };
        current::with(|local| match local {
            Some(local) => add(local.core),
            None => Some(add(global::pool().core()).unwrap_or_else(|| {
                panic!("cannot create a timer: the global pool, which would watch it, is closed")
            })),
        })
    }

    fn renew(&self, waker: &Waker) -> bool {
        self.reactor.renew_timer(self.deadline, waker)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.reactor.remove_timer(self.deadline);
    }
}

/// Limits how long a future may take: after that time this returns [`Elapsed`], and the future is
/// dropped with it.
///
/// ```
/// # use std::time::Duration;
/// use filch_pool::{block_on, time::{Elapsed, timeout}};
/// let soon = block_on(timeout(Duration::from_secs(60), async { 1 }));
/// assert_eq!(soon, Ok(1));
/// let never = block_on(timeout(Duration::from_millis(1), std::future::pending::<()>()));
/// assert_eq!(never, Err(Elapsed));
/// ```
pub fn timeout<F: Future>(duration: Duration, future: F) -> Timeout<F> {
    Timeout { future, sleep: sleep(duration) }
}

pin_project! {
    /// A future with a time limit: see [`timeout`].
    ///
    /// ```
    /// let quick = filch_pool::time::timeout(std::time::Duration::ZERO, async { 1 });
    /// assert_eq!(filch_pool::block_on(quick), Ok(1));
    /// ```
    #[must_use = "futures do nothing unless awaited"]
    #[derive(Debug)]
    pub struct Timeout<F> {
        #[pin]
        future: F,
        sleep: Sleep,
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(value) = this.future.poll(context) {
            return Poll::Ready(Ok(value));
        }
        Pin::new(this.sleep).poll(context).map(|()| Err(Elapsed))
    }
}

/// The error of a [`timeout`]: the time limit was exceeded.
///
/// ```
/// assert_eq!(filch_pool::time::Elapsed.to_string(), "the time limit was exceeded");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time limit was exceeded")
    }
}

impl Error for Elapsed {}

/// Ticks periodically; the first tick is immediate.
///
/// # Panics
/// If `period` is zero.
///
/// ```
/// # use std::time::Duration;
/// filch_pool::block_on(async {
///     let mut ticks = filch_pool::time::interval(Duration::from_millis(2));
///     let first = ticks.tick().await;
///     let second = ticks.tick().await;
///     assert!(second - first >= Duration::from_millis(2));
/// });
/// ```
#[track_caller]
pub fn interval(period: Duration) -> Interval {
    assert!(period > Duration::ZERO, "the period of an interval must not be zero");
    Interval { period, next: Instant::now() }
}

/// A periodic timer: see [`interval`].
///
/// ```
/// let ticks = filch_pool::time::interval(std::time::Duration::from_secs(1));
/// assert!(format!("{ticks:?}").contains("1s"));
/// ```
#[derive(Debug)]
pub struct Interval {
    period: Duration,
    next: Instant,
}

impl Interval {
    /// Waits for the next tick, and returns when it was due. Ticks that were missed are skipped,
    /// and later ones keep their schedule.
    ///
    /// ```
    /// # use std::time::Duration;
    /// filch_pool::block_on(async {
    ///     filch_pool::time::interval(Duration::from_secs(1)).tick().await;
    /// });
    /// ```
    pub async fn tick(&mut self) -> Instant {
        let due = self.next;
        sleep_until(due).await;
        self.next = next_tick(due, Instant::now(), self.period);
        due
    }
}

/// The first tick after `now`, for ticks that are one period apart and of which one was at `due`.
fn next_tick(due: Instant, now: Instant, period: Duration) -> Instant {
    let late = now.saturating_duration_since(due).as_nanos();
    let ticks = u32::try_from(late / period.as_nanos() + 1).unwrap_or(u32::MAX);
    due + period.saturating_mul(ticks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Pool;

    #[test]
    fn missed_ticks_are_skipped_and_later_ones_keep_the_schedule() {
        let due = Instant::now();
        let ms = Duration::from_millis;
        for (late, next) in [(0, 20), (1, 20), (19, 20), (20, 40), (99, 100), (100, 120)] {
            assert_eq!(next_tick(due, due + ms(late), ms(20)), due + ms(next), "{late} ms late");
        }
    }

    #[test]
    fn a_million_cancelled_timers_leave_nothing_behind() {
        let pool = Pool::builder().threads(1).build().unwrap();
        let far = Duration::from_secs(3600);
        pool.install(|| {
            let mut context = Context::from_waker(Waker::noop());
            for _ in 0..1000 {
                let mut naps: Vec<_> = (0..1000).map(|_| sleep(far)).collect();
                for nap in &mut naps {
                    assert!(Pin::new(nap).poll(&mut context).is_pending());
                }
            }
        });
        let reactor = pool.core().reactor().unwrap();
        assert!(!reactor.is_wanted());
        assert_eq!(reactor.timers(), 0);
    }
}
