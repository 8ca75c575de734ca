//! Liveness, once there are no more faults: L1 every job ends, L2 jobs of lost workers are
//! reclaimed, L3 no worker is idle while others have jobs to spare, L4 a restarted server assigns
//! jobs, L7 a drain ends.

use std::collections::BTreeMap;
use std::time::Duration;

use filch_scheduler::id::WorkerId;
use filch_scheduler::message::ToWorker;
use filch_scheduler::state::JobState;
use filch_scheduler::time::Monotonic;

use super::facts::{Facts, Job, Place};
use super::ownership::who;
use super::{Change, Holds, Rule, ensure};
use crate::log::Observed;

/// The state of these rules.
#[derive(Default)]
pub(super) struct Liveness {
    /// When orphaned jobs are looked for next.
    orphans_at: Option<Monotonic>,
    /// Idle nodes: since when, and which node has jobs to spare.
    unfair: BTreeMap<usize, (Monotonic, usize)>,
    /// When the present server must have assigned a job.
    first_lease_by: Option<Monotonic>,
    /// The draining processes.
    drains: BTreeMap<usize, Drain>,
    /// Draining processes that are suspended, and since when.
    halted: BTreeMap<usize, (Monotonic, Drain)>,
}

/// A process that was told to stop.
struct Drain {
    /// When it must have exited.
    until: Monotonic,
    /// Whether the server has told it. A worker past its own deadline may ignore that: it is told
    /// again when it has reconnected.
    is_by_server: bool,
}

/// What a commit and a few messages may add to any bound.
const SLACK: Duration = Duration::from_millis(500);

/// L3.
const SHARED_WITHIN: Duration = Duration::from_millis(100);

/// The same during faults: the server may ask affected workers first, and messages take longer.
const SHARED_WITHIN_AMID_TROUBLE: Duration = Duration::from_secs(2);

/// How long a worker may take to recover after a fault.
const RECOVERS_WITHIN: Duration = Duration::from_secs(6);

/// L4.
const LEASES_WITHIN: Duration = Duration::from_secs(5);

/// The grace period of a worker that the server tells to drain, by the slowest clock.
const USUAL_GRACE: Duration = Duration::from_secs(43);

/// How often orphaned jobs are looked for.
const ORPHANS_EVERY: Duration = Duration::from_secs(1);

/// A worker with this many unstarted jobs has jobs to spare.
const TO_SPARE: usize = 2;

impl Liveness {
    pub(super) fn time_passes(&mut self, at: Monotonic, facts: &Facts) -> Holds {
        if self.orphans_at.is_some_and(|due| due < at) {
            self.orphans_at = Some(at.plus(ORPHANS_EVERY));
            check_orphans(at, facts)?;
        }
        if self.first_lease_by.is_some_and(|due| due < at) {
            self.first_lease_by = None;
            check_first_lease(facts)?;
        }
        let late = self.drains.iter().find(|(_, drain)| drain.until < at);
        ensure(late.is_none(), Rule::L7, || {
            let place = late.map_or(0, |(place, _)| *place);
            format!("the worker of node {} was told to stop and is still running", place + 1)
        })?;
        for (&idle, &(since, busy)) in &self.unfair {
            let is_calm = facts.healed_at.is_some_and(|healed| healed < since);
            let within = if is_calm { SHARED_WITHIN } else { SHARED_WITHIN_AMID_TROUBLE };
            let is_short = at.since(since) <= within;
            ensure(is_short, Rule::L3, || {
                let (idle, busy) = (idle + 1, busy + 1);
                format!("node {idle} is idle although node {busy} has jobs to spare")
            })?;
        }
        Ok(())
    }

    pub(super) fn observe(&mut self, at: Monotonic, seen: &Observed<'_>, facts: &Facts) -> Holds {
        match *seen {
            Observed::Healed => {
                self.orphans_at = Some(at);
                let is_new = |since: Monotonic| at.since(since) < LEASES_WITHIN;
                let is_new = facts.server_since.is_some_and(is_new);
                self.first_lease_by = is_new.then(|| at.plus(LEASES_WITHIN));
            }
            Observed::Draining { place, until } => {
                let until = until.plus(leaves_within(facts));
                self.drains.insert(place, Drain { until, is_by_server: false });
            }
            Observed::Heard { place, messages, .. } if messages.contains(&ToWorker::DrainNow) => {
                let until = at.plus(USUAL_GRACE + leaves_within(facts));
                self.drains.entry(place).or_insert(Drain { until, is_by_server: true });
            }
            Observed::PastDeadline { place } => {
                self.drains.retain(|&it, drain| it != place || !drain.is_by_server);
            }
            Observed::Paused { place, .. } => {
                let drain = self.drains.remove(&place);
                self.halted.extend(drain.map(|drain| (place, (at, drain))));
            }
            Observed::Resumed { place } => {
                if let Some((since, drain)) = self.halted.remove(&place) {
                    let until = drain.until.plus(at.since(since));
                    self.drains.insert(place, Drain { until, ..drain });
                }
            }
            Observed::Crashed { place } | Observed::Left { place } => {
                self.drains.remove(&place);
                self.halted.remove(&place);
            }
            Observed::Over(_) if facts.healed_at.is_some() => check_ends(facts)?,
            _ => {}
        }
        if is_about_places(seen) {
            let unfair = find_unfair(at, facts);
            self.unfair.retain(|idle, _| unfair.contains_key(idle));
            for (idle, busy) in unfair {
                self.unfair.entry(idle).or_insert((at, busy));
            }
        }
        Ok(())
    }

