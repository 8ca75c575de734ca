//! What descends from what.
//!
//! Who waits for a fork that was stolen may help with it, and with nothing else. So every worker shows
//! what it is at: which stolen fork, or task of a scope, and within what that was made, which is the
//! same kind of thing on another worker. Upwards from there lies everything that it is a part of.
//!
//! A worker begins such a thing only while it has no forks, and ends it only when it has none again:
//! all forks on a seat are parts of what the worker is at. As long as one of them is there, nothing that it is a
//! part of can end. What is shown about that stays the same, or is hidden for a while by what was begun later.

use super::sync;
use super::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use super::sync::atomic::{AtomicU64, AtomicUsize};

/// So many things that a worker is at, each begun while it waited for a part of the one before, are shown. Of
/// more, the last ones take turns: then who waits for one that is not shown does not help with it.
const LEVELS: usize = 1 << LEVEL_BITS;
#[cfg(not(loom))]
const LEVEL_BITS: u32 = 3;
#[cfg(loom)]
const LEVEL_BITS: u32 = 0;
const SEAT_BITS: u32 = 10;

/// The longest way up that is looked at.
const GENERATIONS: usize = 256;

/// A stretch of time in which a worker is at one thing: its seat, the level, and a number from one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u64);

impl Place {
    /// How many seats can be told apart.
    pub(crate) const SEATS: usize = 1 << SEAT_BITS;

    fn new(seat: usize, level: usize, number: u64) -> Self {
        debug_assert!(seat < Self::SEATS && level < LEVELS && number > 0, "it can be told apart");
        Self((number << LEVEL_BITS | level as u64) << SEAT_BITS | seat as u64)
    }

    fn seat(self) -> usize {
        (self.0 & (Self::SEATS as u64 - 1)) as usize
    }

    fn level(self) -> usize {
        (self.0 >> SEAT_BITS & (LEVELS as u64 - 1)) as usize
    }

    /// For a word that is zero if there is no place.
    fn to_bits(place: Option<Self>) -> u64 {
        place.map_or(0, |place| place.0)
    }

    fn from_bits(bits: u64) -> Option<Self> {
        (bits != 0).then_some(Self(bits))
    }
}

/// What somebody waits for: the address of a stolen fork, or of a scope, which nothing else has before
/// it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cause(u64);

impl Cause {
    pub(crate) fn of<T>(at: *const T) -> Self {
        Self(at.addr() as u64)
    }
}

/// Why a worker is at something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) cause: Cause,
    /// Where it was made, if that is anything that somebody could wait for.
    pub(crate) within: Option<Place>,
}

/// What one worker is at.
pub(crate) struct Lineage {
    /// The last thing it has begun and not ended.
    place: AtomicU64,
    /// How many it has begun and not ended. For the owner only.
    depth: AtomicUsize,
    /// How many it ever began. It outlives who sits there, so that no two are ever taken for one another.
    /// For the owner only.
    count: AtomicU64,
    levels: [Level; LEVELS],
}

#[derive(Default)]
struct Level {
    /// How often what follows was begun to be changed, and how often that was ended: odd in between. It only
    /// grows, where a place may come back. Then, without this, whoever began to read before the place went,
    /// and looked again after it had come back, could have read what another has shown there meanwhile.
    turn: AtomicU64,
    place: AtomicU64,
    cause: AtomicU64,
    within: AtomicU64,
}

impl Level {
    /// Shows something else, and says what was shown before. For the owner only.
    fn show(&self, shown: [u64; 3]) -> [u64; 3] {
        let words = [&self.place, &self.cause, &self.within];
        let before = words.map(|word| word.load(Relaxed));
        let turn = self.turn.load(Relaxed);
        self.turn.store(turn + 1, Relaxed);
        for (word, value) in words.into_iter().zip(shown) {
            // Release: who reads any of what is new finds, when it looks again, that the turn has changed.
            word.store(value, Release);
        }
        // Release: who finds this turn finds all that is shown in it, or something newer.
        self.turn.store(turn + 2, Release);
        before
    }

    /// What is shown of that place. None if something else is shown there, or is just about to be.
    fn origin(&self, place: Place) -> Option<Origin> {
        // Acquire: pairs with the last store of `show`, so that nothing is older than this turn.
        let turn = self.turn.load(Acquire);
        // Acquire: pairs with the stores before it, so that nothing is newer, if the turn is still the same.
        let [shown, cause, within] =
            [&self.place, &self.cause, &self.within].map(|word| word.load(Acquire));
        let is_same = !sync::looks_again() || self.turn.load(Relaxed) == turn;
        let is_whole = turn.is_multiple_of(2) && is_same;
        (is_whole && shown == place.0)
            .then(|| Origin { cause: Cause(cause), within: Place::from_bits(within) })
    }
}

