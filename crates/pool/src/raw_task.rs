//! A task: a closure, or a future that is ready to be polled, behind one pointer, to be run once or
//! dropped once; and the containers from which several threads can take one.
#![expect(unsafe_code, reason = "a pointer that owns a value of any type")]

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

use async_task::Runnable;

use crate::protocol::ring::Ring;
use crate::protocol::sync::atomic::AtomicPtr;
use crate::protocol::sync::atomic::Ordering::{AcqRel, Relaxed};
use crate::task_memory::{self, Large, Medium, Size, Small};

/// The start of every task in memory.
#[derive(Debug)]
#[repr(C, align(8))]
pub(crate) struct Header {
    /// Consumes the task, which the pointer must own.
    act: unsafe fn(NonNull<Header>, Act),
}

enum Act {
    Run,
    Drop,
}

/// A closure, or a future to be polled. [`Task::run`] runs it; otherwise dropping it drops what it
/// holds.
#[derive(Debug)]
pub(crate) struct Task(NonNull<Header>);

// SAFETY: a task is made of values that are `Send`, and is owned by the holder of the pointer.
unsafe impl Send for Task {}

/// Set in the pointer of a future, whose memory is laid out by `async_task`: both kinds of memory
/// are aligned to more than this.
const FUTURE: usize = 1;

#[repr(C)]
struct Closure<F> {
    header: Header,
    body: F,
}

/// Where a closure is stored.
enum Memory {
    Small,
    Medium,
    Large,
    /// Blocks are too small for it, or not aligned enough.
    Own,
}

impl<F: FnOnce()> Closure<F> {
    const MEMORY: Memory = if Self::fits::<Small>() {
        Memory::Small
    } else if Self::fits::<Medium>() {
        Memory::Medium
    } else if Self::fits::<Large>() {
        Memory::Large
    } else {
        Memory::Own
    };

    const fn fits<S>() -> bool {
        size_of::<Self>() <= size_of::<S>() && align_of::<Self>() <= align_of::<S>()
    }

    fn new(body: F) -> Self {
        Self { header: Header { act: act::<F> }, body }
    }

    /// Stores it where it stays until it is run or dropped.
    fn store(self) -> NonNull<Header> {
        let pointer = match Self::MEMORY {
            Memory::Small => self.store_in::<Small>(),
            Memory::Medium => self.store_in::<Medium>(),
            Memory::Large => self.store_in::<Large>(),
            Memory::Own => NonNull::from(Box::leak(Box::new(self))).cast(),
        };
        debug_assert_eq!(pointer.addr().get() & FUTURE, 0, "memory of ours is aligned");
        pointer
    }

    fn store_in<S: Size>(self) -> NonNull<Header> {
        assert!(Self::fits::<S>(), "a block of this size is enough");
        let block = NonNull::from(Box::leak(task_memory::allocate::<S>())).cast::<Self>();
        // SAFETY: the block is ours, is large enough and aligned, and holds nothing.
        unsafe { block.write(self) };
        block.cast()
    }

    /// Takes it out again, and frees its memory.
    ///
    /// # Safety
    /// The pointer came from [`Closure::store`] of this very type, and is not used any more.
    unsafe fn load(pointer: NonNull<Header>) -> Self {
        match Self::MEMORY {
            // SAFETY: as promised, and it was stored in a block of this size.
            Memory::Small => unsafe { Self::load_from::<Small>(pointer) },
            // SAFETY: as above.
            Memory::Medium => unsafe { Self::load_from::<Medium>(pointer) },
            // SAFETY: as above.
            Memory::Large => unsafe { Self::load_from::<Large>(pointer) },
            // SAFETY: it came from a box of this very type, and is owned.
            Memory::Own => *unsafe { Box::from_raw(pointer.cast::<Self>().as_ptr()) },
        }
    }

