//! Ancestry: which work is a part of which, so that a waiting worker helps only with its own.
//!
//! # Restricted stealing
//!
//! A worker whose fork was stolen waits for the thief. It could run anything meanwhile, and most
//! pools let it. Then a lock that is held across a join may be needed by the very task that the
//! waiting thread picks up (deadlock), a long task may delay the end of a short one, and one theft
//! on top of another may exhaust the stack. Here the waiting worker takes only descendants of the
//! fork it waits for: forks that the thief has exposed since it took that fork, forks exposed by a
//! thief of a part of it, and so on (Wagner and Calder's leapfrogging, over any number of
//! generations).
//!
//! Two facts make this cheap:
//!
//! 1. At that moment the waiting worker has no forks itself. Its newest fork was stolen, thieves
//!    take the oldest, and the oldest is exposed first; so all of its forks are gone.
//! 2. A worker starts a stolen fork, or a task of a scope, only while it has no forks, and finishes
//!    it only when it has none again. So all forks that a worker exposes are parts of the work it
//!    is executing, and as long as one of them exists, nothing that it is a part of can finish.
//!
//! Each worker therefore publishes the work it is executing (a [`WorkId`]), together with what
//! waits for that work (its [`WaitTarget`]) and the work within which it was created, which is a
//! [`WorkId`] of another worker. Following these links upwards visits every ancestor. The waiting
//! worker does that in the middle of the theft: after it has seen that there is a fork, and before
//! it takes it. If the fork can still be taken afterwards, it was there all the time, and the
//! answer was about this very fork.
//!
//! What is published about an ancestor stays the same while its parts exist, or is hidden for a
//! while by work that the same worker started later.

use super::sync;
use super::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use super::sync::atomic::{AtomicU64, AtomicUsize};

/// How many nested pieces of work a worker publishes, each started while it waited for a part of
/// the one before. Deeper ones share the last level; a worker that waits for one that is hidden
/// does not help with it.
const LEVELS: usize = 1 << LEVEL_BITS;
#[cfg(not(loom))]
const LEVEL_BITS: u32 = 3;
#[cfg(loom)]
const LEVEL_BITS: u32 = 0;
const WORKER_BITS: u32 = 10;

/// How many generations are followed at most.
const GENERATIONS: usize = 256;

/// Identifies one piece of work that a worker executes: the worker, the level, and a number from
/// one on that is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkId(u64);

impl WorkId {
    /// How many workers can be told apart.
    pub(crate) const WORKERS_MAX: usize = 1 << WORKER_BITS;

    fn new(worker: usize, level: usize, number: u64) -> Self {
        debug_assert!(
            worker < Self::WORKERS_MAX && level < LEVELS && number > 0,
            "the parts fit into a word"
        );
        Self((number << LEVEL_BITS | level as u64) << WORKER_BITS | worker as u64)
    }

    fn worker(self) -> usize {
        (self.0 & (Self::WORKERS_MAX as u64 - 1)) as usize
    }

    fn level(self) -> usize {
        (self.0 >> WORKER_BITS & (LEVELS as u64 - 1)) as usize
    }

    /// As a word that is zero for none.
    fn to_bits(work: Option<Self>) -> u64 {
        work.map_or(0, |work| work.0)
    }

    fn from_bits(bits: u64) -> Option<Self> {
        (bits != 0).then_some(Self(bits))
    }
}

/// What a worker waits for: the address of a stolen fork or of a scope, which nothing else can have
/// until it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitTarget(u64);

impl WaitTarget {
    pub(crate) fn of<T>(at: *const T) -> Self {
        Self(at.addr() as u64)
    }
}

/// Where a piece of work comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// What a worker that waits for this work waits for.
    pub(crate) target: WaitTarget,
    /// The work within which it was created, if any worker could wait for that.
    pub(crate) within: Option<WorkId>,
}

/// The work that one worker executes, with its ancestry, as published to the others.
pub(crate) struct Ancestry {
    /// The last piece of work that it has started and not finished.
    current: AtomicU64,
    /// How many it has started and not finished. For the owner only.
    depth: AtomicUsize,
    /// How many it ever started. Outlives the thread in this slot, so that no two pieces of work
    /// are ever confused. For the owner only.
    count: AtomicU64,
    levels: [Level; LEVELS],
}

#[derive(Default)]
struct Level {
    /// A sequence lock: odd while the words below are being changed. It only grows, whereas a work
    /// id may come back. Without it, a reader that started before the id went away, and checked
    /// again after it had come back, could have read words that belong to other work.
    sequence: AtomicU64,
    work: AtomicU64,
    target: AtomicU64,
    within: AtomicU64,
}

impl Level {
    /// Publishes other words, and returns the previous ones. For the owner only.
    fn publish(&self, new: [u64; 3]) -> [u64; 3] {
        let words = [&self.work, &self.target, &self.within];
        let before = words.map(|word| word.load(Relaxed));
        let sequence = self.sequence.load(Relaxed);
        self.sequence.store(sequence + 1, Relaxed);
        for (word, value) in words.into_iter().zip(new) {
            // Release: a reader of any new word finds, when it reads the sequence again, that it
            // has changed.
            word.store(value, Release);
        }
        // Release: a reader of this sequence sees all words that belong to it, or newer ones.
        self.sequence.store(sequence + 2, Release);
        before
    }