impl Lineage {
    pub(crate) fn new() -> Self {
        Self {
            place: AtomicU64::new(0),
            depth: AtomicUsize::new(0),
            count: AtomicU64::new(0),
            levels: Default::default(),
        }
    }

    /// What its worker is at.
    pub(crate) fn place(&self) -> Option<Place> {
        Place::from_bits(self.place.load(Acquire))
    }

    /// Runs something that does not panic: meanwhile the worker on that seat, which has no forks, is at that.
    /// For the owner only.
    pub(crate) fn apart(&self, seat: usize, origin: Origin, run: impl FnOnce()) {
        let depth = self.depth.load(Relaxed);
        let number = self.count.load(Relaxed) + 1;
        let level = depth.min(LEVELS - 1);
        let place = Place::new(seat, level, number);
        let before =
            self.levels[level].show([place.0, origin.cause.0, Place::to_bits(origin.within)]);
        let place_before = self.place.load(Relaxed);
        self.count.store(number, Relaxed);
        self.depth.store(depth + 1, Relaxed);
        // Release: who sees what it is at sees what is shown of it.
        self.place.store(place.0, Release);
        run();
        self.depth.store(depth, Relaxed);
        // Release: who sees that something is over sees that nothing of it lies open any more.
        self.place.store(place_before, Release);
        self.levels[level].show(before);
    }
}

/// Whether a worker that is at `place` is at a part of what somebody waits for. `seat` knows who sits where.
pub(crate) fn descends<'s>(
    seat: impl Fn(usize) -> &'s Lineage,
    mut place: Option<Place>,
    cause: Cause,
) -> bool {
    for _ in 0..GENERATIONS {
        let Some(origin) =
            place.and_then(|place| seat(place.seat()).levels[place.level()].origin(place))
        else {
            return false;
        };
        if origin.cause == cause {
            return true;
        }
        place = origin.within;
    }
    false
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const FIRST: Cause = Cause(8);
    const OTHER: Cause = Cause(16);
    const THIRD: Cause = Cause(24);

    #[test]
    fn a_part_of_a_part_descends_from_both() {
        let seats = [Lineage::new(), Lineage::new(), Lineage::new()];
        let is_part = |of: usize, cause| descends(|seat| &seats[seat], seats[of].place(), cause);
        seats[0].apart(0, Origin { cause: FIRST, within: None }, || {
            seats[1].apart(1, Origin { cause: OTHER, within: seats[0].place() }, || {
                seats[2].apart(2, Origin { cause: THIRD, within: seats[1].place() }, || {
                    assert_eq!([FIRST, OTHER, THIRD].map(|cause| is_part(2, cause)), [true; 3]);
                    assert_eq!(
                        [FIRST, OTHER, THIRD].map(|cause| is_part(1, cause)),
                        [true, true, false]
                    );
                });
                assert!(!is_part(2, FIRST), "it is at nothing");
            });
            assert!(is_part(0, FIRST) && !is_part(0, OTHER));
        });
        assert!(!is_part(0, FIRST));
    }

    #[test]
    fn who_is_back_at_the_outer_thing_shows_that_again() {
        let seat = Lineage::new();
        let causes: Vec<_> = (1..=3 * LEVELS as u64).map(Cause).collect();
        fn nest(seat: &Lineage, causes: &[Cause]) {
            let Some((first, rest)) = causes.split_first() else { return };
            let is_at = |cause| descends(|_| seat, seat.place(), cause);
            seat.apart(0, Origin { cause: *first, within: seat.place() }, || {
                assert!(is_at(*first));
                nest(seat, rest);
                assert!(is_at(*first) && rest.iter().all(|cause| !is_at(*cause)));
            });
        }
        nest(&seat, &causes);
        assert_eq!(seat.place(), None);
    }

    #[test]
    fn a_place_is_never_used_again() {
        let seat = Lineage::new();
        let mut places = Vec::new();
        for _ in 0..100 {
            seat.apart(5, Origin { cause: FIRST, within: None }, || places.push(seat.place()));
        }
        places.dedup();
        assert_eq!(places.len(), 100);
        assert!(places.iter().all(|place| place.is_some_and(|place| place.seat() == 5)));
        assert!(!descends(|_| &seat, places[0], FIRST), "it is over");
    }
}