    /// # Safety
    /// As with [`Closure::load`], and it was stored in a block of this size.
    unsafe fn load_from<S: Size>(pointer: NonNull<Header>) -> Self {
        // SAFETY: it was written there, and is read once, as the pointer is not used any more.
        let closure = unsafe { pointer.cast::<Self>().read() };
        // SAFETY: it is the block that was leaked, and what it held was taken out.
        task_memory::free::<S>(unsafe { Box::from_raw(pointer.cast().as_ptr()) });
        closure
    }
}

impl Task {
    /// A closure. Its panic is dropped: a caller that needs it catches it inside.
    pub(crate) fn new<F: FnOnce() + Send + 'static>(body: F) -> Self {
        Self(Closure::new(body).store())
    }

    /// A closure that borrows.
    ///
    /// # Safety
    /// It is run or dropped before what it borrows ends.
    pub(crate) unsafe fn borrowing<'a, F: FnOnce() + Send + 'a>(body: F) -> Self {
        Self(Closure::new(body).store())
    }

    /// A future that is ready to be polled.
    pub(crate) fn from_runnable(runnable: Runnable) -> Self {
        let pointer = runnable.into_raw();
        assert_eq!(pointer.addr().get() & FUTURE, 0, "memory of futures is aligned");
        Self(pointer.cast().map_addr(|address| address | FUTURE))
    }

    /// Runs it. A panic does not leave this function.
    pub(crate) fn run(self) {
        self.act(Act::Run);
    }

    fn act(self, act: Act) {
        let pointer = self.into_raw();
        match as_future(pointer) {
            Some(future) => {
                // SAFETY: the pointer came from `into_raw` of a runnable, and `self` owned it.
                let runnable = unsafe { Runnable::<()>::from_raw(future) };
                contain(|| match act {
                    Act::Run => drop(runnable.run()),
                    Act::Drop => drop(runnable),
                });
            }
            None => {
                // SAFETY: it points to a closure's header, which is alive as `self` owned it.
                let function = unsafe { pointer.as_ref() }.act;
                // SAFETY: `self` owned the task, and is forgotten.
                unsafe { function(pointer, act) }
            }
        }
    }

    /// Only the pointer, which owns the task from now on.
    pub(crate) fn into_raw(self) -> NonNull<Header> {
        let pointer = self.0;
        #[expect(clippy::mem_forget, reason = "ownership goes on with the pointer")]
        mem::forget(self);
        pointer
    }

    /// Restores the task.
    ///
    /// # Safety
    /// The pointer came from [`Task::into_raw`], and no other task is made of it.
    pub(crate) unsafe fn from_raw(pointer: NonNull<Header>) -> Self {
        Self(pointer)
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let task = Self(self.0);
        task.act(Act::Drop);
    }
}

fn as_future(pointer: NonNull<Header>) -> Option<NonNull<()>> {
    let is_future = pointer.addr().get() & FUTURE != 0;
    let address = |pointer: NonNull<Header>| {
        std::num::NonZero::new(pointer.addr().get() & !FUTURE).expect("memory is not at zero")
    };
    is_future.then(|| pointer.cast().with_addr(address(pointer)))
}

/// # Safety
/// The pointer owns a `Closure<F>`.
unsafe fn act<F: FnOnce()>(pointer: NonNull<Header>, act: Act) {
    // SAFETY: the function was stored with a closure of this very type, and the pointer owns it.
    // Its memory is freed first, so that tasks which it spawns can use it.
    let Closure { body, .. } = unsafe { Closure::<F>::load(pointer) };
    contain(|| match act {
        Act::Run => body(),
        Act::Drop => drop(body),
    });
}

/// Calls `f`, which may panic, on a thread that has to continue in any case.
pub(crate) fn contain(f: impl FnOnce()) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(f)) else { return };
    if let Err(worse) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        #[expect(clippy::mem_forget, reason = "there is no end to it if this panics as well")]
        mem::forget(worse);
    }
}