    /// The origin of that work. None if other work is published here, or is just being published.
    fn origin(&self, work: WorkId) -> Option<Origin> {
        // Acquire: pairs with the last store of `publish`, so that no word is older than this
        // sequence.
        let sequence = self.sequence.load(Acquire);
        // Acquire: pairs with the stores before that, so that no word is newer, if the sequence is
        // still the same.
        let [published, target, within] =
            [&self.work, &self.target, &self.within].map(|word| word.load(Acquire));
        let is_same = !sync::looks_again() || self.sequence.load(Relaxed) == sequence;
        let is_whole = sequence.is_multiple_of(2) && is_same;
        (is_whole && published == work.0)
            .then(|| Origin { target: WaitTarget(target), within: WorkId::from_bits(within) })
    }
}

impl Ancestry {
    pub(crate) fn new() -> Self {
        Self {
            current: AtomicU64::new(0),
            depth: AtomicUsize::new(0),
            count: AtomicU64::new(0),
            levels: Default::default(),
        }
    }

    /// The work that its worker executes.
    pub(crate) fn current(&self) -> Option<WorkId> {
        WorkId::from_bits(self.current.load(Acquire))
    }

    /// Runs `f`, which does not panic, as work of that origin. The worker, which has no forks,
    /// executes that work meanwhile. For the owner only.
    pub(crate) fn run(&self, worker: usize, origin: Origin, f: impl FnOnce()) {
        let depth = self.depth.load(Relaxed);
        let number = self.count.load(Relaxed) + 1;
        let level = depth.min(LEVELS - 1);
        let work = WorkId::new(worker, level, number);
        let before =
            self.levels[level].publish([work.0, origin.target.0, WorkId::to_bits(origin.within)]);
        let current_before = self.current.load(Relaxed);
        self.count.store(number, Relaxed);
        self.depth.store(depth + 1, Relaxed);
        // Release: a worker that sees the id sees what is published about it.
        self.current.store(work.0, Release);
        f();
        self.depth.store(depth, Relaxed);
        // Release: a worker that sees that the work has finished sees that no fork of it is exposed
        // any more.
        self.current.store(current_before, Release);
        self.levels[level].publish(before);
    }
}

/// Whether `work` is a part of what a worker waits for. `ancestry` returns that of a worker.
pub(crate) fn descends<'s>(
    ancestry: impl Fn(usize) -> &'s Ancestry,
    mut work: Option<WorkId>,
    target: WaitTarget,
) -> bool {
    for _ in 0..GENERATIONS {
        let Some(origin) =
            work.and_then(|work| ancestry(work.worker()).levels[work.level()].origin(work))
        else {
            return false;
        };
        if origin.target == target {
            return true;
        }
        work = origin.within;
    }
    false
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const FIRST: WaitTarget = WaitTarget(8);
    const OTHER: WaitTarget = WaitTarget(16);
    const THIRD: WaitTarget = WaitTarget(24);

    #[test]
    fn a_part_of_a_part_descends_from_both() {
        let workers = [Ancestry::new(), Ancestry::new(), Ancestry::new()];
        let is_part =
            |of: usize, target| descends(|worker| &workers[worker], workers[of].current(), target);
        workers[0].run(0, Origin { target: FIRST, within: None }, || {
            workers[1].run(1, Origin { target: OTHER, within: workers[0].current() }, || {
                workers[2].run(2, Origin { target: THIRD, within: workers[1].current() }, || {
                    assert_eq!([FIRST, OTHER, THIRD].map(|target| is_part(2, target)), [true; 3]);
                    assert_eq!(
                        [FIRST, OTHER, THIRD].map(|target| is_part(1, target)),
                        [true, true, false]
                    );
                });
                assert!(!is_part(2, FIRST), "it executes nothing");
            });
            assert!(is_part(0, FIRST) && !is_part(0, OTHER));
        });
        assert!(!is_part(0, FIRST));
    }

    #[test]
    fn outer_work_is_published_again_when_the_inner_has_finished() {
        let ancestry = Ancestry::new();
        let targets: Vec<_> = (1..=3 * LEVELS as u64).map(WaitTarget).collect();
        fn nest(ancestry: &Ancestry, targets: &[WaitTarget]) {
            let Some((first, rest)) = targets.split_first() else { return };
            let is_at = |target| descends(|_| ancestry, ancestry.current(), target);
            ancestry.run(0, Origin { target: *first, within: ancestry.current() }, || {
                assert!(is_at(*first));
                nest(ancestry, rest);
                assert!(is_at(*first) && rest.iter().all(|target| !is_at(*target)));
            });
        }
        nest(&ancestry, &targets);
        assert_eq!(ancestry.current(), None);
    }

    #[test]
    fn a_work_id_is_never_used_again() {
        let ancestry = Ancestry::new();
        let mut works = Vec::new();
        for _ in 0..100 {
            ancestry
                .run(5, Origin { target: FIRST, within: None }, || works.push(ancestry.current()));
        }
        works.dedup();
        assert_eq!(works.len(), 100);
        assert!(works.iter().all(|work| work.is_some_and(|work| work.worker() == 5)));
        assert!(!descends(|_| &ancestry, works[0], FIRST), "it has finished");
    }
}
