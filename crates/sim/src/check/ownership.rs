//! Ownership: S2 overlap, S4 reports of the owner, S7 fences, S8 leases, S10 steals.

use std::collections::{BTreeMap, BTreeSet};

use filch_scheduler::id::{Hold, Seq, WorkerId};
use filch_scheduler::message::{Assignment, FromWorker, HelloKind, Report, ToWorker};
use filch_scheduler::record::{JobWrite, LeaseCause, Note};
use filch_scheduler::state::JobState;
use filch_scheduler::time::Monotonic;

use super::facts::{End, Facts, Job, Tenure};
use super::{Change, Commit, Holds, Rule, ensure};
use crate::log::Observed;
use crate::plan::Paused;

/// The state of these rules.
#[derive(Default)]
pub(super) struct Ownership {
    /// Every execution that has not ended, in the order of starts.
    runs: BTreeMap<Seq, Vec<Run>>,
    /// Executions that continue after a pause beside a newer one: they must be stopped at once.
    doubtful: Vec<(Monotonic, Seq)>,
    /// When the server last renewed a worker's lease.
    renewed_at: BTreeMap<WorkerId, Monotonic>,
    /// Lost workers, and when that was decided.
    lost: BTreeMap<WorkerId, Monotonic>,
    /// The jobs that workers have released, and the workers that have left, as far as the server
    /// knows.
    let_go: BTreeSet<Hold>,
    /// Reports that came after another one was recorded: whether all of them differ from it.
    contradicts: BTreeMap<(WorkerId, Hold), bool>,
    /// The holds that each worker reported in its last hello.
    greeted_with: BTreeMap<WorkerId, (Monotonic, Vec<Hold>)>,
    /// When the cancels of held jobs were decided.
    cancelled_at: BTreeMap<Seq, Monotonic>,
    left: BTreeSet<WorkerId>,
    /// The jobs that a process has given away.
    given: BTreeSet<(usize, WorkerId, Hold)>,
}

/// An execution of a job.
struct Run {
    place: usize,
    worker: WorkerId,
    hold: Hold,
    is_paused: bool,
    /// Whether it was told to stop.
    is_stopping: bool,
    /// Whether the worker's own deadline has passed.
    is_late: bool,
}

impl Run {
    /// Whether it continues within its rights: it is neither suspended nor being stopped past the
    /// worker's own deadline.
    const fn goes_on(&self) -> bool {
        !(self.is_paused || (self.is_stopping && self.is_late))
    }
}

impl Ownership {
    /// Checks what had to happen before this time.
    pub(super) fn time_passes(&mut self, at: Monotonic, facts: &Facts) -> Holds {
        if self.doubtful.first().is_some_and(|&(since, _)| since < at) {
            for (_, seq) in std::mem::take(&mut self.doubtful) {
                self.check_overlap(seq, facts)?;
            }
        }
        Ok(())
    }

    fn check_overlap(&self, seq: Seq, facts: &Facts) -> Holds {
        let Some((newest, older)) = self.runs.get(&seq).and_then(|runs| runs.split_last()) else {
            return Ok(());
        };
        let beside = older.iter().find(|run| run.goes_on());
        ensure(beside.is_none(), Rule::S2, || {
            let show =
                |run: &Run| format!("node {} under fence {}", run.place + 1, run.hold.fence.0);
            let (older, newer) = (beside.map(show).unwrap_or_default(), show(newest));
            format!("{} runs on {older} and on {newer}", name(seq, facts))
        })
    }

