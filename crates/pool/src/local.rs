//! The private state of one worker, and how it exposes work on request.
//!
//! Forks are private at first, so that making one costs a few plain stores. The owner takes the
//! newest first. As the oldest is exposed first, a fork that its owner does not find among the
//! private ones is the newest of the exposed ones, or it was stolen: taking it back is one `pop`,
//! never a search. The oldest fork is also the largest part of a tree of work, so one theft keeps a
//! thief busy for long.
//!
//! *Promotion.* Beside the private forks stands one word, the limit: a fork compares its position
//! with it, and that comparison is all that happens as long as no other worker wants work. A thief
//! that finds nothing to take stores zero there. The next fork notices, and half of the private
//! forks, the oldest, move to the deque that thieves can reach.
//!
//! *The window.* Private forks are hidden while their owner computes: a thief may take a short
//! fork, come back, and find nothing, though a long one is hidden behind the leaf that the owner
//! computes. So while a worker sleeps, searches or has just stolen, not one but the next eight
//! forks are exposed, or as many as there are workers if these are more. When eight forks were made
//! and none was stolen, they stay private again.
//!
//! Tasks are exposed from the start, oldest first, except for the newest one in the `next` slot:
//! the spawning thread may take any time until it comes back to them.

use std::cell::Cell;
use std::ptr;

use crate::core::Core;
use crate::events::PoolEventKind;
use crate::fork;
use crate::protocol::ancestry::Origin;
use crate::protocol::ring::CAPACITY;
use crate::protocol::sync;
use crate::random::Random;
use crate::raw_task::Task;
use crate::reactor::Woken;
use crate::worker_shared::WorkerShared;

/// How many private forks one worker can have; a deeper one is a plain call.
const FORKS: usize = 1024;

/// When another worker wants work, this many forks in a row are exposed: a thief that has taken a
/// short one finds the next, even if the owner computes a long leaf by then and exposes none.
const WINDOW: usize = 8;

/// The most exposures in a row that wake no worker.
const BACKOFF_MAX: u32 = 4096;

pub(crate) struct Local<'c> {
    /// Position of the oldest private fork. Only grows, from one: a limit of zero is a request for
    /// work.
    head: Cell<usize>,
    /// One past the newest.
    tail: Cell<usize>,
    forks: [Cell<*mut fork::Header>; FORKS],
    pub(crate) shared: &'c WorkerShared,
    pub(crate) core: &'c Core,
    pub(crate) index: usize,
    pub(crate) random: Random,
    /// How often it has looked for work.
    pub(crate) tick: Cell<u32>,
    /// How many tasks in a row came from the `next` slot.
    pub(crate) streak: Cell<u32>,
    /// Whether it counts as searching.
    pub(crate) searching: Cell<bool>,
    /// Whether it is waking futures whose I/O is ready.
    is_delivering: Cell<bool>,
    /// The value of `stolen_from` when it was last checked.
    stolen_from: Cell<u64>,
    /// Whether a worker was woken for what was exposed last.
    has_woken: Cell<bool>,
    /// How many exposures wake no worker after the next wasted wake.
    backoff: Cell<u32>,
    /// How many of these are left.
    backoff_left: Cell<u32>,
    /// How many more forks are exposed although no worker wants one now.
    window: Cell<usize>,
    /// The value of `stolen_from` when the window was last set.
    stolen_before: Cell<u64>,
}

impl<'c> Local<'c> {
    pub(crate) fn new(core: &'c Core, index: usize) -> Self {
        // The previous worker in this slot may have left another limit.
        core.worker(index).set_limit(0);
        Self {
            head: Cell::new(1),
            tail: Cell::new(1),
            forks: [const { Cell::new(ptr::null_mut()) }; FORKS],
            shared: core.worker(index),
            core,
            index,
            random: Random::new(core.seed.wrapping_add(index as u64)),
            tick: Cell::new(0),
            streak: Cell::new(0),
            searching: Cell::new(false),
            is_delivering: Cell::new(false),
            stolen_from: Cell::new(core.worker(index).counters.stolen_from.get()),
            has_woken: Cell::new(false),
            backoff: Cell::new(0),
            backoff_left: Cell::new(0),
            window: Cell::new(0),
            stolen_before: Cell::new(core.worker(index).counters.stolen_from.get()),
        }
    }

    /// Whether it is a worker of that pool.
    pub(crate) fn is_of(&self, core: &Core) -> bool {
        ptr::eq(self.core, core)
    }

    /// Notifies the watchers.
    pub(crate) fn notify(&self, kind: PoolEventKind) {
        self.core.watchers.notify(Some(self.index), kind);
    }

