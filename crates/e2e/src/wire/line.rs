//! One direction of one connection.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::{Passage, Weather, frame};

/// So many frames may be under way. More than a test sends in the longest delay.
const UNDER_WAY: usize = 100_000;

/// A frame and when it arrives.
type Arrival = (Instant, Vec<u8>);

/// Carries frames until either side hangs up, or until it was cut and is mended.
pub(super) async fn carry(
    from: ReadHalf<'_>,
    to: WriteHalf<'_>,
    weather: watch::Receiver<Weather>,
    of: impl Fn(Weather) -> Passage + Copy,
    carried: &AtomicUsize,
) {
    let (sender, arrivals) = channel(UNDER_WAY);
    let counted = Counted::among(carried);
    let mut until_cut = weather.clone();
    tokio::select! {
        biased;
        _ = until_cut.wait_for(|weather| of(*weather) == Passage::Cut) => {}
        () = take(from, sender, weather, of) => {}
        () = arrive(to, arrivals) => {}
    }
    drop(counted);
    let _ = until_cut.wait_for(|weather| of(*weather) != Passage::Cut).await;
}

/// One direction that is carried. Counted until it is dropped, since the other direction's end ends both.
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
    weather: watch::Receiver<Weather>,
    of: impl Fn(Weather) -> Passage,
) {
    let mut bytes = Vec::new();
    loop {
        while let Some(length) = frame::length(&bytes).filter(|&length| length <= bytes.len()) {
            let rest = bytes.split_off(length);
            let frame = std::mem::replace(&mut bytes, rest);
            let passage = of(*weather.borrow());
            let (copies, delay) = match passage {
                Passage::Hole => (0, Duration::ZERO),
                Passage::Twice => (2, Duration::ZERO),
                Passage::Late(delay) => (1, delay),
                Passage::Whole | Passage::Cut | Passage::Slow(_) => (1, Duration::ZERO),
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
        let passage = of(*weather.borrow());
        if let Passage::Slow(bytes_per_second) = passage {
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