    pub(super) fn changed(&mut self, change: &Change) {
        if change.worker.is_some() {
            self.first_lease_by = None;
        }
    }
}

/// L1.
fn check_ends(facts: &Facts) -> Holds {
    let unended = facts.jobs().find(|job| !job.is_ended());
    ensure(unended.is_none(), Rule::L1, || {
        let what = unended.map(|job| {
            let owner = job.owner.map_or("none".to_owned(), who);
            format!("{} never ends: it is {}, its owner is {owner}", job.name(), job.state)
        });
        what.unwrap_or_default()
    })
}

/// L2.
fn check_orphans(at: Monotonic, facts: &Facts) -> Holds {
    let missed = facts.healed_at.map(|healed| facts.missed(healed, at)).unwrap_or_default();
    let within = facts.lease.max(facts.lease_kept) + Duration::from_secs(1) + SLACK + missed;
    let is_orphan = |owner: WorkerId| {
        // The time counts from the start of the server, and from the end of the faults.
        let since = facts.ended_at(owner).map(Some).map(|it| it.max(facts.server_since));
        since
            .is_some_and(|since| since.max(facts.healed_at).is_some_and(|it| at.since(it) > within))
    };
    let owner = |job: &Job| job.owner.or(job.held_by).filter(|&owner| is_orphan(owner));
    let orphan = facts.jobs().find(|job| owner(job).is_some());
    ensure(orphan.is_none(), Rule::L2, || {
        let what = orphan.and_then(|job| Some((job, owner(job)?)));
        what.map_or(String::new(), |(job, owner)| {
            format!("{} is still owned by {}, which has ended", job.name(), who(owner))
        })
    })
}

/// L4.
fn check_first_lease(facts: &Facts) -> Holds {
    let is_free = |job: &&Job| {
        let queue = facts.queues.get(&job.spec.queue);
        let is_open = queue.is_none_or(|queue| !queue.is_paused && queue.limit.is_none());
        job.state == JobState::Queued && job.suspicions == 0 && is_open
    };
    for job in facts.jobs().filter(is_free) {
        let is_idle = |place: &Place| is_idle(place, facts) && place.serves(&job.spec.queue);
        ensure(!facts.places.values().any(is_idle), Rule::L4, || {
            format!("{} is queued, but the server has assigned nothing", job.name())
        })?;
    }
    Ok(())
}

/// Whether the worker of this node is idle and can be assigned jobs.
fn is_idle(place: &Place, facts: &Facts) -> bool {
    let is_known = place.worker.is_some_and(|worker| facts.sessions.contains_key(&worker));
    place.is_alive
        && !place.is_paused
        && !place.is_draining
        && is_known
        && place.waiting.is_empty()
        && (place.running.len() as u32) < place.slots.min(place.want)
}

/// How long a worker may take beyond its grace period. Stopping jobs may take three tenths of a
/// lease; without a server it waits for another lease, and clocks run at different rates.
fn leaves_within(facts: &Facts) -> Duration {
    let spare = match facts.healed_at {
        Some(_) => facts.lease * 3 / 10,
        None => facts.lease * 2,
    };
    spare + SLACK
}

/// Whether this event can change which nodes are idle or have jobs to spare.
const fn is_about_places(seen: &Observed<'_>) -> bool {
    matches!(
        seen,
        Observed::Heard { .. }
            | Observed::Sent { .. }
            | Observed::Started { .. }
            | Observed::Ended { .. }
            | Observed::Closed { .. }
            | Observed::Began { .. }
            | Observed::Crashed { .. }
            | Observed::Left { .. }
            | Observed::Paused { .. }
            | Observed::Resumed { .. }
            | Observed::Draining { .. }
            | Observed::Arrived { .. }
            | Observed::Trouble { .. }
            | Observed::ServerCrashed
    )
}

/// Idle nodes, each with a node that has jobs to spare; only nodes without recent faults.
fn find_unfair(at: Monotonic, facts: &Facts) -> BTreeMap<usize, usize> {
    let mut pairs = BTreeMap::new();
    let is_well = |place: usize| at.since(facts.trouble_of(place)) > RECOVERS_WITHIN;
    let has_plenty = |place: &Place| place.waiting.len() >= TO_SPARE;
    if !facts.places.values().any(has_plenty) || facts.server_since.is_none() {
        return pairs;
    }
    let idle = facts.places.iter().filter(|(_, place)| is_idle(place, facts));
    for (&idle_at, idle) in idle.filter(|&(&place, _)| is_well(place)) {
        for (&busy_at, busy) in &facts.places {
            if busy_at == idle_at || !has_plenty(busy) || !is_well(busy_at) {
                continue;
            }
            let to_spare = busy.waiting.iter().filter(|(hold, queue)| {
                let job = facts.job(hold.job);
                let is_plain = job.is_some_and(|job| job.suspicions == 0 && !job.is_ended());
                is_plain && idle.serves(queue)
            });
            if to_spare.count() >= TO_SPARE && is_reachable(busy, facts) {
                pairs.insert(idle_at, busy_at);
            }
        }
    }
    pairs
}

fn is_reachable(place: &Place, facts: &Facts) -> bool {
    place.is_alive && place.worker.is_some_and(|worker| facts.sessions.contains_key(&worker))
}
