//! Parallel loops over slices and ranges, split only on demand (lazy binary splitting).
//!
//! The loop checks now and then whether another worker wants work. Only then it forks, into two
//! halves of what is left. So it needs no guess about how long an item takes, and stays a plain
//! loop if no worker asks.

use std::ops::Range;
use std::slice;

use crate::current;
use crate::fork::join;
use crate::global;
use crate::local::Local;

/// The loop checks after this fraction of what is left, but at most after each item, and at least
/// after `CHECK_MAX` items.
const CHECKS: usize = 256;
const CHECK_MAX: usize = 4096;

/// A collection that can be split in two and iterated over: slices, and ranges of integers.
pub trait Splittable: Send + Sized {
    /// The type of its items.
    type Item;
    /// Its iterator.
    type Iter: Iterator<Item = Self::Item>;

    /// How many items there are.
    fn count(&self) -> usize;
    /// The first `at` items, and the rest.
    fn split_at(self, at: usize) -> (Self, Self);
    /// Iterates over the items.
    fn items(self) -> Self::Iter;
}

impl<'a, T: Sync> Splittable for &'a [T] {
    type Item = &'a T;
    type Iter = slice::Iter<'a, T>;

    fn count(&self) -> usize {
        self.len()
    }

    fn split_at(self, at: usize) -> (Self, Self) {
        self.split_at(at)
    }

    fn items(self) -> Self::Iter {
        self.iter()
    }
}

impl<'a, T: Send> Splittable for &'a mut [T] {
    type Item = &'a mut T;
    type Iter = slice::IterMut<'a, T>;

    fn count(&self) -> usize {
        self.len()
    }

    fn split_at(self, at: usize) -> (Self, Self) {
        self.split_at_mut(at)
    }

    fn items(self) -> Self::Iter {
        self.iter_mut()
    }
}

macro_rules! ranges {
    ($($number:ty),*) => {$(
        impl Splittable for Range<$number> {
            type Item = $number;
            type Iter = Self;

            fn count(&self) -> usize {
                if self.is_empty() { return 0 }
                // A longer range than `usize` can count is halved until it is not.
                usize::try_from(self.end.abs_diff(self.start)).unwrap_or(usize::MAX)
            }

            fn split_at(self, at: usize) -> (Self, Self) {
                let at = <$number>::try_from(at).ok().and_then(|at| self.start.checked_add(at));
                let middle = at.map_or(self.end, |at| at.min(self.end));
                (self.start..middle, middle..self.end)
            }

            fn items(self) -> Self {
                self
            }
        }
    )*};
}

ranges!(usize, u64, u32, i64, i32);

/// Calls `f` with every item, possibly in parallel.
///
/// ```
/// let mut squares: Vec<u64> = (0..1000).collect();
/// filch_pool::for_each(squares.as_mut_slice(), |n| *n *= *n);
/// assert_eq!(squares[999], 998_001);
/// ```
pub fn for_each<P: Splittable>(parts: P, f: impl Fn(P::Item) + Sync) {
    map_reduce(parts, || (), f, |(), ()| ());
}

/// Maps every item, possibly in parallel, and reduces the results in the order of the items.
/// `identity` is the neutral element, and the result if there are no items.
///
/// ```
/// let sum = filch_pool::map_reduce(0..1000_u64, || 0, |n| n, |a, b| a + b);
/// assert_eq!(sum, 499_500);
/// ```
pub fn map_reduce<P: Splittable, R: Send>(
    parts: P,
    identity: impl Fn() -> R + Sync,
    map: impl Fn(P::Item) -> R + Sync,
    reduce: impl Fn(R, R) -> R + Sync,
) -> R {
    let walk = Walk { identity, map, reduce };
    if current::with(|local| local.is_some()) {
        walk.run(parts)
    } else {
        global::pool().install(|| walk.run(parts))
    }
}

struct Walk<I, M, F> {
    identity: I,
    map: M,
    reduce: F,
}

impl<I, M, F> Walk<I, M, F> {
    fn run<P: Splittable, R: Send>(&self, mut parts: P) -> R
    where
        I: Fn() -> R + Sync,
        M: Fn(P::Item) -> R + Sync,
        F: Fn(R, R) -> R + Sync,
    {
        let mut so_far = (self.identity)();
        loop {
            let count = parts.count();
            if count == 0 {
                return so_far;
            }
            if count > 1 && is_wanted() {
                let (left, right) = parts.split_at(count / 2);
                let (left, right) = join(|| self.run(left), || self.run(right));
                return (self.reduce)(so_far, (self.reduce)(left, right));
            }
            let (now, rest) = parts.split_at((count / CHECKS).clamp(1, CHECK_MAX));
            so_far = now.items().map(&self.map).fold(so_far, &self.reduce);
            parts = rest;
        }
    }
}

/// Whether another worker could want work from this one.
fn is_wanted() -> bool {
    current::with(|local| local.is_some_and(Local::is_wanted))
}
