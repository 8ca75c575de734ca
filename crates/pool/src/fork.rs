//! `join`: runs two closures, possibly in parallel.
//!
//! The second closure lies on the caller's stack while the first runs, and its address is among the
//! worker's forks. If it is still private afterwards, it is called like any function. If it was
//! exposed, the caller takes it back, unless a thief was faster. Then the caller waits, and
//! meanwhile runs only descendants of that fork: see [`Local::wait`].
#![expect(unsafe_code, reason = "a closure on the stack of one thread is run by another")]

use std::any::Any;
use std::cell::UnsafeCell;
use std::mem::{self, ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::{self, NonNull};

use crate::current;
use crate::global;
use crate::local::Local;
use crate::protocol::ancestry::{Origin, WaitTarget, WorkId};
use crate::protocol::deque::Theft;
use crate::protocol::latch::Latch;
use crate::protocol::sync;
use crate::raw_task::contain;

/// The start of every fork in memory.
#[repr(C)]
pub(crate) struct Header {
    /// Runs the fork of that worker, which a thief must have taken.
    run: unsafe fn(NonNull<Header>, &Local<'_>, usize),
}

/// A fork that was stolen from another worker.
pub(crate) struct Stolen {
    fork: NonNull<Header>,
    owner: usize,
    /// The work that its owner executes.
    within: Option<WorkId>,
}

impl Stolen {
    /// Steals the oldest fork that the owner has exposed, if `permitted` accepts the work that the
    /// owner executes.
    pub(crate) fn take(
        local: &Local<'_>,
        owner: usize,
        permitted: impl Fn(Option<WorkId>) -> bool,
    ) -> Option<Self> {
        let shared = local.core.worker(owner);
        let mut within = None;
        let theft = shared.forks.steal(|| {
            // If the fork can be taken after this, it was there at this moment, and its owner
            // executed this.
            within = shared.ancestry.current();
            permitted(within)
        });
        match theft {
            Theft::Taken(fork) => {
                if shared.forks.is_empty() {
                    shared.request_work();
                    // Its owner may be waiting, and could not help with anything until now. This
                    // fence stands between the theft and the check for waiting workers; it pairs
                    // with the one in `Waiters::wait`.
                    sync::fence();
                    local.core.call_waiters();
                }
                local.count_theft(owner, 1);
                let fork = NonNull::new(fork).expect("only forks are pushed");
                Some(Self { fork, owner, within })
            }
            Theft::Empty => {
                if permitted(shared.ancestry.current()) {
                    shared.request_work();
                }
                None
            }
            Theft::Refused | Theft::Lost => None,
        }
    }

    /// What waits for this fork, and within which work it was made.
    pub(crate) fn origin(&self) -> Origin {
        Origin { target: WaitTarget::of(self.fork.as_ptr()), within: self.within }
    }

    pub(crate) fn run(self, local: &Local<'_>) {
        // SAFETY: its owner waits until it is done, which it is not, since we alone have taken it.
        let run = unsafe { self.fork.as_ref() }.run;
        // SAFETY: as above; and the function is the one that was stored with this very fork.
        unsafe { run(self.fork, local, self.owner) }
    }
}

#[repr(C)]
struct Fork<B, R> {
    header: Header,
    latch: Latch,
    body: UnsafeCell<ManuallyDrop<B>>,
    result: UnsafeCell<MaybeUninit<Result<R, Box<dyn Any + Send>>>>,
}

impl<B: FnOnce() -> R, R> Fork<B, R> {
    /// # Safety
    /// The pointer is that of a `Fork<B, R>` which only the calling thief has taken.
    unsafe fn run(fork: NonNull<Header>, local: &Local<'_>, owner: usize) {
        let fork = fork.cast::<Self>();
        // SAFETY: the owner keeps it in place until the latch is done.
        let this = unsafe { fork.as_ref() };
        // SAFETY: the thief alone has it; the owner touches it only if it takes the fork back.
        let body = unsafe { &mut *this.body.get() };
        // SAFETY: taken once, here; the owner has lost the fork.
        let body = unsafe { ManuallyDrop::take(body) };
        let outcome = catch_unwind(AssertUnwindSafe(body));
        // SAFETY: the owner reads it only after the latch is done.
        unsafe { &mut *this.result.get() }.write(outcome);
        // From here on the fork may be gone.
        if this.latch.done() {
            local.core.unpark(owner);
        }
    }

    /// # Safety
    /// The fork was taken back by its owner, so that no other thread has it.
    unsafe fn body(&self) -> B {
        // SAFETY: no other thread has it.
        let body = unsafe { &mut *self.body.get() };
        // SAFETY: taken once: only the thread that has the fork calls this, and then the fork ends.
        unsafe { ManuallyDrop::take(body) }
    }

    /// Waits until the thief has finished it.
    fn wait(&self, local: &Local<'_>) {
        local.wait(&self.latch, WaitTarget::of(self));
    }

    /// # Safety
    /// The latch is done, and the result was not taken before.
    unsafe fn result(&self) -> Result<R, Box<dyn Any + Send>> {
        // SAFETY: the thief is done with it.
        let result = unsafe { &*self.result.get() };
        // SAFETY: the thief has written it before it marked the latch done.
        unsafe { result.assume_init_read() }
    }
}

/// Calls both closures, possibly in parallel, and returns both results.
///
/// Another thread of the pool may steal the second closure; if none does, this costs a few stores
/// more than calling one after the other. A panic in either is passed on when both have finished;
/// if both panic, the first one's is.
///
/// Outside of any pool, this runs in the [global pool](crate::Pool::global).
///
/// ```
/// fn fib(n: u64) -> u64 {
///     if n < 2 {
///         return n;
///     }
///     let (a, b) = filch_pool::join(|| fib(n - 1), || fib(n - 2));
///     a + b
/// }
/// assert_eq!(fib(20), 6765);
/// ```
#[inline(always)]
pub fn join<A, B, RA, RB>(a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA + Send,
    B: FnOnce() -> RB + Send,
    RA: Send,
    RB: Send,
{
    current::with(|local| match local {
        Some(local) => fork(local, a, b),
        None => elsewhere(a, b),
    })
}

#[cold]
#[inline(never)]
fn elsewhere<A, B, RA, RB>(a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA + Send,
    B: FnOnce() -> RB + Send,
    RA: Send,
    RB: Send,
{
    global::pool().install(|| join(a, b))
}

#[inline(always)]
fn fork<A, B, RA, RB>(local: &Local<'_>, a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA,
    B: FnOnce() -> RB + Send,
    RB: Send,
{
    let copy = Copied::of(&b);
    let fork = Fork {
        header: Header { run: Fork::<B, RB>::run },
        latch: Latch::new(),
        body: UnsafeCell::new(ManuallyDrop::new(b)),
        result: UnsafeCell::new(MaybeUninit::uninit()),
    };
    let header = ptr::from_ref(&fork).cast_mut().cast::<Header>();
    let Some(position) = local.push_fork(header) else { return in_turn(a, &fork) };
    let unwinding = Unwinding { local, fork: &fork, position };
    let first = a();
    #[expect(clippy::mem_forget, reason = "`a` has not panicked")]
    mem::forget(unwinding);
    if local.pop_fork(position) {
        // SAFETY: it was still private, and is not used any more; what is dropped with it is not
        // `b`.
        let body = unsafe { copy.into_body(&fork) };
        return (first, body());
    }
    (first, collect(local, &fork))
}

/// A second copy of the bytes of the second closure, which need not be in memory: the bytes of the
/// fork are written in small pieces, and reading them back in one large piece so soon is slow. Only
/// one of the two copies is ever used as a closure.
struct Copied<B>(MaybeUninit<B>);

impl<B> Copied<B> {
    /// Larger closures are not worth a copy.
    const IS_WORTH_IT: bool = size_of::<B>() <= 4 * size_of::<usize>();

    #[inline(always)]
    fn of(body: &B) -> Self {
        if !Self::IS_WORTH_IT {
            return Self(MaybeUninit::uninit());
        }
        // SAFETY: bytes that can be a closure can be bytes that need not be one.
        Self(unsafe { ptr::from_ref(body).cast::<MaybeUninit<B>>().read() })
    }

    /// # Safety
    /// It is the copy of this fork's closure, which no other thread has, and which is not used any
    /// more.
    #[inline(always)]
    unsafe fn into_body<R>(self, fork: &Fork<B, R>) -> B
    where
        B: FnOnce() -> R,
    {
        if Self::IS_WORTH_IT {
            // SAFETY: it was filled, and the other one is not used.
            unsafe { self.0.assume_init() }
        } else {
            // SAFETY: as promised.
            unsafe { fork.body() }
        }
    }
}

/// There was no room for one more fork, so the closures are called one after the other.
#[cold]
#[inline(never)]
fn in_turn<A: FnOnce() -> RA, B: FnOnce() -> RB, RA, RB>(a: A, fork: &Fork<B, RB>) -> (RA, RB) {
    // SAFETY: it was never pushed.
    let body = unsafe { fork.body() };
    (a(), body())
}

/// The result of a fork that was exposed.
#[cold]
#[inline(never)]
fn collect<B: FnOnce() -> R, R>(local: &Local<'_>, fork: &Fork<B, R>) -> R {
    if local.reclaim_fork(ptr::from_ref(fork).cast_mut().cast()) {
        // SAFETY: it was exposed, but no thief took it.
        let body = unsafe { fork.body() };
        return body();
    }
    fork.wait(local);
    // SAFETY: we have waited for it, and this is the only place that takes it if `a` did not panic.
    match unsafe { fork.result() } {
        Ok(value) => value,
        Err(panic) => resume_unwind(panic),
    }
}

/// If the first closure panics, the second must not outlive the stack: it is dropped if it was not
/// stolen, and waited for otherwise. If it panics as well, its panic is dropped.
struct Unwinding<'a, B: FnOnce() -> R, R> {
    local: &'a Local<'a>,
    fork: &'a Fork<B, R>,
    position: usize,
}

impl<B: FnOnce() -> R, R> Drop for Unwinding<'_, B, R> {
    #[cold]
    fn drop(&mut self) {
        let header = ptr::from_ref(self.fork).cast_mut().cast();
        if self.local.pop_fork(self.position) || self.local.reclaim_fork(header) {
            // SAFETY: we have taken it back.
            let body = unsafe { self.fork.body() };
            contain(|| drop(body));
        } else {
            self.fork.wait(self.local);
            // SAFETY: we have waited for it, and nothing else takes it while `a` panics.
            let result = unsafe { self.fork.result() };
            contain(|| drop(result));
        }
    }
}
