//! Memory for tasks: blocks of three sizes, which are reused instead of going back to the
//! allocator.
//!
//! A task is usually dropped by another thread than the one that created it, which is what
//! allocators are slow at. So every thread caches some blocks. A thread that has too many moves a
//! batch of them to the central cache, and a thread that has none takes a batch from there. Both
//! are bounded: blocks that do not fit are freed, and missing ones are allocated. No thread waits
//! for the central cache; if it is locked, the thread does without.

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::sync::TryLockError;

use crate::protocol::sync::{Mutex, MutexGuard};

/// The most blocks of one size that a thread keeps.
const THREAD_CACHE_MAX: usize = 2 * BATCH;

/// How many blocks move to or from the central cache at a time.
const BATCH: usize = 64;

/// The most memory in the central cache in blocks of one size.
const CENTRAL_CACHE_BYTES_MAX: usize = 512 * 1024;

/// Uninitialised memory of that size.
pub(crate) type Block<S> = Box<MaybeUninit<S>>;

/// A block size. With the word that common allocators put in front, these are 32, 64 and 128 bytes.
pub(crate) trait Size: Sized + Send + 'static {
    fn cache(caches: &ThreadCaches) -> &ThreadCache<Self>;
    fn central() -> &'static CentralCache<Self>;
}

pub(crate) type Small = [u64; 3];
pub(crate) type Medium = [u64; 7];
pub(crate) type Large = [u64; 15];

impl Size for Small {
    fn cache(caches: &ThreadCaches) -> &ThreadCache<Self> {
        &caches.small
    }

    fn central() -> &'static CentralCache<Self> {
        static CENTRAL: CentralCache<Small> = CentralCache::new();
        &CENTRAL
    }
}

impl Size for Medium {
    fn cache(caches: &ThreadCaches) -> &ThreadCache<Self> {
        &caches.medium
    }

    fn central() -> &'static CentralCache<Self> {
        static CENTRAL: CentralCache<Medium> = CentralCache::new();
        &CENTRAL
    }
}

impl Size for Large {
    fn cache(caches: &ThreadCaches) -> &ThreadCache<Self> {
        &caches.large
    }

    fn central() -> &'static CentralCache<Self> {
        static CENTRAL: CentralCache<Large> = CentralCache::new();
        &CENTRAL
    }
}

thread_local! {
    static CACHES: ThreadCaches =
        const { ThreadCaches { small: ThreadCache::new(), medium: ThreadCache::new(), large: ThreadCache::new() } };
}

/// Allocates a block, to be released by [`free`].
#[inline]
pub(crate) fn allocate<S: Size>() -> Block<S> {
    // A thread that is ending has no caches any more.
    CACHES.try_with(|caches| S::cache(caches).take()).ok().flatten().unwrap_or_else(Box::new_uninit)
}

/// Releases a block.
#[inline]
pub(crate) fn free<S: Size>(block: Block<S>) {
    let mut block = Some(block);
    // Without caches, it is freed here.
    let _ = CACHES.try_with(|caches| block.take().map(|block| S::cache(caches).give(block)));
}

/// The caches of one thread.
pub(crate) struct ThreadCaches {
    small: ThreadCache<Small>,
    medium: ThreadCache<Medium>,
    large: ThreadCache<Large>,
}

pub(crate) struct ThreadCache<S: Size>(RefCell<Vec<Block<S>>>);

impl<S: Size> ThreadCache<S> {
    const fn new() -> Self {
        Self(RefCell::new(Vec::new()))
    }

    #[inline]
    fn take(&self) -> Option<Block<S>> {
        let mut blocks = self.0.borrow_mut();
        blocks.pop().or_else(|| {
            S::central().refill(&mut blocks);
            blocks.pop()
        })
    }

    #[inline]
    fn give(&self, block: Block<S>) {
        let mut blocks = self.0.borrow_mut();
        if blocks.len() == THREAD_CACHE_MAX {
            S::central().flush(&mut blocks);
        }
        blocks.push(block);
    }
}

