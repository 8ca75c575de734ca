//! The server's end of a worker's connection: frames come in, batches go out.
//!
//! The other end is a socket, or a worker in this process; the frames are the same.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use filch_api::session::{About, Arrived, InvalidFrame, UpFrame};
use filch_engine::server::{HangUp, LinkNo, LinkScope};
use filch_scheduler::id::WorkerId;
use filch_scheduler::message::Delivery;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::watch;

use crate::logs::Logs;
use crate::roster::Roster;
use crate::shell::{Handle, Urgent};

/// How many batches may wait for a worker; a slower worker is disconnected, and reconnects.
pub(crate) const BATCHES_MAX: usize = 1_024;

/// Sends to a worker.
pub(crate) struct WorkerSender {
    /// Batches, each with whether it must be confirmed once it is sent.
    pub(crate) batches: Sender<(Delivery, bool)>,
    /// Ends the connection.
    pub(crate) hang_up: watch::Sender<Option<HangUp>>,
}

/// The server's end of a connection.
pub(crate) struct Link {
    number: LinkNo,
    handle: Handle,
    services: Services,
    hung_up: watch::Receiver<Option<HangUp>>,
    /// The worker that has sent its name and kinds over this connection.
    introduced: Mutex<Option<WorkerId>>,
}

/// Services of connections that do not involve the scheduler.
#[derive(Clone, Default)]
pub(crate) struct Services {
    pub(crate) logs: Arc<Logs>,
    pub(crate) roster: Arc<Roster>,
}

/// Why a frame was rejected. The connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Untaken {
    /// It is invalid.
    Nonsense(&'static str),
    /// The server is stopping.
    Closed,
}

impl Link {
    /// Opens a link. `None` if the server is stopping.
    pub(crate) async fn open(
        handle: Handle,
        services: Services,
        scope: LinkScope,
    ) -> Option<(Self, Receiver<(Delivery, bool)>)> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let number = LinkNo(LAST.fetch_add(1, Ordering::Relaxed));
        let (batches, outgoing) = channel(BATCHES_MAX);
        let (hang_up, hung_up) = watch::channel(None);
        let sender = WorkerSender { batches, hang_up };
        handle.urgent(Urgent::Opened { link: number, scope, sender }).await.ok()?;
        let introduced = Mutex::default();
        Some((Self { number, handle, services, hung_up, introduced }, outgoing))
    }

    /// Handles a frame that was made in this process.
    pub(crate) async fn take(&self, frame: UpFrame) -> Result<(), Untaken> {
        let arrived = frame.arrive().map_err(|InvalidFrame(why)| Untaken::Nonsense(why))?;
        self.hear(arrived).await
    }

    /// Handles a frame.
    pub(crate) async fn hear(&self, arrived: Arrived) -> Result<(), Untaken> {
        let Arrived { batch, output, about } = arrived;
        let link = self.number;
        if let Some(about) = about {
            self.introduce(batch.worker, about.bounded());
        }
        if !output.is_empty() {
            // First: after the report of a job's end its output would be ignored.
            let printed = Urgent::Printed { link, worker: batch.worker, output };
            self.handle.urgent(printed).await.map_err(|_| Untaken::Closed)?;
        }
        if batch.number.0 == 0 {
            return Ok(());
        }
        self.handle.urgent(Urgent::Heard { link, batch }).await.map_err(|_| Untaken::Closed)
    }

    /// A batch that had to be confirmed was sent.
    pub(crate) async fn sent(&self) {
        // If the server is stopping, no batch follows.
        let _ = self.handle.urgent(Urgent::Sent(self.number)).await;
    }

    /// One worker per connection: a second introduction replaces the first.
    fn introduce(&self, worker: WorkerId, about: About) {
        let mut introduced = self.introduced.lock().expect("no panic while it is locked");
        if let Some(before) = introduced.replace(worker).filter(|before| *before != worker) {
            self.services.roster.forget(self.number, before);
        }
        self.services.roster.introduce(self.number, worker, about);
    }

    /// Waits until the server closes this connection, and returns why.
    pub(crate) async fn hung_up(&self) -> HangUp {
        let mut hung_up = self.hung_up.clone();
        let why = hung_up.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        // The server has ended, or has dropped the connection without a word.
        why.unwrap_or(HangUp::Over)
    }

    /// The connection has broken.
    pub(crate) async fn close(self) {
        let introduced = self.introduced.into_inner().expect("no panic while it is locked");
        if let Some(worker) = introduced {
            self.services.roster.forget(self.number, worker);
        }
        let _ = self.handle.urgent(Urgent::Closed(self.number)).await;
    }
}

/// A connection of a worker that runs in this process.
pub struct Embedded {
    /// Frames from the worker.
    pub up: Sender<UpFrame>,
    /// Frames to the worker.
    pub down: Receiver<Delivery>,
}

impl Embedded {
    pub(crate) fn open(handle: Handle, services: Services) -> Self {
        let (up, mut frames) = channel::<UpFrame>(BATCHES_MAX);
        let (answers, down) = channel(BATCHES_MAX);
        tokio::spawn(async move {
            let scope = LinkScope { is_embedded: true, ..LinkScope::default() };
            let Some((link, mut outgoing)) = Link::open(handle, services, scope).await else {
                return;
            };
            loop {
                tokio::select! {
                    _ = link.hung_up() => break,
                    frame = frames.recv() => match frame {
                        Some(frame) => {
                            if link.take(frame).await.is_err() {
                                break;
                            }
                        }
                        None => break,
                    },
                    batch = outgoing.recv() => {
                        let Some((delivery, tell)) = batch else { break };
                        if answers.send(delivery).await.is_err() {
                            break;
                        }
                        if tell {
                            link.sent().await;
                        }
                    }
                }
            }
            link.close().await;
        });
        Self { up, down }
    }
}