/// Exposed tasks of one worker, oldest first.
pub(crate) struct TaskRing(Ring<Header>);

impl TaskRing {
    pub(crate) fn new() -> Self {
        Self(Ring::new())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many more fit. For the owner only.
    pub(crate) fn room(&self) -> usize {
        self.0.room()
    }

    /// Adds the newest. For the owner only, which has checked for room.
    pub(crate) fn push(&self, task: Task) {
        self.0.push(task.into_raw().as_ptr());
    }

    /// Takes the oldest. For the owner only.
    pub(crate) fn pop(&self) -> Option<Task> {
        self.0.pop().and_then(own)
    }

    /// Takes the oldest tasks, `count(how many there are)` of them.
    pub(crate) fn steal(
        &self,
        count: impl Fn(usize) -> usize,
        mut each: impl FnMut(Task),
    ) -> usize {
        let batch = self.0.steal(count);
        batch.as_slice().iter().copied().filter_map(own).for_each(&mut each);
        batch.as_slice().len()
    }
}

/// A slot for one task, the newest, that others may take if its owner leaves it there.
pub(crate) struct TaskSlot(AtomicPtr<Header>);

impl TaskSlot {
    pub(crate) fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Relaxed).is_null()
    }

    /// Puts a task there, and returns the previous one.
    pub(crate) fn replace(&self, task: Task) -> Option<Task> {
        // Release: a thread that takes the task sees what it points to. Acquire: the same for the
        // previous one.
        own(self.0.swap(task.into_raw().as_ptr(), AcqRel))
    }

    pub(crate) fn take(&self) -> Option<Task> {
        if self.is_empty() {
            return None;
        }
        own(self.0.swap(ptr::null_mut(), AcqRel))
    }
}

/// The task behind a pointer that was taken out of a container for tasks.
fn own(pointer: *mut Header) -> Option<Task> {
    // SAFETY: such containers are filled by `into_raw` only, and every way to take a pointer out of
    // one gives it to one taker.
    NonNull::new(pointer).map(|pointer| unsafe { Task::from_raw(pointer) })
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::sync::Arc;

    use super::*;
    use crate::protocol::sync::{self, Mutex};

    #[test]
    fn a_task_runs_once_or_is_dropped_once() {
        let held = Arc::new(());
        let (ran, dropped) = (Arc::clone(&held), Arc::clone(&held));
        Task::new(move || drop(ran)).run();
        assert_eq!(Arc::strong_count(&held), 2);
        drop(Task::new(move || drop(dropped)));
        assert_eq!(Arc::strong_count(&held), 1);
    }

    /// A closure of that size and alignment.
    fn check_size<T: Copy + Send + PartialEq + Debug + 'static>(content: T) {
        let held = Arc::new(());
        for does_run in [true, false] {
            let (inside, seen) = (Arc::clone(&held), Arc::new(Mutex::new(None)));
            let there = Arc::clone(&seen);
            let task = Task::new(move || {
                drop(inside);
                *sync::lock(&there) = Some(content);
            });
            if does_run {
                task.run();
            } else {
                drop(task);
            }
            assert_eq!(*sync::lock(&seen), does_run.then_some(content));
            assert_eq!(Arc::strong_count(&held), 1);
        }
    }

    #[test]
    fn a_task_can_be_of_any_size_and_alignment() {
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[repr(align(64))]
        struct Aligned(u8);
        check_size(());
        check_size([1_u8; 5]);
        check_size([2_u64; 3]);
        check_size([3_u64; 6]);
        check_size([4_u64; 12]);
        check_size([5_u64; 13]);
        check_size([6_u64; 32]);
        check_size(7_u128);
        check_size(Aligned(8));
    }

    #[test]
    fn a_panic_does_not_leave_its_task() {
        let held = Arc::new(());
        let inside = Arc::clone(&held);
        Task::new(move || {
            let _inside = inside;
            std::panic::resume_unwind(Box::new("planned"));
        })
        .run();
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