/// When a thread ends, its blocks go to the others.
impl<S: Size> Drop for ThreadCache<S> {
    fn drop(&mut self) {
        let blocks = self.0.get_mut();
        while !blocks.is_empty() {
            S::central().flush(blocks);
        }
    }
}

/// Blocks that any thread can take.
pub(crate) struct CentralCache<S>(Mutex<Vec<Block<S>>>);

impl<S: Size> CentralCache<S> {
    const BLOCKS_MAX: usize = CENTRAL_CACHE_BYTES_MAX / size_of::<S>();

    const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Moves the newest of these to the central cache, or frees them if there is no room.
    #[cold]
    #[inline(never)]
    fn flush(&self, blocks: &mut Vec<Block<S>>) {
        let batch = blocks.drain(blocks.len().saturating_sub(BATCH)..);
        if let Some(mut stock) = self.try_lock()
            && stock.len() + batch.len() <= Self::BLOCKS_MAX
        {
            stock.extend(batch);
        }
    }

    #[cold]
    #[inline(never)]
    fn refill(&self, blocks: &mut Vec<Block<S>>) {
        blocks.reserve(THREAD_CACHE_MAX);
        if let Some(mut stock) = self.try_lock() {
            let from = stock.len().saturating_sub(BATCH);
            blocks.extend(stock.drain(from..));
        }
    }

    /// The contents, unless another thread has the lock.
    fn try_lock(&self) -> Option<MutexGuard<'_, Vec<Block<S>>>> {
        match self.0.try_lock() {
            Ok(stock) => Some(stock),
            Err(TryLockError::Poisoned(stock)) => Some(stock.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// No task has this size, so no other thread uses its central cache.
    type Odd = [u64; 9];

    impl Size for Odd {
        fn cache(_shelves: &ThreadCaches) -> &ThreadCache<Self> {
            unreachable!("thread caches have none of these")
        }

        fn central() -> &'static CentralCache<Self> {
            static CENTRAL: CentralCache<Odd> = CentralCache::new();
            &CENTRAL
        }
    }

    fn in_central_cache() -> usize {
        Odd::central().try_lock().expect("no other thread uses it").len()
    }

    #[test]
    fn caches_are_bounded_and_go_to_others_when_a_thread_ends() {
        let full = CentralCache::<Odd>::BLOCKS_MAX;
        let cache = ThreadCache::<Odd>::new();
        assert!(cache.take().is_none(), "there are none at first");
        for _ in 0..full + 10 * BATCH {
            cache.give(Box::new_uninit());
            assert!(cache.0.borrow().len() <= THREAD_CACHE_MAX);
            assert!(in_central_cache() <= full);
        }
        assert!(in_central_cache() > full - BATCH);
        let other = ThreadCache::<Odd>::new();
        let block = other.take().expect("the central cache has some");
        assert_eq!(other.0.borrow().len(), BATCH - 1, "a batch moves at a time");
        assert!(in_central_cache() <= full - BATCH);
        other.give(block);
        let before = in_central_cache();
        drop(other);
        assert_eq!(
            in_central_cache(),
            before + BATCH,
            "blocks of an ended cache are available to others"
        );
    }

    #[test]
    fn a_thread_that_ends_does_without_caches() {
        struct Last(RefCell<Option<Block<Small>>>);
        impl Drop for Last {
            fn drop(&mut self) {
                // In any order in which the thread-local values are dropped.
                free(allocate::<Small>());
                self.0.take().into_iter().for_each(free);
                free(allocate::<Small>());
            }
        }
        thread_local! {
            static LAST: Last = const { Last(RefCell::new(None)) };
        }
        for is_first in [true, false] {
            let ended = thread::spawn(move || {
                if is_first {
                    LAST.with(|_| {});
                }
                let block = allocate();
                LAST.with(|last| last.0.replace(Some(block)));
            });
            ended.join().expect("it does not panic");
        }
    }
}
