//! The server's end of a worker's connection: frames come in, batches go out.
//!
//! The other end is a socket, or a worker in this process; the frames are the same.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use filch_api::delivery;
use filch_api::session::{About, DownFrame, InvalidFrame, UpFrame};
use filch_scheduler::id::{Hold, MessageNo, Seq, SessionNo, WorkerId};
use filch_scheduler::message::{Delivery, ToWorker};
use filch_store::{Store, StoredText};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::brain::{Doorbell, Input, Way};
use crate::logs::Logs;
use crate::roster::Roster;

/// Identifies a connection within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LinkNo(u64);

impl LinkNo {
    pub(crate) fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed))
    }
}

/// Messages for a worker, before they are encoded.
pub(crate) struct Batch {
    pub(crate) session: SessionNo,
    pub(crate) number: MessageNo,
    pub(crate) messages: Vec<ToWorker>,
    /// The payloads of assigned jobs, in order; `None` if a payload has to be read from the store.
    pub(crate) works: Vec<(Hold, Option<StoredText>)>,
    /// The grace period for running jobs, if the worker drains and a request has set one.
    pub(crate) grace: Option<Duration>,
}

/// How many batches may wait for a worker; a slower worker is disconnected, and reconnects.
pub(crate) const BATCHES_MAX: usize = 1_024;

/// The server's end of a connection.
pub(crate) struct Link {
    number: LinkNo,
    doorbell: Doorbell,
    house: House,
    way: Way,
    /// The worker that has sent its name and kinds over this connection.
    introduced: Mutex<Option<WorkerId>>,
}

/// Services of connections that do not involve the scheduler.
#[derive(Clone, Default)]
pub(crate) struct House {
    pub(crate) logs: Arc<Logs>,
    pub(crate) roster: Arc<Roster>,
}

/// The connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkClosed;

/// Why a frame was rejected. The connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Untaken {
    /// It is invalid.
    Nonsense(&'static str),
    /// The server is stopping.
    Closed,
}

impl Link {
    pub(crate) fn open(doorbell: Doorbell, house: House) -> (Self, Receiver<Batch>) {
        let (batches, outgoing) = channel(BATCHES_MAX);
        let way = Way { batches, hang_up: Arc::default() };
        let introduced = Mutex::default();
        (Self { number: LinkNo::next(), doorbell, house, way, introduced }, outgoing)
    }

    /// Handles a frame.
    pub(crate) async fn take(&self, mut frame: UpFrame, home: Home) -> Result<(), Untaken> {
        let output = std::mem::take(&mut frame.output);
        let about = frame.about.take();
        let heard = frame.hear().map_err(|InvalidFrame(why)| Untaken::Nonsense(why))?;
        // Ids of embedded workers are declared dead at the next start, so no other worker may use
        // one.
        if (home == Home::Apart) == heard.worker.is_embedded() {
            return Err(Untaken::Nonsense("this worker id is not allowed here"));
        }
        if let Some(about) = about {
            self.introduce(heard.worker, about.bounded());
        }
        if !output.is_empty() {
            // First: after the report of a job's end its output would be ignored.
            let printed = Input::Printed { link: self.number, worker: heard.worker, output };
            self.doorbell.ring(printed).await.map_err(|_| Untaken::Closed)?;
        }
        if heard.number.0 == 0 {
            return Ok(());
        }
        let input = Input::Heard { link: self.number, way: self.way.clone(), heard };
        self.doorbell.ring(input).await.map_err(|_| Untaken::Closed)
    }

    /// One worker per connection: a second introduction replaces the first.
    fn introduce(&self, worker: WorkerId, about: About) {
        let mut introduced = self.introduced.lock().expect("no panic while it is locked");
        if let Some(before) = introduced.replace(worker).filter(|before| *before != worker) {
            self.house.roster.forget(self.number, before);
        }
        self.house.roster.introduce(self.number, worker, about);
    }

    /// Waits until the server closes this connection.
    pub(crate) async fn hung_up(&self) {
        self.way.hang_up.notified().await;
    }

    /// The connection has broken.
    pub(crate) async fn close(self) {
        let introduced = self.introduced.into_inner().expect("no panic while it is locked");
        if let Some(worker) = introduced {
            self.house.roster.forget(self.number, worker);
        }
        let _ = self.doorbell.ring(Input::LinkClosed(self.number)).await;
    }
}

/// Where the worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    Apart,
    Embedded,
}

/// Adds the payloads of a batch's jobs; those that are not in memory are read from the store.
pub(crate) async fn deliver(batch: Batch, store: &Arc<dyn Store>) -> Result<Delivery, LinkClosed> {
    let Batch { session, number, messages, mut works, grace } = batch;
    let missing: Vec<Seq> =
        works.iter().filter(|(_, text)| text.is_none()).map(|(hold, _)| hold.job).collect();
    if !missing.is_empty() {
        let store = Arc::clone(store);
        let read = tokio::task::spawn_blocking(move || store.payloads(&missing)).await;
        let read = read.map_err(|_| LinkClosed)?.map_err(|error| {
            tracing::error!(%error, "store error: cannot read the payloads of assigned jobs");
            LinkClosed
        })?;
        let gaps = works.iter_mut().filter(|(_, text)| text.is_none());
        for ((_, text), found) in gaps.zip(read) {
            *text = found;
        }
    }
    // A job that was purged meanwhile does not belong to this worker any more, so any payload will
    // do.
    let nothing = || StoredText::from("{}");
    let works = works.into_iter().map(|(hold, text)| (hold, text.unwrap_or_else(nothing)));
    Ok(Delivery { session, number, messages, works: works.collect(), grace })
}

/// The same, as a decoded frame.
pub(crate) async fn write_down(
    batch: Batch,
    store: &Arc<dyn Store>,
) -> Result<DownFrame, LinkClosed> {
    deliver(batch, store).await.map(delivery::frame)
}

/// A connection of a worker that runs in this process.
pub struct Embedded {
    /// Frames from the worker.
    pub up: Sender<UpFrame>,
    /// Frames to the worker.
    pub down: Receiver<Delivery>,
}

impl Embedded {
    pub(crate) fn open(doorbell: Doorbell, house: House, store: Arc<dyn Store>) -> Self {
        let (up, mut frames) = channel::<UpFrame>(BATCHES_MAX);
        let (answers, down) = channel(BATCHES_MAX);
        let (link, mut outgoing) = Link::open(doorbell, house);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = link.hung_up() => break,
                    frame = frames.recv() => match frame {
                        Some(frame) => {
                            if link.take(frame, Home::Embedded).await.is_err() {
                                break;
                            }
                        }
                        None => break,
                    },
                    batch = outgoing.recv() => {
                        let Some(batch) = batch else { break };
                        let Ok(delivery) = deliver(batch, &store).await else { break };
                        if answers.send(delivery).await.is_err() {
                            break;
                        }
                    }
                }
            }
            link.close().await;
        });
        Self { up, down }
    }
}
