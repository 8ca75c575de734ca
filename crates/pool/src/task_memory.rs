//! Memory for tasks: blocks of three sizes, which go round instead of back to the allocator.
//!
//! A task is mostly ended by another thread than made it, and that is what allocators are slow at. So
//! every thread keeps some blocks on a cache of its own. Who has too many brings a batch of them to the
//! central cache, who has none fetches a batch from there. Both are bounded: what does not fit is freed, and
//! what is not there is allocated. Nobody waits for the central cache either; if another is there, this one
//! does without.

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::sync::TryLockError;

use crate::protocol::sync::{Mutex, MutexGuard};

/// The most blocks of one size that a thread keeps.
const THREAD_CACHE_MAX: usize = 2 * BATCH;

/// How many go to the central cache or come from there at a time.
const BATCH: usize = 64;

/// The most memory that lies in the central cache in blocks of one size.
const CENTRAL_CACHE_BYTES_MAX: usize = 512 * 1024;

/// Memory of that size, with nothing in it.
pub(crate) type Block<S> = Box<MaybeUninit<S>>;

/// A size that blocks have: with the word of the usual allocators before them, these are 32, 64 and
/// 128 bytes.
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

/// A block, to be given back by [`free`].
#[inline]
pub(crate) fn allocate<S: Size>() -> Block<S> {
    // A thread that ends has no caches any more.
    CACHES.try_with(|caches| S::cache(caches).take()).ok().flatten().unwrap_or_else(Box::new_uninit)
}

/// The block is not needed any more.
#[inline]
pub(crate) fn free<S: Size>(block: Block<S>) {
    let mut block = Some(block);
    // Without caches, it is freed here.
    let _ = CACHES.try_with(|caches| block.take().map(|block| S::cache(caches).give(block)));
}

/// What one thread keeps.
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

/// What has been kept goes to the threads that stay.
impl<S: Size> Drop for ThreadCache<S> {
    fn drop(&mut self) {
        let blocks = self.0.get_mut();
        while !blocks.is_empty() {
            S::central().flush(blocks);
        }
    }
}

/// What any thread can have.
pub(crate) struct CentralCache<S>(Mutex<Vec<Block<S>>>);

impl<S: Size> CentralCache<S> {
    const BLOCKS_MAX: usize = CENTRAL_CACHE_BYTES_MAX / size_of::<S>();

    const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Brings the newest of these, or frees them if there is no room.
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

    /// What is there, unless somebody else is at it.
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

    /// Of this size no task is, so that nobody else comes to its central cache.
    type Odd = [u64; 9];

    impl Size for Odd {
        fn cache(_shelves: &ThreadCaches) -> &ThreadCache<Self> {
            unreachable!("the caches of threads have none of these")
        }

        fn central() -> &'static CentralCache<Self> {
            static CENTRAL: CentralCache<Odd> = CentralCache::new();
            &CENTRAL
        }
    }

    fn in_central_cache() -> usize {
        Odd::central().try_lock().expect("nobody else is there").len()
    }

    #[test]
    fn what_is_kept_is_bounded_and_goes_to_others_when_a_thread_ends() {
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
        let block = other.take().expect("there are some in the central cache");
        assert_eq!(other.0.borrow().len(), BATCH - 1, "a batch is fetched at a time");
        assert!(in_central_cache() <= full - BATCH);
        other.give(block);
        let before = in_central_cache();
        drop(other);
        assert_eq!(in_central_cache(), before + BATCH, "what one leaves behind, others can have");
    }

    #[test]
    fn a_thread_that_ends_does_without_shelves() {
        struct Last(RefCell<Option<Block<Small>>>);
        impl Drop for Last {
            fn drop(&mut self) {
                // Whatever the order in which the thread's values go.
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
            ended.join().expect("it ends in peace");
        }
    }
}
