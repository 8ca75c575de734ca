//! When a slice follows commits: the more jobs are submitted, the more rows the slices look at, so
//! that retention keeps up.

use filch_scheduler::record::Mutation;

/// One slice follows this many commits.
const COMMITS_EACH: u32 = 8;

/// How many jobs a slice looks at, at least and at most.
const JOBS_LEAST: usize = 500;
const JOBS_MOST: usize = 4_000;

/// Counts commits.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    commits: u32,
    /// Jobs that were submitted since the last slice.
    jobs: usize,
}

impl Turns {
    /// Counts a commit. Commits of retention itself do not count: otherwise slices would cause
    /// slices.
    pub(crate) fn committed(&mut self, mutations: &[Mutation]) {
        let mut is_other = false;
        for mutation in mutations {
            match mutation {
                Mutation::Purge(_) | Mutation::Trim { .. } => {}
                Mutation::Put(_) => {
                    self.jobs += 1;
                    is_other = true;
                }
                _ => is_other = true,
            }
        }
        self.commits += u32::from(is_other);
    }

    /// Whether enough commits have been made since the last slice.
    pub(crate) const fn has_come(&self) -> bool {
        self.commits >= COMMITS_EACH
    }

    /// Begins a slice; returns how many jobs it may look at: twice as many as were submitted since
    /// the last one, so that retention keeps up.
    pub(crate) fn take(&mut self) -> usize {
        self.commits = 0;
        (std::mem::take(&mut self.jobs) * 2).clamp(JOBS_LEAST, JOBS_MOST)
    }
}

/// How many jobs a slice in an idle moment looks at.
pub(crate) const RECRUITED_JOBS: usize = JOBS_LEAST;

#[cfg(test)]
mod tests {
    use filch_scheduler::id::{LeaseNo, Seq};
    use filch_scheduler::time::Wall;

    use super::*;

    #[test]
    fn a_slice_follows_every_few_commits_that_are_not_retention() {
        let mut turns = Turns::default();
        for _ in 0..100 {
            turns.committed(&[Mutation::Purge(vec![Seq(1), Seq(2)])]);
            let (leases, notes_before) = (vec![LeaseNo(1)], Wall(0));
            turns.committed(&[Mutation::Trim { leases, notes_before }]);
        }
        assert!(!turns.has_come());
        for _ in 0..COMMITS_EACH {
            assert!(!turns.has_come());
            turns.committed(&[Mutation::Close(LeaseNo(1))]);
        }
        assert!(turns.has_come());
        assert_eq!(turns.take(), JOBS_LEAST);
        assert!(!turns.has_come());
    }
}