    pub(super) fn observe(&mut self, at: Monotonic, seen: &Observed<'_>, facts: &Facts) -> Holds {
        match *seen {
            Observed::Started { place, worker, assignment } => {
                self.started(place, worker, assignment, facts)
            }
            Observed::Stopping { place, hold, .. } => {
                for run in self.runs.get_mut(&hold.job).into_iter().flatten() {
                    run.is_stopping |= run.place == place && run.hold == hold;
                }
                Ok(())
            }
            Observed::PastDeadline { place } => {
                for run in self.runs.values_mut().flatten().filter(|run| run.place == place) {
                    run.is_late = true;
                }
                Ok(())
            }
            Observed::Ended { place, hold, .. } => {
                if let Some(runs) = self.runs.get_mut(&hold.job) {
                    runs.retain(|run| run.place != place || run.hold != hold);
                    if runs.is_empty() {
                        self.runs.remove(&hold.job);
                    }
                }
                Ok(())
            }
            Observed::Paused { place, jobs: Paused::Frozen } => {
                self.set_paused(at, place, true);
                Ok(())
            }
            Observed::Resumed { place } => {
                self.set_paused(at, place, false);
                Ok(())
            }
            Observed::Sent { place, worker, messages } => self.sent(place, worker, messages, facts),
            Observed::Arrived { worker, messages, .. } => {
                self.arrived(at, worker, messages, facts);
                Ok(())
            }
            Observed::Told { worker, messages, .. } => self.told(at, worker, messages, facts),
            _ => Ok(()),
        }
    }

    fn set_paused(&mut self, at: Monotonic, place: usize, is_paused: bool) {
        for (&seq, runs) in &mut self.runs {
            for run in runs.iter_mut().filter(|run| run.place == place) {
                run.is_paused = is_paused;
                if !is_paused {
                    self.doubtful.push((at, seq));
                }
            }
        }
    }

    fn started(
        &mut self,
        place: usize,
        worker: WorkerId,
        assignment: &Assignment,
        facts: &Facts,
    ) -> Holds {
        let hold = assignment.hold;
        ensure(!self.given.contains(&(place, worker, hold)), Rule::S10, || {
            format!("{} starts on node {} after it was given away", show(hold, facts), place + 1)
        })?;
        let runs = self.runs.entry(hold.job).or_default();
        runs.push(Run {
            place,
            worker,
            hold,
            is_paused: false,
            is_stopping: false,
            is_late: false,
        });
        self.check_overlap(hold.job, facts)?;
        let job = facts.job(hold.job);
        // A cancel that its owner does not know yet is allowed here; S14 checks acknowledged
        // cancels.
        let is_owned = job.is_some_and(|job| {
            let is_current = job.owner == Some(worker) && job.fence == hold.fence;
            let last = job.tenures.last().map(|tenure| tenure.fence);
            is_current || (job.held_by == Some(worker) && last == Some(hold.fence))
        });
        ensure(is_owned, Rule::S2, || {
            format!("{} starts on node {}, which does not own it", show(hold, facts), place + 1)
        })
    }

    fn sent(
        &mut self,
        place: usize,
        worker: WorkerId,
        messages: &[FromWorker],
        facts: &Facts,
    ) -> Holds {
        for message in messages {
            if let FromWorker::Stopping(hold) = message {
                let runs = self.runs.get(&hold.job).into_iter().flatten();
                let mut here = runs.filter(|run| run.place == place && run.hold == *hold);
                ensure(here.all(|run| run.is_stopping), Rule::S14, || {
                    format!(
                        "node {} reports that it stops {}, but it does not",
                        place + 1,
                        show(*hold, facts)
                    )
                })?;
            }
            let FromWorker::Given { jobs, .. } = message else {
                continue;
            };
            for &hold in jobs {
                let runs = self.runs.get(&hold.job).into_iter().flatten();
                let is_running = runs.into_iter().any(|run| run.place == place && run.hold == hold);
                ensure(!is_running, Rule::S10, || {
                    format!("{} is given away while it runs", show(hold, facts))
                })?;
                self.given.insert((place, worker, hold));
            }
        }
        Ok(())
    }

