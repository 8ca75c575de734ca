//! Ids and numbers: how components refer to jobs, workers, commits and messages.
//!
//! Clients make job ids, workers make worker ids; every other number comes from `dispatch`, grows
//! by one, and is never used again.

use core::num::NonZeroU64;

use crate::time::Wall;

/// A job's permanent id: 128 bits, made by the client (a UUIDv7), so that a submit can be repeated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JobId(pub u128);

/// The letters a readable id may use, in the order of their six-bit codes (code 0 ends the name).
const LETTERS: &[u8; 38] = b"abcdefghijklmnopqrstuvwxyz0123456789-_";

/// How many letters fit into the random bits of a UUIDv7.
const LETTERS_MAX: usize = 12;

/// Version 7 and the RFC variant, at their places in the 128 bits.
const UUID_V7: u128 = (7 << 76) | (0b10 << 62);

impl JobId {
    /// The moment the client made this id, if it is a UUIDv7.
    #[must_use]
    pub const fn made_at(self) -> Option<Wall> {
        if self.0 >> 76 & 0xf == 7 && self.0 >> 62 & 0b11 == 0b10 {
            Some(Wall((self.0 >> 80) as u64))
        } else {
            None
        }
    }

    /// A well-formed UUIDv7 that reads as `name`, for traces and tests: up to twelve of `a-z0-9-_`,
    /// beginning with a letter. `at` is its time and must fit into 48 bits.
    #[must_use]
    pub fn named(name: &str, at: Wall) -> Option<Self> {
        let bytes = name.as_bytes();
        let fits = !bytes.is_empty() && bytes.len() <= LETTERS_MAX && at.0 >> 48 == 0;
        if !fits || !bytes[0].is_ascii_lowercase() {
            return None;
        }
        let mut code: u128 = 0;
        for place in 0..LETTERS_MAX {
            let letter = match bytes.get(place) {
                Some(byte) => LETTERS.iter().position(|letter| letter == byte)? as u128 + 1,
                None => 0,
            };
            code = code << 6 | letter;
        }
        // Two letters before the variant bits, ten after them.
        let (high, low) = (code >> 60, code & ((1 << 60) - 1));
        Some(Self(u128::from(at.0) << 80 | UUID_V7 | high << 64 | low))
    }

    /// The name and time of an id that [`JobId::named`] could have made.
    #[must_use]
    pub fn name(self) -> Option<(ReadableName, Wall)> {
        let at = self.made_at()?;
        if self.0 >> 60 & 0b11 != 0 {
            return None;
        }
        let code = (self.0 >> 64 & 0xfff) << 60 | self.0 & ((1 << 60) - 1);
        let mut name = ReadableName { letters: [0; LETTERS_MAX], length: 0 };
        for place in 0..LETTERS_MAX {
            let letter = (code >> (6 * (LETTERS_MAX - 1 - place)) & 0x3f) as usize;
            if letter == 0 {
                break;
            }
            name.letters[place] = *LETTERS.get(letter - 1)?;
            name.length += 1;
        }
        // Only if encoding the name again gives the same id: nothing is hidden behind the name's
        // end.
        (Self::named(name.as_str(), at) == Some(self)).then_some((name, at))
    }
}

/// The letters of a readable id.
#[derive(Clone, Copy, Debug)]
pub struct ReadableName {
    letters: [u8; LETTERS_MAX],
    length: usize,
}

impl ReadableName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.letters[..self.length]).unwrap_or_default()
    }
}

/// A worker: one process incarnation, with a random id that it never uses again.
///
/// The highest bit is set if the worker runs inside the server's process, so that its jobs can
/// be given to others at once when that process has ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WorkerId(NonZeroU64);

impl WorkerId {
    const EMBEDDED: u64 = 1 << 63;

    /// The worker with these 64 bits; `None` for 0.
    #[must_use]
    pub const fn new(bits: u64) -> Option<Self> {
        match NonZeroU64::new(bits) {
            Some(bits) => Some(Self(bits)),
            None => None,
        }
    }

    /// The id of a worker that is its own process.
    #[must_use]
    pub const fn apart(random: u64) -> Self {
        match Self::new(random & !Self::EMBEDDED) {
            Some(worker) => worker,
            None => Self(NonZeroU64::MIN),
        }
    }

    /// The id of a worker inside the server's process.
    #[must_use]
    pub const fn embedded(random: u64) -> Self {
        match Self::new(random | Self::EMBEDDED) {
            Some(worker) => worker,
            None => unreachable!(),
        }
    }

    /// Whether the worker ends when the server's process ends.
    #[must_use]
    pub const fn is_embedded(self) -> bool {
        self.bits() & Self::EMBEDDED != 0
    }

    /// All 64 bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0.get()
    }

    /// The id without the mark of an embedded worker.
    #[must_use]
    pub const fn random(self) -> u64 {
        self.bits() & !Self::EMBEDDED
    }
}

/// A digest of a submitted body, made by the edge: equal digests mean the same job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Digest(pub u128);

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(pub u64);

        impl $name {
            /// The number after this one.
            ///
            /// # Panics
            /// When 64 bits are used up, which takes centuries.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.checked_add(1).expect("64 bits of numbers do not run out"))
            }
        }
    )*};
}

numbers! {
    /// A job's place in the order of submission: its key in memory and in the store.
    Seq;
    /// Grows by one each time a job changes hands, so a report with an older number comes from a
    /// worker that was given up on, and is refused.
    Fence;
    /// Numbers commits. They are applied whole and in order; 0 is "nothing yet".
    CommitNo;
    /// Numbers lease rows, the ledger of ownership.
    LeaseNo;
    /// Numbers the connections of one worker, from 1.
    SessionNo;
    /// Numbers the messages of one session in one direction, from 1.
    MessageNo;
    /// Identifies a request. The shell chooses it; `dispatch` only returns it with the answer.
    RequestNo;
    /// Numbers the look-ups that `dispatch` asks of the store.
    FetchNo;
    /// Numbers the questions put to workers that may be stolen from.
    QuestionNo;
}

/// A job together with the fence its holder was given: what every report carries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Hold {
    /// The job.
    pub job: Seq,
    /// The fence under which it is held.
    pub fence: Fence,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_readable_id_is_a_uuid_of_version_7_and_reads_back() {
        for name in ["a", "invoice-7", "abcdefghij_9"] {
            let id = JobId::named(name, Wall(1_700_000_000_000)).expect("a good name");
            assert_eq!(id.made_at(), Some(Wall(1_700_000_000_000)));
            let (read, at) = id.name().expect("readable");
            assert_eq!((read.as_str(), at), (name, Wall(1_700_000_000_000)));
        }
    }

    #[test]
    fn other_names_and_other_ids_are_not_readable() {
        for name in ["", "7a", "Ab", "thirteen-long", "a b"] {
            assert_eq!(JobId::named(name, Wall(0)), None, "{name:?}");
        }
        assert!(JobId(42).name().is_none());
        assert!(JobId(42).made_at().is_none());
        let named = JobId::named("a", Wall(0)).expect("a good name");
        assert!(JobId(named.0 | 1).name().is_none(), "bits behind the end of the name");
    }

    #[test]
    fn an_embedded_worker_is_known_by_its_id() {
        assert!(WorkerId::embedded(3).is_embedded());
        assert!(!WorkerId::apart(u64::MAX).is_embedded());
        assert_eq!(WorkerId::embedded(3).random(), 3);
    }
}
