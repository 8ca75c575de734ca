//! `scope`: tasks that borrow from the stack, and have all finished when it returns.
//!
//! A scope has its own queues, one per thread. Its owner and its helpers take the newest task of
//! their own queue, or else half of another. Other workers come to help through a task in the pool,
//! which is spawned only when one of them has requested work. So a thread that waits for a scope
//! runs nothing but tasks of the scope, and can always reach them.
#![expect(unsafe_code, reason = "tasks borrow from the stack of a caller that waits for them")]

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::cancel::{self, CancelToken};
use crate::current;
use crate::global;
use crate::local::Local;
use crate::protocol::ancestry::{Origin, WaitTarget, WorkId};
use crate::protocol::scope_count::ScopeCount;
use crate::protocol::sync::atomic::AtomicUsize;
use crate::protocol::sync::atomic::Ordering::{Relaxed, SeqCst};
use crate::protocol::sync::{self, Mutex};
use crate::raw_task::{Task, contain};
use crate::shared_queue::Priority;

/// Spawns tasks that may borrow anything that outlives `'scope`: see [`scope`].
pub struct Scope<'scope> {
    state: Arc<ScopeState>,
    /// Tasks are dropped within the scope, and the lifetime can neither grow nor shrink.
    borrows: PhantomData<fn(&'scope ()) -> &'scope ()>,
}

impl fmt::Debug for Scope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("tasks", &self.state.count.pending()).finish()
    }
}

/// What the owner of a scope and its helpers share.
struct ScopeState {
    /// The work that its owner executes.
    within: Option<WorkId>,
    count: ScopeCount,
    /// Helpers that were requested or are active.
    helpers: AtomicUsize,
    queues: Box<[CachePadded<ScopeQueue>]>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    token: CancelToken,
}

/// The queue of one thread.
#[derive(Default)]
struct ScopeQueue {
    tasks: Mutex<VecDeque<Task>>,
}

/// Calls `f` with a scope in which it can spawn tasks, and returns when all of them have finished.
/// They may borrow from the caller.
///
/// While it waits, the caller runs tasks of this scope and their forks, and nothing else. A panic
/// in `f` or in a task is passed on when all have finished; if there are several, the first.
/// Outside of any pool, this runs in the [global pool](crate::Pool::global).
///
/// ```
/// let words = ["steal", "half"];
/// let mut lengths = [0; 2];
/// filch_pool::scope(|s| {
///     for (word, length) in words.iter().zip(&mut lengths) {
///         s.spawn(move |_| *length = word.len());
///     }
/// });
/// assert_eq!(lengths, [5, 4]);
/// ```
pub fn scope<'scope, R: Send>(f: impl FnOnce(&Scope<'scope>) -> R + Send) -> R {
    current::with(|local| match local {
        Some(local) => run(local, f),
        None => global::pool().install(|| scope(f)),
    })
}

fn run<'scope, R>(local: &Local<'_>, f: impl FnOnce(&Scope<'scope>) -> R) -> R {
    let state = Arc::new(ScopeState {
        within: local.shared.ancestry.current(),
        count: ScopeCount::new(),
        helpers: AtomicUsize::new(0),
        queues: (0..local.core.threads).map(|_| CachePadded::default()).collect(),
        panic: Mutex::new(None),
        token: CancelToken::new(),
    });
    let scope = Scope { state: Arc::clone(&state), borrows: PhantomData };
    let outcome = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    state.finish(local);
    let panic = sync::lock(&state.panic).take();
    match (outcome, panic) {
        (Ok(value), None) => value,
        (Err(panic), later) => {
            contain(|| drop(later));
            resume_unwind(panic)
        }
        (Ok(value), Some(panic)) => {
            contain(|| drop(value));
            resume_unwind(panic)
        }
    }
}

impl<'scope> Scope<'scope> {
    /// Runs `f` before the scope ends.
    pub fn spawn(&self, f: impl FnOnce(&Scope<'scope>) + Send + 'scope) {
        let this = ScopePtr(self);
        let body = move || this.call(f);
        // SAFETY: the scope ends only when its tasks have been run or dropped, and what they borrow
        // outlives the scope.
        let task = unsafe { Task::borrowing(body) };
        self.state.push(task);
    }

    /// Cancels the scope: its tasks that have not started never start.
    pub fn cancel(&self) {
        self.state.token.cancel();
    }

    /// Whether the scope was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.state.token.is_cancelled()
    }
}

/// A pointer to the scope, for a task that cannot outlive it.
struct ScopePtr<'scope>(*const Scope<'scope>);

// SAFETY: a scope is `Sync`: a reference to it may go to another thread.
unsafe impl Send for ScopePtr<'_> {}