    /// Adds a fork and returns its position; none if there is no room, and then it has to be a
    /// plain call.
    #[inline(always)]
    pub(crate) fn push_fork(&self, fork: *mut fork::Header) -> Option<usize> {
        let position = self.tail.get();
        debug_assert!(position - self.head.get() < FORKS, "each has a place of its own");
        self.forks[position % FORKS].set(fork);
        self.tail.set(position.wrapping_add(1));
        (!self.shared.has_reached_limit(position) || self.make_room()).then_some(position)
    }

    /// Takes back the newest fork, if it is still private. The position is passed rather than read:
    /// a word that was just written takes longest to be read again.
    #[inline(always)]
    pub(crate) fn pop_fork(&self, position: usize) -> bool {
        let is_there = self.head.get() <= position;
        if is_there {
            // Not if it was exposed: the end never moves below what is exposed.
            debug_assert_eq!(self.tail.get(), position + 1, "the newest fork ends first");
            self.tail.set(position);
        }
        is_there
    }

    #[cold]
    #[inline(never)]
    fn make_room(&self) -> bool {
        self.expose();
        let has_room = self.tail.get() - self.head.get() < FORKS;
        if !has_room {
            self.tail.set(self.tail.get() - 1);
        }
        has_room
    }

    /// Takes back the newest fork, which is exposed; false if it was stolen.
    pub(crate) fn reclaim_fork(&self, fork: *mut fork::Header) -> bool {
        let popped = self.shared.forks.pop();
        if let Some(newest) = popped {
            assert_eq!(newest, fork, "the newest exposed fork is the one that ends");
            self.took_back();
        } else {
            self.was_stolen_from();
        }
        // One fewer is exposed now, so the next fork will be.
        self.shared.lower_limit(self.tail.get());
        popped.is_some()
    }

    /// The owner does what it exposed last itself.
    fn took_back(&self) {
        if !self.has_woken.get() {
            return;
        }
        let stolen = self.shared.counters.stolen_from.get();
        if self.stolen_from.replace(stolen) != stolen {
            self.was_stolen_from();
        } else {
            self.has_woken.set(false);
            self.shared.counters.wasted_wakes.add(1);
            self.backoff.set((self.backoff.get() * 2).clamp(1, BACKOFF_MAX));
            self.backoff_left.set(self.backoff.get());
        }
    }

    /// What was exposed was stolen, so waking workers is worthwhile.
    fn was_stolen_from(&self) {
        self.has_woken.set(false);
        self.backoff.set(0);
        self.backoff_left.set(0);
    }

    /// Queues a task that this worker spawned, or one that it took for itself.
    pub(crate) fn spawn(&self, task: Task) {
        if let Some(older) = self.shared.next.replace(task) {
            self.push_task(older);
        }
        if self.shared.is_work_requested() {
            self.expose();
        }
    }

    /// Queues a future of this pool that was woken on this thread.
    pub(crate) fn ready(&self, task: Task) {
        if self.is_delivering.get() {
            self.push_task(task);
        } else {
            self.spawn(task);
        }
    }

    /// Wakes the futures whose I/O is ready. Those of this pool are queued in this order, without
    /// asking others to help: the worker is about to look for work, and shares it then.
    pub(crate) fn deliver(&self, woken: Woken) {
        self.is_delivering.set(true);
        woken.wake();
        self.is_delivering.set(false);
    }

    /// Adds a task behind all others.
    pub(crate) fn push_task(&self, task: Task) {
        let refused = if self.shared.tasks.room() == 0 { self.overflow() } else { Vec::new() };
        self.shared.tasks.push(task);
        // Only now: dropped tasks may spawn, and take the room that was made.
        drop(refused);
    }

    /// Moves the oldest half of its tasks to the shared queue. They are handed back if the pool is
    /// closed.
    #[cold]
    #[inline(never)]
    fn overflow(&self) -> Vec<Task> {
        let mut tasks = Vec::with_capacity(CAPACITY / 2);
        while tasks.len() < CAPACITY / 2 {
            let missing = CAPACITY / 2 - tasks.len();
            if self.shared.tasks.steal(|there| there.min(missing), |task| tasks.push(task)) == 0 {
                break;
            }
        }
        let count = tasks.len();
        let refused = self.core.shared_queue.overflow(tasks.into_iter());
        self.shared.counters.overflowed.add(count as u64);
        self.notify(PoolEventKind::Overflow { count });
        self.offer();
        refused
    }

