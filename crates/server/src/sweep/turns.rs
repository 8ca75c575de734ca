//! When it is the turn of side-work because of what else is done: what comes in has to go out again, so the
//! more there is of the one, the more of the other.

use filch_scheduler::record::Mutation;

/// So many commits are followed by one slice.
const COMMITS_EACH: u32 = 8;

/// So many jobs a slice looks at, and at most.
const JOBS_LEAST: usize = 500;
const JOBS_MOST: usize = 4_000;

/// Counts commits.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    commits: u32,
    /// Jobs that came since the last turn.
    jobs: usize,
    cleared: u64,
}

impl Turns {
    /// A commit is on its way. Those that only clear away do not count: they would bring about themselves.
    pub(crate) fn committed(&mut self, mutations: &[Mutation]) {
        let mut is_other = false;
        for mutation in mutations {
            match mutation {
                Mutation::Purge(jobs) => self.cleared += jobs.len() as u64,
                Mutation::Trim { leases, .. } => self.cleared += leases.len() as u64,
                Mutation::Put(_) => {
                    self.jobs += 1;
                    is_other = true;
                }
                _ => is_other = true,
            }
        }
        self.commits += u32::from(is_other);
    }

    /// Whether enough commits have been made since the last turn.
    pub(crate) const fn has_come(&self) -> bool {
        self.commits >= COMMITS_EACH
    }

    /// Takes the turn, and says how much may be looked at: twice as much as has come since the last one, so
    /// that whatever comes in goes out in time.
    pub(crate) fn take(&mut self) -> usize {
        self.commits = 0;
        (std::mem::take(&mut self.jobs) * 2).clamp(JOBS_LEAST, JOBS_MOST)
    }

    /// How much was cleared away so far.
    pub(crate) const fn cleared(&self) -> u64 {
        self.cleared
    }
}

/// How much a slice looks at that somebody was recruited for.
pub(crate) const RECRUITED_JOBS: usize = JOBS_LEAST;

#[cfg(test)]
mod tests {
    use filch_scheduler::id::{LeaseNo, Seq};
    use filch_scheduler::time::Wall;

    use super::*;

    #[test]
    fn a_turn_comes_after_a_few_commits_that_do_not_only_clear_away() {
        let mut turns = Turns::default();
        for _ in 0..100 {
            turns.committed(&[Mutation::Purge(vec![Seq(1), Seq(2)])]);
            let (leases, notes_before) = (vec![LeaseNo(1)], Wall(0));
            turns.committed(&[Mutation::Trim { leases, notes_before }]);
        }
        assert_eq!((turns.has_come(), turns.cleared()), (false, 300));
        for _ in 0..COMMITS_EACH {
            assert!(!turns.has_come());
            turns.committed(&[Mutation::Close(LeaseNo(1))]);
        }
        assert!(turns.has_come());
        assert_eq!(turns.take(), JOBS_LEAST);
        assert!(!turns.has_come());
    }
}