    /// A restarted server does not know which workers the previous one has lost. A lost worker that
    /// was not notified may say hello to it as a new one.
    fn arrived(&mut self, at: Monotonic, worker: WorkerId, messages: &[FromWorker], facts: &Facts) {
        if let Some(FromWorker::Hello(hello)) = messages.first()
            && hello.kind != HelloKind::Resume
            && self.lost.get(&worker).is_some_and(|&at| Some(at) < facts.server_since)
        {
            self.lost.remove(&worker);
        }
        // Only reports of the owner count, or of the worker that has replaced it.
        let is_own = |worker: WorkerId, hold: &Hold| tenure(worker, *hold, facts).is_some();
        for message in messages {
            match message {
                FromWorker::Report(report) => {
                    self.compare(worker, report, facts);
                    self.let_go.extend(Some(report.hold).filter(|hold| is_own(worker, hold)));
                }
                FromWorker::Given { jobs, .. } => {
                    self.let_go.extend(jobs.iter().filter(|hold| is_own(worker, hold)));
                }
                FromWorker::Goodbye => {
                    self.left.insert(worker);
                }
                FromWorker::Hello(hello) => {
                    let speaker = hello.kind.older().unwrap_or(worker);
                    for report in &hello.reports {
                        self.compare(worker, report, facts);
                    }
                    let holds = hello.reports.iter().map(|report| report.hold);
                    self.let_go.extend(holds.filter(|hold| is_own(speaker, hold)));
                    if let HelloKind::Replace(older) = hello.kind {
                        self.left.insert(older);
                    }
                    self.greeted_with.insert(worker, (at, hello.holds.clone()));
                }
                _ => {}
            }
        }
    }

    /// Compares a report with the recorded one, if its job has had no owner since.
    fn compare(&mut self, worker: WorkerId, report: &Report, facts: &Facts) {
        let hold = report.hold;
        let job = facts.job(hold.job).filter(|job| job.fence == hold.fence && job.owner.is_none());
        let Some(last) = job.and_then(|job| job.last) else {
            return;
        };
        let is_repeat = report.ending.kind() == Some(last.kind);
        let differ = self.contradicts.entry((worker, hold)).or_insert(true);
        *differ &= !is_repeat;
    }

    /// Whether the owner has reported that it does not have the job any more.
    fn is_let_go(&self, tenure: &Tenure, job: Seq) -> bool {
        self.let_go.contains(&Hold { job, fence: tenure.fence })
    }