impl<'scope> ScopePtr<'scope> {
    fn call(self, f: impl FnOnce(&Scope<'scope>)) {
        // SAFETY: the scope lies on the stack of its owner, or is one that an outer task was given,
        // and stays until this task has ended.
        let scope = unsafe { &*self.0 };
        let state = &scope.state;
        let body = || match state.token.is_cancelled() {
            true => drop(f),
            false => cancel::with_token(&state.token, || f(scope)),
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
            let mut first = sync::lock(&state.panic);
            if first.is_none() {
                *first = Some(panic);
            } else {
                // Not under the lock: dropping a panic may run any code.
                drop(first);
                contain(|| drop(panic));
            }
        }
    }
}

impl ScopeState {
    fn push(self: &Arc<Self>, task: Task) {
        current::with(|local| {
            let part = local.map_or(0, |local| local.index % self.queues.len());
            self.count.add(|| sync::lock(&self.queues[part].tasks).push_back(task));
            if let Some(local) = local {
                self.call_for_help(local);
            }
        });
    }

    /// If another worker wants work, requests a helper.
    fn call_for_help(self: &Arc<Self>, local: &Local<'_>) {
        let is_wanted = local.is_wanted() && self.count.is_queued();
        if is_wanted && self.helpers.load(Relaxed) + 1 < self.queues.len() {
            self.helpers.fetch_add(1, SeqCst);
            // They are woken for this task, even if tasks alone do not satisfy their request.
            local.shared.request_work();
            let state = Arc::clone(self);
            drop(local.core.submit(Task::new(move || state.help()), Priority::Normal));
        }
    }

    /// Runs tasks of this scope as long as there are any.
    fn help(self: &Arc<Self>) {
        current::with(|local| {
            let Some(local) = local else { return };
            loop {
                self.work(local, |task| self.run_with_origin(local, task));
                self.helpers.fetch_sub(1, SeqCst);
                // A thread that spawned may have counted on this helper after it had looked. Pairs
                // with the fence after every task that is added.
                sync::fence();
                if !self.count.is_queued() {
                    return;
                }
                self.helpers.fetch_add(1, SeqCst);
            }
        });
    }

    /// Runs a task so that the owner of the scope can find its forks.
    fn run_with_origin(&self, local: &Local<'_>, task: Task) {
        if local.has_forks() {
            // Those forks do not belong to the scope.
            return task.run();
        }
        local.run_with_origin(Origin { target: WaitTarget::of(self), within: self.within }, || {
            task.run();
        });
    }

    /// Runs all tasks that it finds.
    fn work(self: &Arc<Self>, local: &Local<'_>, run: impl Fn(Task)) {
        while let Some(task) = self.take(local) {
            self.call_for_help(local);
            run(task);
            // After this, nothing of the scope is touched but its shared state, which we hold.
            self.count.finished();
        }
    }

    /// Takes the newest task of its own queue, or else the oldest half of another.
    fn take(&self, local: &Local<'_>) -> Option<Task> {
        if !self.count.is_queued() {
            return None;
        }
        let count = self.queues.len();
        let own = local.index % count;
        let mine = sync::lock(&self.queues[own].tasks).pop_back();
        let task = mine.or_else(|| {
            (1..count).find_map(|offset| {
                let mut part = sync::lock(&self.queues[(own + offset) % count].tasks);
                let half = part.len().div_ceil(2);
                let mut taken: VecDeque<Task> = part.drain(..half).collect();
                drop(part);
                let first = taken.pop_front();
                if !taken.is_empty() {
                    sync::lock(&self.queues[own].tasks).append(&mut taken);
                }
                first
            })
        });
        if task.is_some() {
            self.count.started();
        }
        task
    }

    /// Runs the remaining tasks, and waits for those that others run.
    fn finish(self: &Arc<Self>, local: &Local<'_>) {
        local.wait_for(
            WaitTarget::of(&raw const **self),
            || self.count.is_over(),
            || self.work(local, Task::run),
            || self.count.sleep(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::sync::OnceLock;
    use crate::two_workers::{TwoWorkers, wait_until};

    /// Between taking a task and publishing it, a helper can be held up for long.
    #[test]
    fn a_worker_that_sleeps_before_a_task_of_its_scope_is_published_is_woken() {
        let pair = TwoWorkers::new();
        let (lent, taken) = (OnceLock::new(), OnceLock::new());
        let owner = |_: &Local<'_>| {
            scope(|s| {
                s.spawn(|_| pair.run_two_leaves());
                drop(lent.set(Arc::clone(&s.state)));
                wait_until(|| taken.get().is_some());
            });
        };
        let helper = |local: &Local<'_>| {
            wait_until(|| lent.get().is_some());
            let state = lent.get().expect("it is there");
            let task = state.take(local).expect("one was spawned");
            taken.set(()).expect("it is taken once");
            pair.until_waiting(0);
            state.run_with_origin(local, task);
            state.count.finished();
        };
        pair.run(&owner, &helper);
    }
}