    /// Exposes the oldest half of the private forks.
    #[cold]
    #[inline(never)]
    pub(crate) fn expose(&self) {
        if let Some(script) = self.core.script() {
            script.point(self);
            return;
        }
        if self.core.is_alone() {
            self.shared.set_limit(self.head.get() + FORKS - 1);
            return;
        }
        let was_asked = self.shared.is_work_requested();
        let exposed = self.promote();
        if !self.shared.is_exposed() && self.shared.next.is_empty() {
            // The worker that requested work has taken everything meanwhile, and may have gone to
            // sleep since. The request stays, and the next fork or task is offered.
            return;
        }
        let is_granted = if exposed > 0 {
            self.is_enough(was_asked)
        } else {
            // Tasks alone do not satisfy the request.
            !was_asked || !self.shared.forks.is_empty()
        };
        // Never more than there are slots, even if the exposed forks were taken only now.
        let most = self.head.get() + FORKS - 1;
        self.shared.set_limit(if is_granted { most } else { self.tail.get().min(most) });
        self.offer();
        // A thief that found the request in place did not renew it. There was a fence since.
        if exposed > 0 && self.shared.forks.is_empty() {
            self.shared.request_work();
        }
    }

    /// Whether the next fork can be private, after some were exposed. Its other half may take any
    /// time, so it cannot as long as a worker wants work or comes for it, nor for a while after
    /// that.
    fn is_enough(&self, was_asked: bool) -> bool {
        let stolen = self.shared.counters.stolen_from.get();
        let was_robbed = self.stolen_before.replace(stolen) != stolen;
        self.window.set(if was_asked || was_robbed || self.core.has_idle() {
            WINDOW
        } else {
            self.window.get().saturating_sub(1)
        });
        self.window.get() == 0 || self.shared.forks.len() >= WINDOW.max(self.core.threads)
    }

    /// Whether the next fork would be exposed, because another worker could want it.
    pub(crate) fn is_wanted(&self) -> bool {
        self.shared.has_reached_limit(self.tail.get()) && !self.core.is_alone()
    }

    /// Exposes half of the private forks, and returns how many.
    pub(crate) fn promote(&self) -> usize {
        let exposed = self.expose_forks();
        if exposed > 0 {
            self.shared.counters.promotions.add(exposed as u64);
            self.notify(PoolEventKind::Expose { count: exposed });
        }
        exposed
    }

    fn expose_forks(&self) -> usize {
        let (head, tail) = (self.head.get(), self.tail.get());
        let count = (tail - head).div_ceil(2).min(self.shared.forks.room());
        for position in head..head + count {
            self.shared.forks.push(self.forks[position % FORKS].get());
        }
        self.head.set(head + count);
        count
    }

    /// Wakes a worker, or a waiting one, for what was exposed here.
    fn offer(&self) {
        if self.backoff_left.get() > 0 {
            self.backoff_left.set(self.backoff_left.get() - 1);
            self.core.monitor.request_check(self.core);
            // No worker was woken, so the request stays.
            self.shared.request_work();
            // Stands between the exposure and the check for waiting workers; waking includes such a
            // fence.
            sync::fence();
        } else if self.core.wake_one() {
            self.has_woken.set(true);
            self.shared.counters.wakes.add(1);
        }
        self.core.call_waiter(self.index);
    }

    /// Takes the oldest of its tasks.
    pub(crate) fn pop_task(&self) -> Option<Task> {
        let task = self.shared.tasks.pop();
        if self.shared.tasks.is_empty() {
            self.took_back();
        }
        task
    }

    /// Takes the task in the `next` slot.
    pub(crate) fn take_next(&self) -> Option<Task> {
        let task = self.shared.next.take();
        if task.is_some() {
            self.took_back();
        }
        task
    }

    /// Runs a stolen fork.
    pub(crate) fn run_fork(&self, fork: fork::Stolen) {
        self.shared.counters.executed.add(1);
        self.run_with_origin(fork.origin(), || fork.run(self));
    }

    /// Runs `run`, which does not panic: all forks made meanwhile descend from it.
    pub(crate) fn run_with_origin(&self, origin: Origin, run: impl FnOnce()) {
        if !self.core.waiters.is_empty() {
            // Perhaps they wait for this. When they went to sleep, they requested work only from
            // the workers that executed it then.
            self.shared.request_work();
        }
        self.shared.ancestry.run(self.index, origin, run);
    }

    /// Whether it has any forks, private or exposed.
    pub(crate) fn has_forks(&self) -> bool {
        self.tail.get() > self.head.get() || !self.shared.forks.is_empty()
    }

    /// Exposes all forks, as far as there is room: this thread will not come back soon.
    pub(crate) fn expose_all(&self) {
        while self.tail.get() > self.head.get() {
            let head = self.head.get();
            self.expose();
            if head == self.head.get() {
                break;
            }
        }
    }

    /// Hands all tasks over to others before this thread waits. One of them may be what it waits
    /// for; and if the pool is closed meanwhile, the shared queue drops them, which a waiting
    /// worker could not.
    pub(crate) fn hand_over_tasks(&self) {
        let mut tasks = Vec::new();
        tasks.extend(std::iter::from_fn(|| self.shared.tasks.pop()));
        tasks.extend(self.shared.next.take());
        if !tasks.is_empty() {
            drop(self.core.shared_queue.overflow(tasks.into_iter()));
            self.core.wake_one();
        }
    }
}