    fn told(
        &mut self,
        at: Monotonic,
        worker: WorkerId,
        messages: &[ToWorker],
        facts: &Facts,
    ) -> Holds {
        for message in messages {
            match message {
                ToWorker::Renewed(_) => {
                    ensure(!self.lost.contains_key(&worker), Rule::S4, || {
                        format!("the lease of {} is renewed after it was lost", who(worker))
                    })?;
                    self.renewed_at.insert(worker, at);
                }
                ToWorker::Assign(assignments) => {
                    for assignment in assignments {
                        let hold = assignment.hold;
                        let is_lost = self.lost.contains_key(&worker);
                        let is_owner = !is_lost && tenure(worker, hold, facts).is_some();
                        ensure(is_owner, Rule::S4, || {
                            let (job, worker) = (show(hold, facts), who(worker));
                            format!("{job} is assigned to {worker} before that is stored")
                        })?;
                    }
                }
                ToWorker::StartGranted(hold) => {
                    let job = facts.job(hold.job);
                    let is_stored = job.is_some_and(|job| {
                        job.fence > hold.fence || (job.fence == hold.fence && has_started(job))
                    });
                    let is_lost = self.lost.contains_key(&worker);
                    let is_owner = !is_lost && tenure(worker, *hold, facts).is_some();
                    ensure(is_stored && is_owner, Rule::S4, || {
                        format!("the start of {} is granted but not stored", show(*hold, facts))
                    })?;
                }
                ToWorker::Refused { hold, .. } => {
                    let job = facts.job(hold.job);
                    let is_owner =
                        job.is_some_and(|job| job.owner == Some(worker) && job.fence == hold.fence);
                    ensure(!is_owner, Rule::S4, || {
                        let (worker, job) = (who(worker), show(*hold, facts));
                        format!(
                            "a report of {worker} about {job} is refused, although it is the owner"
                        )
                    })?;
                }
                ToWorker::Gone => {
                    let is_met = self.renewed_at.get(&worker).copied() > facts.server_since;
                    let has_ended = self.lost.contains_key(&worker) || self.left.contains(&worker);
                    ensure(has_ended || !is_met, Rule::S4, || {
                        format!("{} is told that it is lost, but it is not", who(worker))
                    })?;
                }
                ToWorker::Accepted(holds) => {
                    for &hold in holds {
                        self.accepted(worker, hold, facts)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Only reports of the owner are accepted, and only once they are stored.
    fn accepted(&self, worker: WorkerId, hold: Hold, facts: &Facts) -> Holds {
        let Some(tenure) = tenure(worker, hold, facts) else {
            return Err((
                Rule::S4,
                format!(
                    "a report of {} about {} is accepted, but it is not the owner",
                    who(worker),
                    show(hold, facts)
                ),
            ));
        };
        let says = |what: &str| {
            format!("a report of {} about {} is accepted {what}", who(worker), show(hold, facts))
        };
        let is_true = self.contradicts.get(&(worker, hold)) != Some(&true);
        ensure(is_true, Rule::S4, || says("although another outcome was recorded"))?;
        let has_spoken = self.let_go.contains(&hold);
        ensure(has_spoken, Rule::S4, || says("before it has arrived"))?;
        match tenure.end {
            Some(End::Word | End::Returned | End::Stolen | End::Cancelled) => Ok(()),
            Some(End::Lost) => Err((Rule::S4, says("although the job was reclaimed"))),
            None => Err((Rule::S4, says("before it is stored"))),
        }
    }

    /// S7 for writes, and S4: an owner loses a job only by its own report or by an expired lease.
    pub(super) fn written(&mut self, commit: &Commit<'_>, write: &JobWrite, job: &Job) -> Holds {
        if write.state == JobState::Cancelled && job.held_by.is_none() {
            self.cancelled_at.insert(job.seq, commit.decided.0);
        }
        if let (Some(holder), Some(last)) = (job.held_by, job.tenures.last()) {
            let hold = Hold { job: job.seq, fence: last.fence };
            let cancelled_at = self.cancelled_at.get(&job.seq).copied();
            let is_absent = |(at, holds): &(Monotonic, Vec<Hold>)| {
                Some(*at) >= cancelled_at && !holds.contains(&hold)
            };
            let has_let_go = self.let_go.contains(&hold)
                || self.lost.contains_key(&holder)
                || self.left.contains(&holder)
                || self.greeted_with.get(&holder).is_some_and(is_absent);
            ensure(write.holder == Some(holder) || has_let_go, Rule::S14, || {
                let (job, holder) = (job.name(), who(holder));
                format!("{job} is cancelled and released, but {holder} has not released it")
            })?;
        }
        if let Some(owner) = job.owner {
            let hold = Hold { job: job.seq, fence: job.fence };
            let has_let_go = self.let_go.contains(&hold)
                || self.lost.contains_key(&owner)
                || self.left.contains(&owner);
            let stays = matches!(write.state, JobState::Running | JobState::Cancelled)
                && write.holder == Some(owner);
            ensure(stays || has_let_go, Rule::S4, || {
                let (job, state) = (job.name(), write.state);
                format!("{job} is written as {state}, but {} has not released it", who(owner))
            })?;
        }
        let is_owners =
            matches!(write.state, JobState::Running | JobState::Succeeded | JobState::Scheduled);
        let fits = match is_owners {
            true => write.fence == job.fence,
            false => write.fence >= job.fence,
        };
        ensure(fits, Rule::S7, || {
            format!(
                "{} is written as {} under fence {} after fence {}",
                job.name(),
                write.state,
                write.fence.0,
                job.fence.0
            )
        })
    }

    pub(super) fn noted(&mut self, commit: &Commit<'_>, note: &Note, facts: &Facts) -> Holds {
        let &Note::WorkerLost { worker, .. } = note else {
            return Ok(());
        };
        self.lost.insert(worker, commit.decided.0);
        // A worker in the server's process is lost with it.
        if worker.is_embedded() && facts.server_since == Some(commit.decided.0) {
            return Ok(());
        }
        let since = self.renewed_at.get(&worker).copied().max(facts.server_since);
        let until = commit.decided.0;
        let silent_for = since.map(|since| until.since(since) - facts.missed(since, until));
        ensure(silent_for.is_none_or(|span| span >= facts.lease), Rule::S8, || {
            let silent = silent_for.unwrap_or_default();
            format!(
                "{} is declared lost after {silent:?}, but its lease is {:?}",
                who(worker),
                facts.lease
            )
        })?;
        let mut runs = self.runs.values().flatten().filter(|run| run.worker == worker);
        let going_on = runs.find(|run| run.goes_on());
        ensure(going_on.is_none(), Rule::S8, || {
            let run = going_on.map(|run| (show(run.hold, facts), run.place + 1));
            let (job, place) = run.unwrap_or_default();
            format!("the jobs of node {place} are reclaimed while it rightfully runs {job}")
        })
    }

    /// S7 and S10, for a change of owner.
    pub(super) fn changed(
        &self,
        commit: &Commit<'_>,
        change: &Change,
        job: &Job,
        facts: &Facts,
    ) -> Holds {
        let Change { hold, worker, cause } = *change;
        let is_alive = worker.is_none_or(|worker| !self.lost.contains_key(&worker));
        ensure(is_alive, Rule::S4, || {
            let worker = worker.map(who).unwrap_or_default();
            format!("{} goes to {worker}, which was lost before", show(hold, facts))
        })?;
        let is_first = job.tenures.last().is_none_or(|tenure| tenure.fence < hold.fence);
        let grows = match worker {
            Some(_) => hold.fence > job.fence && is_first,
            None => hold.fence >= job.fence && is_first,
        };
        ensure(grows, Rule::S7, || {
            let number = commit.number.0;
            format!("commit {number} assigns {} after fence {}", show(hold, facts), job.fence.0)
        })?;
        let fits = match cause {
            LeaseCause::Claim => job.owner.is_none(),
            LeaseCause::Steal(victim) => {
                let last = job.tenures.last().map(|tenure| self.is_let_go(tenure, job.seq));
                job.owner == Some(victim) && worker != Some(victim) && last == Some(true)
            }
            LeaseCause::Lost(from) if !self.lost.contains_key(&from) => false,
            LeaseCause::Returned(from)
                if !self.left.contains(&from)
                    && !job.tenures.last().is_some_and(|last| self.is_let_go(last, job.seq)) =>
            {
                false
            }
            LeaseCause::Lost(from) | LeaseCause::Returned(from) => {
                // The same event may have written already that the job has no owner.
                job.owner == Some(from)
                    || (job.owner.is_none()
                        && job.tenures.last().is_some_and(|last| {
                            last.worker == from && last.end.is_none_or(|end| end == End::Word)
                        }))
            }
        };
        let rule = match cause {
            LeaseCause::Claim if !job.spec.parents.is_empty() => Rule::S12,
            LeaseCause::Claim | LeaseCause::Steal(_) => Rule::S10,
            LeaseCause::Lost(_) | LeaseCause::Returned(_) => Rule::S4,
        };
        ensure(fits, rule, || {
            let owner = job.owner.map_or("none".to_owned(), who);
            format!("{} changes owner by {cause:?}, but its owner is {owner}", show(hold, facts))
        })
    }
}

fn has_started(job: &Job) -> bool {
    job.state == JobState::Running || job.is_ended() || job.state == JobState::Scheduled
}

/// The tenure of this worker, or of the worker that it has replaced, under this fence.
fn tenure(worker: WorkerId, hold: Hold, facts: &Facts) -> Option<&Tenure> {
    let tenure = facts.job(hold.job)?.tenure(hold.fence)?;
    facts.speaks_for(worker, tenure.worker).then_some(tenure)
}

pub(super) fn who(worker: WorkerId) -> String {
    format!("worker {:x}", worker.bits())
}

fn name(seq: Seq, facts: &Facts) -> String {
    facts.job(seq).map_or_else(|| format!("#{}", seq.0), |job| job.name().to_string())
}

fn show(hold: Hold, facts: &Facts) -> String {
    format!("{}.{}", name(hold.job, facts), hold.fence.0)
}
