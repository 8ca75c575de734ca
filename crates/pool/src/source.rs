//! A socket that the reactor watches, and the futures that wait until it is ready.
//!
//! The reactor asks the system for one event at a time, and only while a future waits: a socket
//! that is not waited for causes no wakes. An event ends the wait of all futures for that side;
//! each tries again.
#![expect(unsafe_code, reason = "the system watches a number, which must be that of an open file")]

use std::future::Future;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use polling::{Event, Poller};

use crate::protocol::sync::{self, Mutex};
use crate::reactor::Reactor;
use crate::slots::Slots;

/// A type that can be watched: its file descriptor stays the same and stays open as long as the
/// value exists and is only used through `&`.
///
/// Your own type that contains a socket can be watched as well:
///
/// ```
/// use std::os::fd::{AsFd, BorrowedFd};
/// use std::os::unix::net::UnixDatagram;
/// use filch_pool::{block_on, net::{Async, IoSafe}};
///
/// struct Mailbox {
///     socket: UnixDatagram,
/// }
///
/// impl AsFd for Mailbox {
///     fn as_fd(&self) -> BorrowedFd<'_> {
///         self.socket.as_fd()
///     }
/// }
///
/// // SAFETY: the socket is private, and nothing here replaces or closes it before the mailbox is
/// // dropped.
/// unsafe impl IoSafe for Mailbox {}
///
/// let (friend, socket) = UnixDatagram::pair()?;
/// let mailbox = Async::new(Mailbox { socket })?;
/// friend.send(b"hello")?;
/// let mut letter = [0; 8];
/// let length = block_on(mailbox.read_with(|mailbox| mailbox.socket.recv(&mut letter)))?;
/// assert_eq!(&letter[..length], b"hello");
/// # std::io::Result::Ok(())
/// ```
///
/// # Safety
/// [`AsFd::as_fd`] returns the same open file each time, and no safe use of `&self` closes or
/// replaces it.
pub unsafe trait IoSafe: AsFd {}

// SAFETY: it owns its file, closes it when dropped, and has no way to replace it through `&`.
unsafe impl IoSafe for std::net::TcpStream {}
// SAFETY: as above.
unsafe impl IoSafe for std::net::TcpListener {}
// SAFETY: as above.
unsafe impl IoSafe for std::net::UdpSocket {}
// SAFETY: as above.
unsafe impl IoSafe for std::os::unix::net::UnixStream {}
// SAFETY: as above.
unsafe impl IoSafe for std::os::unix::net::UnixListener {}
// SAFETY: as above.
unsafe impl IoSafe for std::os::unix::net::UnixDatagram {}
// SAFETY: as above.
unsafe impl IoSafe for std::os::fd::OwnedFd {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Read,
    Write,
}

const SIDES: [Side; 2] = [Side::Read, Side::Write];

pub(crate) struct Source {
    key: usize,
    fd: RawFd,
    state: Mutex<State>,
}

struct State {
    /// The descriptor is that of an open, registered file. Changes once, to false, before the file
    /// can be closed; it does not change while the lock is held.
    is_registered: bool,
    /// The pool is closed.
    is_closed: bool,
    waiting: [Waiting; 2],
}

/// The futures that wait for one side.
struct Waiting {
    /// How many events there were: a future that started to wait before the last one is ready.
    events: u64,
    wakers: Slots<Waker>,
}

impl Source {
    pub(crate) fn new(key: usize, fd: RawFd) -> Self {
        let waiting = || Waiting { events: 0, wakers: Slots::new() };
        let state =
            State { is_registered: false, is_closed: false, waiting: [waiting(), waiting()] };
        Self { key, fd, state: Mutex::new(state) }
    }

    /// Handles an event from the system. Wakers of ready futures go into `ready`. Returns for how
    /// many sides no future waits any more.
    pub(crate) fn fire(&self, poller: &Poller, event: Event, ready: &mut Vec<Waker>) -> usize {
        let mut state = sync::lock(&self.state);
        let mut emptied = 0;
        for side in SIDES {
            let is_ready = match side {
                Side::Read => event.readable,
                Side::Write => event.writable,
            };
            let waiting = &mut state.waiting[side as usize];
            if is_ready && !waiting.wakers.is_empty() {
                waiting.events += 1;
                ready.extend(waiting.wakers.drain());
                emptied += 1;
            }
        }
        // An event ends the interest in both sides. If renewing it failed, the wait would never
        // end.
        if self.ask(&state, poller).is_err() {
            emptied += state.wake_all(ready);
        }
        emptied
    }

    /// The pool is closed: wakes all waiting futures, which return an error.
    pub(crate) fn close(&self, ready: &mut Vec<Waker>) {
        let mut state = sync::lock(&self.state);
        state.is_closed = true;
        state.wake_all(ready);
    }

