//! Job kinds that every filch worker handles, for demos and benchmarks.

use std::time::Duration;

use filch_worker::handler::{Handlers, Outcome};
use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;

/// Microseconds of a clock that all processes on this machine share.
pub(crate) fn micros() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sleep {
    ms: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fib {
    n: u32,
}

/// The largest argument of `fib`: with a fork at every level it takes seconds.
const FIB_MAX: u32 = 40;

/// The n-th Fibonacci number, computed with a fork at every level.
fn fib(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    let (one, other) = filch_pool::join(|| fib(n - 1), || fib(n - 2));
    one + other
}

/// Adds the built-in kinds.
pub(crate) fn add(handlers: Handlers) -> Handlers {
    handlers
        .asynchronous("noop", |_| std::future::ready(Outcome::Finished(None)))
        .asynchronous("clock", |_| {
            std::future::ready(Outcome::Finished(Some(micros().to_string())))
        })
        .asynchronous("sleep", |attempt| async move {
            let started = micros();
            match serde_json::from_str::<Sleep>(&attempt.args()) {
                Ok(Sleep { ms }) => {
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                    let pid = std::process::id();
                    let result = format!("{{\"pid\":{pid},\"started_us\":{started}}}");
                    Outcome::Finished(Some(result))
                }
                Err(error) => Outcome::Failed {
                    error: format!("invalid arguments, expected {{\"ms\": 100}}: {error}"),
                    forever: true,
                },
            }
        })
        .sync("fib", |attempt| {
            let forever = |error| Outcome::Failed { error, forever: true };
            match serde_json::from_str::<Fib>(&attempt.args()) {
                Ok(Fib { n }) if n <= FIB_MAX => Outcome::Finished(Some(fib(n).to_string())),
                Ok(Fib { n }) => forever(format!("n is {n}, but at most {FIB_MAX} is allowed")),
                Err(error) => {
                    forever(format!("invalid arguments, expected {{\"n\": 30}}: {error}"))
                }
            }
        })
}
