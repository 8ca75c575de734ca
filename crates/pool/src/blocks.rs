//! Memory for tasks: blocks of three sizes, which go round instead of back to the allocator.
//!
//! A task is mostly ended by another thread than made it, and that is what allocators are slow at. So
//! every thread keeps some blocks on a shelf of its own. Who has too many brings a batch of them to the
//! depot, who has none fetches a batch from there. Both are bounded: what does not fit is freed, and
//! what is not there is allocated. Nobody waits for the depot either; if another is there, this one
//! does without.

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::sync::TryLockError;

use crate::protocol::sync::{Mutex, MutexGuard};

/// The most blocks of one size that a thread keeps.
const SHELF_MAX: usize = 2 * BATCH;

/// How many go to the depot or come from there at a time.
const BATCH: usize = 64;

/// The most memory that lies in the depot in blocks of one size.
const DEPOT_BYTES_MAX: usize = 512 * 1024;

/// Memory of that size, with nothing in it.
pub(crate) type Block<S> = Box<MaybeUninit<S>>;

/// A size that blocks have: with the word of the usual allocators before them, these are 32, 64 and
/// 128 bytes.
pub(crate) trait Size: Sized + Send + 'static {
    fn shelf(shelves: &Shelves) -> &Shelf<Self>;
    fn depot() -> &'static Depot<Self>;
}

pub(crate) type Small = [u64; 3];
pub(crate) type Medium = [u64; 7];
pub(crate) type Large = [u64; 15];

impl Size for Small {
    fn shelf(shelves: &Shelves) -> &Shelf<Self> {
        &shelves.small
    }

    fn depot() -> &'static Depot<Self> {
        static DEPOT: Depot<Small> = Depot::new();
        &DEPOT
    }
}

impl Size for Medium {
    fn shelf(shelves: &Shelves) -> &Shelf<Self> {
        &shelves.medium
    }

    fn depot() -> &'static Depot<Self> {
        static DEPOT: Depot<Medium> = Depot::new();
        &DEPOT
    }
}

impl Size for Large {
    fn shelf(shelves: &Shelves) -> &Shelf<Self> {
        &shelves.large
    }

    fn depot() -> &'static Depot<Self> {
        static DEPOT: Depot<Large> = Depot::new();
        &DEPOT
    }
}

thread_local! {
    static SHELVES: Shelves =
        const { Shelves { small: Shelf::new(), medium: Shelf::new(), large: Shelf::new() } };
}

/// A block, to be given back by [`give`].
#[inline]
pub(crate) fn take<S: Size>() -> Block<S> {
    // A thread that ends has no shelves any more.
    SHELVES
        .try_with(|shelves| S::shelf(shelves).take())
        .ok()
        .flatten()
        .unwrap_or_else(Box::new_uninit)
}

/// The block is not needed any more.
#[inline]
pub(crate) fn give<S: Size>(block: Block<S>) {
    let mut block = Some(block);
    // Without shelves, it is freed here.
    let _ = SHELVES.try_with(|shelves| block.take().map(|block| S::shelf(shelves).give(block)));
}

/// What one thread keeps.
pub(crate) struct Shelves {
    small: Shelf<Small>,
    medium: Shelf<Medium>,
    large: Shelf<Large>,
}

pub(crate) struct Shelf<S: Size>(RefCell<Vec<Block<S>>>);

impl<S: Size> Shelf<S> {
    const fn new() -> Self {
        Self(RefCell::new(Vec::new()))
    }

    #[inline]
    fn take(&self) -> Option<Block<S>> {
        let mut blocks = self.0.borrow_mut();
        blocks.pop().or_else(|| {
            S::depot().fetch(&mut blocks);
            blocks.pop()
        })
    }

    #[inline]
    fn give(&self, block: Block<S>) {
        let mut blocks = self.0.borrow_mut();
        if blocks.len() == SHELF_MAX {
            S::depot().bring(&mut blocks);
        }
        blocks.push(block);
    }
}

/// What has been kept goes to the threads that stay.
impl<S: Size> Drop for Shelf<S> {
    fn drop(&mut self) {
        let blocks = self.0.get_mut();
        while !blocks.is_empty() {
            S::depot().bring(blocks);
        }
    }
}

/// What any thread can have.
pub(crate) struct Depot<S>(Mutex<Vec<Block<S>>>);

impl<S: Size> Depot<S> {
    const BLOCKS_MAX: usize = DEPOT_BYTES_MAX / size_of::<S>();

    const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Brings the newest of these, or frees them if there is no room.
    #[cold]
    #[inline(never)]
    fn bring(&self, blocks: &mut Vec<Block<S>>) {
        let batch = blocks.drain(blocks.len().saturating_sub(BATCH)..);
        if let Some(mut stock) = self.stock()
            && stock.len() + batch.len() <= Self::BLOCKS_MAX
        {
            stock.extend(batch);
        }
    }

    #[cold]
    #[inline(never)]
    fn fetch(&self, blocks: &mut Vec<Block<S>>) {
        blocks.reserve(SHELF_MAX);
        if let Some(mut stock) = self.stock() {
            let from = stock.len().saturating_sub(BATCH);
            blocks.extend(stock.drain(from..));
        }
    }

    /// What is there, unless somebody else is at it.
    fn stock(&self) -> Option<MutexGuard<'_, Vec<Block<S>>>> {
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

    /// Of this size no task is, so that nobody else comes to its depot.
    type Odd = [u64; 9];

    impl Size for Odd {
        fn shelf(_shelves: &Shelves) -> &Shelf<Self> {
            unreachable!("the shelves of threads have none of these")
        }

        fn depot() -> &'static Depot<Self> {
            static DEPOT: Depot<Odd> = Depot::new();
            &DEPOT
        }
    }

    fn in_depot() -> usize {
        Odd::depot().stock().expect("nobody else is there").len()
    }

    #[test]
    fn what_is_kept_is_bounded_and_goes_to_others_when_a_thread_ends() {
        let full = Depot::<Odd>::BLOCKS_MAX;
        let shelf = Shelf::<Odd>::new();
        assert!(shelf.take().is_none(), "there are none at first");
        for _ in 0..full + 10 * BATCH {
            shelf.give(Box::new_uninit());
            assert!(shelf.0.borrow().len() <= SHELF_MAX);
            assert!(in_depot() <= full);
        }
        assert!(in_depot() > full - BATCH);
        let other = Shelf::<Odd>::new();
        let block = other.take().expect("there are some in the depot");
        assert_eq!(other.0.borrow().len(), BATCH - 1, "a batch is fetched at a time");
        assert!(in_depot() <= full - BATCH);
        other.give(block);
        let before = in_depot();
        drop(other);
        assert_eq!(in_depot(), before + BATCH, "what one leaves behind, others can have");
    }

    #[test]
    fn a_thread_that_ends_does_without_shelves() {
        struct Last(RefCell<Option<Block<Small>>>);
        impl Drop for Last {
            fn drop(&mut self) {
                // Whatever the order in which the thread's values go.
                give(take::<Small>());
                self.0.take().into_iter().for_each(give);
                give(take::<Small>());
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
                let block = take();
                LAST.with(|last| last.0.replace(Some(block)));
            });
            ended.join().expect("it ends in peace");
        }
    }
}
