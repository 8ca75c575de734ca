//! One direction of one connection.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::{LinkCondition, LinkConditions, frame};

/// The most frames in flight: more than a test sends in the longest delay.
const IN_FLIGHT: usize = 100_000;

/// A frame and the time at which it arrives.
type Arrival = (Instant, Vec<u8>);

/// Forwards frames until either side closes the connection, or until it was cut and is mended.
pub(super) async fn carry(
    from: ReadHalf<'_>,
    to: WriteHalf<'_>,
    conditions: watch::Receiver<LinkConditions>,
    of: impl Fn(LinkConditions) -> LinkCondition + Copy,
    carried: &AtomicUsize,
) {
    let (sender, arrivals) = channel(IN_FLIGHT);
    let counted = Counted::among(carried);
    let mut until_cut = conditions.clone();
    tokio::select! {
        biased;
        _ = until_cut.wait_for(|conditions| of(*conditions) == LinkCondition::Cut) => {}
        () = take(from, sender, conditions, of) => {}
        () = arrive(to, arrivals) => {}
    }
    drop(counted);
    let _ = until_cut.wait_for(|conditions| of(*conditions) != LinkCondition::Cut).await;
}

/// Counts one direction until it is dropped: the end of either direction ends both.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn among(carried: &'a AtomicUsize) -> Self {
        carried.fetch_add(1, Ordering::SeqCst);
        Self(carried)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn take(
    mut from: ReadHalf<'_>,
    arrivals: Sender<Arrival>,
    conditions: watch::Receiver<LinkConditions>,
    of: impl Fn(LinkConditions) -> LinkCondition,
) {
    let mut bytes = Vec::new();
    loop {
        while let Some(length) = frame::length(&bytes).filter(|&length| length <= bytes.len()) {
            let rest = bytes.split_off(length);
            let frame = std::mem::replace(&mut bytes, rest);
            let condition = of(*conditions.borrow());
            let (copies, delay) = match condition {
                LinkCondition::Dropped => (0, Duration::ZERO),
                LinkCondition::Duplicated => (2, Duration::ZERO),
                LinkCondition::Delayed(delay) => (1, delay),
                LinkCondition::Normal | LinkCondition::Cut | LinkCondition::Slow(_) => {
                    (1, Duration::ZERO)
                }
            };
            for _ in 0..copies {
                if arrivals.send((Instant::now() + delay, frame.clone())).await.is_err() {
                    return;
                }
            }
        }
        let read = from.read_buf(&mut bytes).await.unwrap_or(0);
        if read == 0 {
            return;
        }
        let condition = of(*conditions.borrow());
        if let LinkCondition::Slow(bytes_per_second) = condition {
            sleep(Duration::from_secs_f64(read as f64 / f64::from(bytes_per_second))).await;
        }
    }
}

async fn arrive(mut to: WriteHalf<'_>, mut arrivals: Receiver<Arrival>) {
    while let Some((at, frame)) = arrivals.recv().await {
        sleep_until(at).await;
        if to.write_all(&frame).await.is_err() {
            return;
        }
    }
}
