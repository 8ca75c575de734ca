//! Starting, stopping and giving away jobs.

use alloc::format;
use alloc::vec::Vec;

use super::deque::Wanted;
use super::rest::STARTED_AFTER;
use super::{Agent, AgentEffect, Slot, SlotPhase, StopReason};
use crate::id::{Hold, QuestionNo};
use crate::message::{Again, Ending, FromWorker, Report, StartMode};
use crate::planted::{Bug, planted};
use crate::time::{Duration, Monotonic};

impl Slot {
    /// Since when it runs; `None` if it does not run yet or is being stopped.
    pub(super) const fn runs_since(&self) -> Option<Monotonic> {
        match self.phase {
            SlotPhase::Running { since, .. } => Some(since),
            SlotPhase::Confirming | SlotPhase::Stopping(_) => None,
        }
    }

    /// Whether its start was reported to the server.
    pub(super) const fn is_told(&self) -> bool {
        matches!(self.phase, SlotPhase::Running { is_told: true, .. })
    }

    pub(super) fn times_out_at(&self) -> Option<Monotonic> {
        Some(self.runs_since()?.plus(self.assignment.timeout?.duration()))
    }
}

impl Ending {
    /// Whether this ends an attempt, rather than only giving the job back.
    pub(super) const fn is_outcome(&self) -> bool {
        matches!(self, Self::Finished | Self::Failed { .. } | Self::Snoozed(_))
    }
}

impl Agent {
    /// Starts jobs from the owner end while there are free slots and the right to own jobs.
    pub(super) fn fill_slots(&mut self) {
        let now = self.now.monotonic;
        let may_start = !self.is_fenced && self.fence_at().is_some_and(|at| at > now);
        while may_start && self.slots.len() < self.config.slots as usize {
            // A job of which an older attempt is still being stopped here waits for that.
            let slots = &self.slots;
            let is_free = |job| !slots.keys().any(|hold: &Hold| hold.job == job);
            let next = self.deque.pop_owner_end(|assignment| is_free(assignment.hold.job));
            let Some(assignment) = next else {
                return;
            };
            let hold = assignment.hold;
            let phase = match assignment.start {
                StartMode::Freely => {
                    self.effects.push(AgentEffect::Start(assignment.clone()));
                    SlotPhase::Running { since: now, is_told: false }
                }
                StartMode::Confirmed => {
                    self.say_now(FromWorker::Start(hold));
                    SlotPhase::Confirming
                }
            };
            self.slots.insert(hold, Slot { assignment, phase });
        }
    }

    /// The start of a suspect is granted, and durable. The job does not start if it was dropped
    /// meanwhile.
    pub(super) fn start_granted(&mut self, hold: Hold) {
        let now = self.now.monotonic;
        let may_start = self.fence_at().is_some_and(|at| at > now);
        if let Some(slot) = self.slots.get_mut(&hold)
            && slot.phase == SlotPhase::Confirming
            && may_start
        {
            slot.phase = SlotPhase::Running { since: now, is_told: true };
            let assignment = slot.assignment.clone();
            self.effects.push(AgentEffect::Start(assignment));
        }
    }

    /// Repeats the question in a new session: the answer may have been lost with the old one.
    pub(super) fn ask_to_start_again(&mut self) {
        let confirming = self.slots.iter().filter(|(_, slot)| slot.phase == SlotPhase::Confirming);
        for hold in confirming.map(|(&hold, _)| hold).collect::<Vec<_>>() {
            self.say_now(FromWorker::Start(hold));
        }
    }

    /// When the start of this job is reported.
    pub(super) fn started_at(&self, slot: &Slot) -> Option<Monotonic> {
        slot.runs_since().filter(|_| !slot.is_told()).map(|at| at.plus(self.config.started_after))
    }

    /// Jobs that have run for a while are reported as started, with the next batch.
    pub(super) fn tell_started(&mut self) {
        let now = self.now.monotonic;
        let is_due = |(&hold, slot)| self.started_at(slot).filter(|&at| at <= now).map(|_| hold);
        for hold in self.slots.iter().filter_map(is_due).collect::<Vec<_>>() {
            if let Some(Slot { phase: SlotPhase::Running { is_told, .. }, .. }) =
                self.slots.get_mut(&hold)
            {
                *is_told = true;
            }
            self.say(FromWorker::Started(hold));
        }
    }

    /// When a job that shows whether jobs can be started here has run for long enough.
    pub(super) fn probe_ends_at(&self) -> Option<Monotonic> {
        let since = self.slots.values().filter_map(Slot::runs_since).min();
        since.filter(|_| self.rest.is_probing()).map(|at| at.plus(STARTED_AFTER))
    }

    pub(super) fn time_out(&mut self) {
        let now = self.now.monotonic;
        let late = |(&hold, slot): (&Hold, &Slot)| {
            slot.times_out_at().filter(|&at| at <= now).map(|_| hold)
        };
        for hold in self.slots.iter().filter_map(late).collect::<Vec<_>>() {
            self.stop(hold, StopReason::TimedOut);
        }
    }

    pub(super) fn stop_all(&mut self, why: StopReason) {
        if why == StopReason::Drained && planted(Bug::DrainForgets) {
            return;
        }
        let running = self.slots.iter().filter(|(_, slot)| slot.runs_since().is_some());
        for hold in running.map(|(&hold, _)| hold).collect::<Vec<_>>() {
            self.stop(hold, why);
        }
    }

