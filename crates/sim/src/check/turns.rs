//! L10: queues take turns. Under `round-robin` no queue is served twice while another one waits;
//! under `fair` queues are served in proportion to their weights.
//!
//! Judged by what was claimed: only jobs that workers of all queues claimed count, and only queues
//! that had a job for any worker the whole time.

use std::collections::{BTreeMap, BTreeSet};

use filch_scheduler::name::Name;
use filch_scheduler::record::{LeaseCause, Mutation, Strategy};

use super::facts::{Facts, Place};
use super::{Commit, Holds, Rule, ensure};
use crate::log::Observed;

/// The state of this rule.
#[derive(Default)]
pub(super) struct Turns {
    /// Queues that had a job for any worker after the last commit.
    waiting: BTreeSet<Name>,
    /// Under `round-robin`: how often the first queue was served since the second one was, or
    /// since that has waited.
    passed: BTreeMap<(Name, Name), u64>,
    /// Under `fair`: how often each queue was served, and how often both of a pair had been when
    /// both began to wait.
    served: BTreeMap<Name, u64>,
    since: BTreeMap<(Name, Name), (u64, u64)>,
    /// Whether anything but weights has decided about shares since the server started.
    is_uneven: bool,
    /// Whether there was a commit since then.
    is_known: bool,
}

/// How far a share under `fair` may be ahead of another one, in services of a queue of weight 1.
/// A queue may be ahead by two services when both begin to wait, and so may the other one now.
const AHEAD_MAX: i128 = 4;

/// From so many suspicions on, not every worker may take a job.
const SUSPICIONS_SOLO: u8 = 2;

/// How many jobs of a queue a commit claims.
#[derive(Clone, Copy, Default)]
struct Claims {
    all: u64,
    /// For workers that serve all queues.
    by_any: u64,
}

impl Turns {
    pub(super) fn observe(&mut self, seen: &Observed<'_>) {
        // A server does not remember turns across a restart.
        if matches!(seen, Observed::ServerStarted { .. } | Observed::ServerCrashed) {
            *self = Self::default();
        }
    }

    /// After the facts have been updated.
    pub(super) fn commit_ends(&mut self, commit: &Commit<'_>, facts: &Facts) -> Holds {
        let is_switch =
            commit.mutations.iter().any(|mutation| matches!(mutation, Mutation::Strategy(_)));
        let (claims, waiting) = match facts.strategy {
            Some(Strategy::RoundRobin | Strategy::Fair) if !is_switch => {
                (claims(commit, facts), waiting(facts))
            }
            _ => {
                // What was served under another strategy counts later under `fair`.
                *self = Self { is_uneven: true, ..Self::default() };
                return Ok(());
            }
        };
        match facts.strategy {
            Some(Strategy::RoundRobin) => self.check_turns(&claims, &waiting)?,
            _ => self.check_shares(commit, &claims, &waiting, facts)?,
        }
        (self.waiting, self.is_known) = (waiting, true);
        Ok(())
    }

    fn check_turns(&mut self, claims: &BTreeMap<Name, Claims>, waiting: &BTreeSet<Name>) -> Holds {
        self.passed.retain(|(_, other), _| waiting.contains(other));
        for other in waiting.intersection(&self.waiting) {
            let turns = claims.get(other).map_or(0, |claims| claims.all);
            for (queue, served) in claims.iter().filter(|(queue, _)| *queue != other) {
                let passed = self.passed.entry((queue.clone(), other.clone())).or_default();
                *passed += served.by_any;
                ensure(*passed <= turns + 1, Rule::L10, || {
                    format!("queue {queue} is served {passed} times while {other} waits")
                })?;
            }
            if turns > 0 {
                self.passed.retain(|(_, it), _| it != other);
            }
        }
        Ok(())
    }

    fn check_shares(
        &mut self,
        commit: &Commit<'_>,
        claims: &BTreeMap<Name, Claims>,
        waiting: &BTreeSet<Name>,
        facts: &Facts,
    ) -> Holds {
        let is_only_for_some = |claims: &Claims| claims.all > claims.by_any;
        let is_for_few = |mutation: &Mutation| match mutation {
            Mutation::Write(write) => write.suspicions >= SUSPICIONS_SOLO,
            _ => false,
        };
        self.is_uneven |= claims.values().any(is_only_for_some)
            || facts.queues.values().any(|queue| queue.limit.is_some())
            || commit.mutations.iter().any(is_for_few)
            || (!self.is_known && facts.jobs().any(|job| job.suspicions >= SUSPICIONS_SOLO));
        if self.is_uneven {
            return Ok(());
        }
        let is_set = |queue: &Name| {
            commit.mutations.iter().any(|mutation| match mutation {
                Mutation::Queue(settings) => settings.queue == *queue,
                _ => false,
            })
        };
        let stay = |queue: &Name| waiting.contains(queue) && !is_set(queue);
        self.since.retain(|(one, other), _| stay(one) && stay(other));
        for (queue, claims) in claims {
            *self.served.entry(queue.clone()).or_default() += claims.all;
        }
        let served = |queue: &Name| self.served.get(queue).copied().unwrap_or(0);
        let weight = |queue: &Name| i128::from(facts.queues.get(queue).map_or(1, |it| it.weight));
        for queue in waiting {
            for other in waiting.iter().filter(|other| *other != queue) {
                let now = (served(queue), served(other));
                let pair = (queue.clone(), other.clone());
                let since = *self.since.entry(pair).or_insert(now);
                let (mine, theirs) = (i128::from(now.0 - since.0), i128::from(now.1 - since.1));
                let (weight, other_weight) = (weight(queue), weight(other));
                let ahead = mine * other_weight - theirs * weight;
                ensure(ahead <= AHEAD_MAX * weight * other_weight, Rule::L10, || {
                    format!(
                        "queue {queue} (weight {weight}) is served {mine} times, {other} (weight \
                         {other_weight}) {theirs} times, while both wait"
                    )
                })?;
            }
        }
        Ok(())
    }
}

fn claims(commit: &Commit<'_>, facts: &Facts) -> BTreeMap<Name, Claims> {
    let mut claims: BTreeMap<Name, Claims> = BTreeMap::new();
    for change in commit.changes.iter().filter(|change| change.cause == LeaseCause::Claim) {
        if let Some(job) = facts.job(change.hold.job) {
            let place = change.worker.and_then(|worker| facts.place_of(worker));
            let is_any = place.is_some_and(Place::serves_all);
            let claims = claims.entry(job.spec.queue.clone()).or_default();
            claims.all += 1;
            claims.by_any += u64::from(is_any);
        }
    }
    claims
}

/// The queues that have a job for any worker.
fn waiting(facts: &Facts) -> BTreeSet<Name> {
    let open = facts.queues.iter().filter(|(_, queue)| !queue.is_paused && queue.limit.is_none());
    let waiting = open.filter(|(name, _)| facts.first_waiting(name).is_some());
    waiting.map(|(name, _)| name.clone()).collect()
}
