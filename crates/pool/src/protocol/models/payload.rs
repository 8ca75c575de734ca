//! What the pointers in the models stand for: plain memory, written by the thread that hands it
//! over and used by the one that takes it. loom fails the model if nothing orders the two, or if
//! two threads take the same.
#![expect(unsafe_code, reason = "plain memory that threads share is what is to be checked")]

use std::ptr;

use loom::cell::UnsafeCell;

/// A few payloads, each with a number that is not zero.
pub(super) struct Payload(Vec<UnsafeCell<State>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unmade,
    Made,
    Taken,
}

// SAFETY: this is the claim to be proved; loom checks every use, and fails the model if two
// overlap.
unsafe impl Sync for Payload {}

// SAFETY: as above.
unsafe impl Send for Payload {}

impl Payload {
    pub(super) fn new(pieces: usize) -> Self {
        Self((0..pieces).map(|_| UnsafeCell::new(State::Unmade)).collect())
    }

    /// Writes a payload, and returns a pointer that stands for it.
    pub(super) fn make(&self, number: usize) -> *mut () {
        self.turn(number, State::Unmade, State::Made);
        ptr::without_provenance_mut(number)
    }

    /// Consumes the payload that a pointer stands for, and returns its number.
    pub(super) fn take(&self, pointer: *mut ()) -> usize {
        self.turn(pointer.addr(), State::Made, State::Taken);
        pointer.addr()
    }

    fn turn(&self, number: usize, from: State, to: State) {
        let at = number.checked_sub(1).expect("a pointer that was pushed, not an empty slot");
        self.0[at].with_mut(|state| {
            // SAFETY: loom has just checked that no other thread uses it.
            let before = unsafe { ptr::replace(state, to) };
            assert_eq!(before, from, "piece {number} becomes {to:?}");
        });
    }

    /// How many were taken, when all threads have ended.
    pub(super) fn taken(&self) -> usize {
        let is_taken = |state: &UnsafeCell<State>| {
            // SAFETY: loom has just checked that no other thread uses it.
            state.with(|state| unsafe { ptr::read(state) } == State::Taken)
        };
        self.0.iter().filter(|state| is_taken(state)).count()
    }
}
