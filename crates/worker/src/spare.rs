//! Moments in which a worker has nothing to do: some of them are offered to the server, for a slice of its
//! side-work. This is the last thing a worker looks for, after jobs of its own, the server's and others'.

use filch_recruit::{Duty, Enlisted, Rate, Recruiter, Slice};

/// How many of a million idle moments are offered. An idle worker has one or two a second, a busy one may
/// have one after each job. The server is told, to show it.
pub(crate) const PARTS_PER_MILLION: u32 = 50_000;

/// What the side job is called.
const SWEEP: &str = "sweep";

/// Decides which moments are offered.
pub(crate) struct Spare {
    recruiter: Recruiter,
    /// Whether the server has said that it takes them.
    is_wanted: bool,
}

impl Default for Spare {
    fn default() -> Self {
        // The work itself is the server's: whoever is picked only says so.
        let offered = |_: &mut Slice| Ok(Duty::Done);
        let rate = Rate::per_million(PARTS_PER_MILLION);
        let recruiter = Recruiter::builder().job(SWEEP, rate, offered).unbounded().build();
        Self { recruiter: recruiter.expect("one job with a rate below 1"), is_wanted: false }
    }
}

impl Spare {
    /// The server takes what is offered to it.
    pub(crate) const fn offer(&mut self) {
        self.is_wanted = true;
    }

    /// Nobody is there who has said so.
    pub(crate) const fn withdraw(&mut self) {
        self.is_wanted = false;
    }

    /// Whether this idle moment is to be offered.
    pub(crate) fn is_picked(&self) -> bool {
        self.is_wanted && matches!(self.recruiter.enlist(), Enlisted::Recruited { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_wants_them_is_offered_moments_and_only_few() {
        let mut spare = Spare::default();
        let picked = |spare: &Spare| (0..1_000).filter(|_| spare.is_picked()).count();
        assert_eq!(picked(&spare), 0);
        spare.offer();
        let few = picked(&spare);
        assert!((40..=60).contains(&few), "{few} of a thousand");
        spare.withdraw();
        assert_eq!(picked(&spare), 0);
    }
}