    fn stop(&mut self, hold: Hold, why: StopReason) {
        if let Some(slot) = self.slots.get_mut(&hold) {
            slot.phase = SlotPhase::Stopping(why);
            self.effects.push(AgentEffect::Stop { hold, why });
        }
    }

    /// An attempt is over: nothing of it runs any more.
    pub(super) fn ended(&mut self, report: Report) {
        let Report { hold, ending, result, log } = report;
        let Some(slot) = self.slots.remove(&hold) else {
            return;
        };
        // The report of its end makes the report of its start unnecessary.
        self.session.unsent.retain(|message| *message != FromWorker::Started(hold));
        if let Some(since) = slot.runs_since() {
            self.pace.run(self.now.monotonic.since(since));
        }
        let own = match ending {
            Ending::Finished | Ending::Failed { .. } | Ending::Snoozed(_) => {
                self.rest.succeeded();
                Some(ending)
            }
            Ending::Unstarted(_) => {
                if self.rest.failed(self.now.monotonic, self.config.rest_max) {
                    self.hand_back();
                    self.session.is_urgent = true;
                }
                Some(ending)
            }
            Ending::Interrupted | Ending::Dropped | Ending::Stopped => None,
        };
        let ending = match (slot.phase, own) {
            // For a cancelled job, only the fact that it has stopped matters.
            (SlotPhase::Stopping(StopReason::Cancelled), _) => Ending::Stopped,
            // It ended by itself before it could be stopped: that result is worth reporting.
            (_, Some(own)) => own,
            (SlotPhase::Stopping(StopReason::TimedOut), None) => {
                let limit = slot.assignment.timeout.unwrap_or_default().duration();
                let error = format!("timed out after {limit:?}").into();
                Ending::Failed { again: Again::ByPolicy, error }
            }
            // A fenced worker's jobs are taken back with the worker.
            (SlotPhase::Stopping(StopReason::Fenced), None) => return,
            (_, None) => Ending::Interrupted,
        };
        let result = result.filter(|_| ending == Ending::Finished);
        self.report(Report { hold, ending, result, log });
    }

    pub(super) fn progressed(&mut self, hold: Hold, percent: u8) {
        if self.slots.get(&hold).is_some_and(|slot| slot.runs_since().is_some()) {
            // Only the newest progress counts.
            self.session.unsent.retain(
                |message| !matches!(message, FromWorker::Progress { hold: it, .. } if *it == hold),
            );
            self.say(FromWorker::Progress { hold, percent });
        }
    }

    /// Gives away half of the unstarted jobs that the asker may run, from the steal end.
    pub(super) fn give(&mut self, question: QuestionNo, wanted: Wanted<'_>) {
        let mut jobs = self.deque.give(wanted);
        for &hold in &jobs {
            // Reported as dropped in the next session, in case the answer is lost with this one.
            self.reported(Report::plain(hold, Ending::Dropped));
        }
        if planted(Bug::GiveOfARunningJob) {
            let running = self.slots.iter().find(|(_, slot)| slot.runs_since().is_some());
            jobs.extend(running.map(|(&hold, _)| hold));
        }
        self.say_now(FromWorker::Given { question, jobs });
    }

    /// The job is cancelled: it is dropped if it has not started, and stopped if it has.
    pub(super) fn cancel(&mut self, hold: Hold) {
        let is_held = self.deque.contains(hold) || self.slots.contains_key(&hold);
        if is_held {
            self.disown(hold);
        } else if !self.reports.contains_key(&hold) {
            // It never arrived, or left long ago; the server waits for a report that it does not
            // run.
            self.report(Report::plain(hold, Ending::Dropped));
        }
        self.session.is_urgent = true;
    }

    /// This worker no longer owns the job.
    pub(super) fn disown(&mut self, hold: Hold) {
        let phase = self.slots.get(&hold).map(|slot| slot.phase);
        match phase {
            Some(SlotPhase::Running { .. }) => {
                self.stop(hold, StopReason::Cancelled);
                self.say_now(FromWorker::Stopping(hold));
            }
            Some(SlotPhase::Stopping(_)) => self.say_now(FromWorker::Stopping(hold)),
            Some(SlotPhase::Confirming) => {
                self.slots.remove(&hold);
                self.report(Report::plain(hold, Ending::Dropped));
            }
            None => {
                if self.deque.remove(hold) {
                    self.report(Report::plain(hold, Ending::Dropped));
                }
            }
        }
    }

    pub(super) fn drop_unstarted(&mut self, hold: Hold) {
        self.report(Report::plain(hold, Ending::Dropped));
    }

    /// Hands back the jobs that have not started.
    fn hand_back(&mut self) {
        let unstarted: Vec<Hold> = self.deque.drain().collect();
        for hold in unstarted {
            if !planted(Bug::DrainForgets) {
                self.drop_unstarted(hold);
            }
        }
        let confirming = self.slots.iter().filter(|(_, slot)| slot.phase == SlotPhase::Confirming);
        for hold in confirming.map(|(&hold, _)| hold).collect::<Vec<_>>() {
            self.disown(hold);
        }
    }

    /// Starts no more jobs, hands back those that have not started, and stops the rest after the
    /// grace period.
    pub(super) fn drain(&mut self, grace: Duration) {
        let until = self.now.monotonic.plus(grace);
        self.drain = Some(self.drain.map_or(until, |before| before.min(until)));
        self.hand_back();
        self.say_now(FromWorker::Drain);
        if self.drain.is_some_and(|at| at <= self.now.monotonic) {
            self.stop_all(StopReason::Drained);
        }
    }
}