    /// Asks the system for the next event, if any future waits.
    fn ask(&self, state: &State, poller: &Poller) -> io::Result<()> {
        let wants = |side: Side| !state.waiting[side as usize].wakers.is_empty();
        let interest = Event::new(self.key, wants(Side::Read), wants(Side::Write));
        if !state.is_registered || !(interest.readable || interest.writable) {
            return Ok(());
        }
        // SAFETY: it is registered, and so open; and it stays so while we have the state.
        let file = unsafe { BorrowedFd::borrow_raw(self.fd) };
        poller.modify(file, interest)
    }
}

impl State {
    fn wake_all(&mut self, ready: &mut Vec<Waker>) -> usize {
        let mut emptied = 0;
        for waiting in self.waiting.iter_mut().filter(|waiting| !waiting.wakers.is_empty()) {
            waiting.events += 1;
            ready.extend(waiting.wakers.drain());
            emptied += 1;
        }
        emptied
    }
}

/// An owned value that is watched; it is unregistered before it is closed.
pub(crate) struct Watched<T: IoSafe> {
    /// None only after it was taken out, at the very end.
    io: Option<T>,
    source: Arc<Source>,
    reactor: Arc<Reactor>,
}

impl<T: IoSafe> Watched<T> {
    pub(crate) fn new(reactor: &Arc<Reactor>, io: T) -> io::Result<Self> {
        let source = reactor.register(io.as_fd().as_raw_fd())?;
        let watched = Self { io: Some(io), source, reactor: Arc::clone(reactor) };
        let mut state = sync::lock(&watched.source.state);
        // SAFETY: the file is that of `io`, which `watched` owns: it gives out no `&mut`, so that
        // the file stays the same and open until `release`, which takes it from the poller first.
        // The poller lives as long, as `watched` has the reactor.
        unsafe { reactor.poller().add(watched.source.fd, Event::none(watched.source.key)) }?;
        state.is_registered = true;
        drop(state);
        Ok(watched)
    }

    pub(crate) fn get(&self) -> &T {
        self.io.as_ref().expect("it is there until the end")
    }

    pub(crate) fn into_inner(mut self) -> T {
        self.release();
        self.io.take().expect("it is there until the end")
    }

    fn release(&mut self) {
        let Some(io) = &self.io else { return };
        let mut state = sync::lock(&self.source.state);
        if mem::replace(&mut state.is_registered, false) {
            // Fails only if it is not registered.
            let _ = self.reactor.poller().delete(io.as_fd());
        }
        drop(state);
        self.reactor.unregister(self.source.key);
    }

    /// A future that resolves when that side is ready, or may be.
    pub(crate) fn ready(&self, side: Side) -> Ready<'_, T> {
        Ready { watched: self, side, ticket: None }
    }
}

impl<T: IoSafe> Drop for Watched<T> {
    fn drop(&mut self) {
        self.release();
    }
}

/// Waits until one side of a source is ready.
pub(crate) struct Ready<'a, T: IoSafe> {
    watched: &'a Watched<T>,
    side: Side,
    ticket: Option<Ticket>,
}

/// Identifies our waker, unless there was an event since.
struct Ticket {
    events: u64,
    number: usize,
}

impl<T: IoSafe> Future for Ready<'_, T> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let watched = self.watched;
        let (source, reactor) = (&watched.source, &watched.reactor);
        let mut state = sync::lock(&source.state);
        if state.is_closed {
            return Poll::Ready(Err(reactor.closed()));
        }
        let waiting = &mut state.waiting[self.side as usize];
        if let Some(ticket) = &self.ticket {
            if waiting.events != ticket.events {
                drop(state);
                self.ticket = None;
                return Poll::Ready(Ok(()));
            }
            let there = waiting
                .wakers
                .get_mut(ticket.number)
                .filter(|there| !there.will_wake(context.waker()));
            let old = there.map(|there| mem::replace(there, context.waker().clone()));
            drop(state);
            // Not under the lock: dropping a waker may run any code.
            drop(old);
            return Poll::Pending;
        }
        let is_first = waiting.wakers.is_empty();
        let events = waiting.events;
        let number = waiting.wakers.insert(context.waker().clone());
        if is_first {
            reactor.add_waiting(1);
        }
        let asked = source.ask(&state, reactor.poller());
        drop(state);
        self.ticket = Some(Ticket { events, number });
        // If this fails, dropping the ticket removes the waker.
        asked?;
        reactor.announce(false);
        Poll::Pending
    }
}

impl<T: IoSafe> Drop for Ready<'_, T> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        let mut state = sync::lock(&self.watched.source.state);
        let waiting = &mut state.waiting[self.side as usize];
        if waiting.events != ticket.events {
            return;
        }
        let waker = waiting.wakers.remove(ticket.number);
        if waker.is_some() && waiting.wakers.is_empty() {
            self.watched.reactor.remove_waiting(1);
        }
        drop(state);
        drop(waker);
    }
}
