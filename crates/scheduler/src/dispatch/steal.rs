//! Work stealing: a worker with a free slot and empty queues asks, through the server, for half of
//! the unstarted jobs of a busy worker.
//!
//! The victim takes the jobs out of its deque at the steal end; one commit moves them; only then
//! are they assigned to the thief. A thief has at most one open question, and so has a victim. If a
//! question is not answered in time, its thief may ask another worker, but the question stays open
//! for its victim: jobs that it gives late still go to the thief if it has room.

use alloc::collections::{BTreeMap, BTreeSet};

use super::Dispatch;
use super::report::{Standing, Verdict};
use super::worker::{Served, Tier};
use crate::id::{Hold, QuestionNo, Seq, SessionNo, WorkerId};
use crate::message::{Serves, Suspects, ToWorker};
use crate::planted::{Bug, planted};
use crate::record::LeaseCause;
use crate::state::{JobState, Verb};
use crate::time::Monotonic;

/// The questions that victims have not answered.
#[derive(Default)]
pub(crate) struct Questions {
    open: BTreeMap<QuestionNo, Question>,
    /// When their thieves may ask another worker.
    deadlines: BTreeSet<(Monotonic, QuestionNo)>,
    last: QuestionNo,
}

#[derive(Clone, Copy)]
struct Question {
    thief: WorkerId,
    victim: WorkerId,
    deadline: Monotonic,
    /// The victim's turn when it was asked: it changes when the victim gets work.
    turn: u64,
}

impl Questions {
    pub(crate) fn next_deadline(&self) -> Option<Monotonic> {
        self.deadlines.first().map(|&(at, _)| at)
    }

    fn close(&mut self, number: QuestionNo) -> Option<Question> {
        let question = self.open.remove(&number)?;
        self.deadlines.remove(&(question.deadline, number));
        Some(question)
    }

    /// Every open question with its thief, its victim, and whether the thief still waits for it.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (QuestionNo, WorkerId, WorkerId, bool)> {
        self.open.iter().map(|(&number, question)| {
            let waits = self.deadlines.contains(&(question.deadline, number));
            (number, question.thief, question.victim, waits)
        })
    }
}

impl Dispatch {
    /// Finds a victim for each of these workers that is idle, and a thief for each that has jobs to
    /// spare.
    pub(super) fn match_thieves(&mut self, workers: &[WorkerId]) {
        if self.config.steal.most() == 0 {
            return;
        }
        for &worker in workers {
            if !self.workers.victims().is_empty()
                && self.workers.get(worker).is_thief()
                && self.is_any_leased(worker)
                && let Some(victim) = self.choose_victim(worker)
            {
                self.ask(worker, victim);
            }
        }
        for &worker in workers {
            if self.workers.idle() > 0
                && self.workers.can_be_asked(worker)
                && let Some(thief) = self.choose_thief(worker)
            {
                self.ask(thief, worker);
            }
        }
    }

    /// Whether any worker holds an unstarted job of a queue that this worker serves.
    fn is_any_leased(&self, thief: WorkerId) -> bool {
        match &self.workers.get(thief).served {
            Served::All => true,
            Served::Named(queues) => {
                queues.iter().any(|&queue| self.queues.get(queue).room.leased > 0)
            }
        }
    }

    /// The fuller of two victims chosen at random; if neither has jobs for this thief, any that
    /// has.
    fn choose_victim(&mut self, thief: WorkerId) -> Option<WorkerId> {
        let count = self.workers.victims().len();
        let (one, other) = (self.random.below(count), self.random.below(count));
        let drawn = [one, other].map(|at| self.workers.victims()[at]);
        let fits = |&victim: &WorkerId| self.has_for(victim, thief);
        let fuller = drawn
            .into_iter()
            .filter(fits)
            .max_by_key(|&victim| (self.workers.get(victim).spare(), core::cmp::Reverse(victim)));
        fuller.or_else(|| {
            let victims = self.workers.victims();
            let (before, from) = victims.split_at(one);
            from.iter().chain(before).copied().find(fits)
        })
    }

    /// The worker that has waited longest and may run some of this victim's jobs.
    fn choose_thief(&self, victim: WorkerId) -> Option<WorkerId> {
        let worker = self.workers.get(victim);
        let leased = worker.held.keys().map(|&seq| self.jobs.get(seq));
        let leased = leased.filter(|job| job.state() == JobState::Leased);
        let queues: BTreeSet<u32> = leased.map(|job| job.queue).collect();
        let lines = queues.iter().map(|&queue| &self.queues.get(queue).waiters);
        let lines = core::iter::once(&self.workers.waiters).chain(lines);
        let thieves = lines.filter_map(|line| {
            let idle = line.iter().take_while(|waiter| waiter.tier == Tier::FreeSlot);
            let mut thieves = idle.filter(|waiter| self.workers.get(waiter.worker).is_thief());
            thieves.find(|waiter| self.has_for(victim, waiter.worker))
        });
        thieves.min().map(|waiter| waiter.worker)
    }

    /// Whether the victim's suspects may move. If thief and victim each hold a job that must be the
    /// only one of its kind on a worker, suspects stay: a given job might find no place, go back,
    /// and be asked for again without end.
    fn suspects_between(&self, victim: WorkerId, thief: WorkerId) -> Suspects {
        match self.workers.get(thief).solo > 0 && self.workers.get(victim).solo > 0 {
            true => Suspects::Stay,
            false => Suspects::Move,
        }
    }

    /// Whether the victim has an unstarted job that the thief serves.
    fn has_for(&self, victim: WorkerId, thief: WorkerId) -> bool {
        let (served, from) = (&self.workers.get(thief).served, self.workers.get(victim));
        let all_move = self.suspects_between(victim, thief) == Suspects::Move;
        let serves_job = |&seq: &Seq| {
            let job = self.jobs.get(seq);
            let moves = all_move || !job.is_suspect();
            moves && job.state() == JobState::Leased && served.includes(job.queue)
        };
        let is_silent = from.has_fallen_silent(self.lease_clock(), self.config.lease);
        let is_known = from.nothing_for.as_ref().is_some_and(|none| none.includes_all_of(served));
        let serves_all = all_move && served.includes_all_of(&from.served);
        victim != thief
            && !is_silent
            && !is_known
            && (serves_all || from.held.keys().any(serves_job))
    }

    fn ask(&mut self, thief: WorkerId, victim: WorkerId) {
        self.questions.last = self.questions.last.next();
        let number = self.questions.last;
        let deadline = self.now.monotonic.plus(self.config.question);
        let turn = self.workers.get(victim).turn;
        self.questions.open.insert(number, Question { thief, victim, deadline, turn });
        self.questions.deadlines.insert((deadline, number));
        let asker = self.workers.get_mut(thief);
        asker.asking = Some(number);
        let most = self.config.steal.most();
        let (most, most_bound) = (asker.room().min(most), asker.free_slots().min(most));
        let serves = self.serves(thief);
        self.workers.get_mut(victim).asked = Some(number);
        self.seat(victim);
        let suspects = self.suspects_between(victim, thief);
        let question = number;
        let question = ToWorker::AskToGive { question, most, most_bound, suspects, serves };
        if let Some(told) = self.told(victim) {
            told.question = Some(question);
        }
    }

    fn serves(&self, worker: WorkerId) -> Serves {
        let name = |&queue: &u32| self.queues.get(queue).settings.queue.clone();
        match &self.workers.get(worker).served {
            Served::All => Serves::All,
            Served::Named(queues) => Serves::Named(queues.iter().map(name).collect()),
        }
    }

    /// Lets thieves whose question was not answered in time ask another worker.
    pub(super) fn expire_questions(&mut self) {
        while let Some(&(deadline, number)) = self.questions.deadlines.first() {
            if deadline > self.now.monotonic {
                break;
            }
            self.questions.deadlines.remove(&(deadline, number));
            let thief = self.questions.open[&number].thief;
            if !planted(Bug::SilentThief) {
                self.free_thief(thief, number);
            }
        }
    }

    fn free_thief(&mut self, thief: WorkerId, number: QuestionNo) {
        if let Some(worker) = self.workers.find_mut(thief)
            && worker.asking == Some(number)
        {
            worker.asking = None;
            self.workers.touch(thief);
        }
    }

    /// The victim will not answer any more: its session or its incarnation has ended.
    pub(super) fn drop_question(&mut self, victim: WorkerId) {
        let asked = self.workers.get_mut(victim).asked.take();
        if let Some(number) = asked
            && let Some(question) = self.questions.close(number)
        {
            self.free_thief(question.thief, number);
        }
        self.workers.touch(victim);
    }

    /// The victim's answer.
    pub(super) fn given(
        &mut self,
        victim: WorkerId,
        session: SessionNo,
        number: QuestionNo,
        holds: &[Hold],
    ) {
        let is_open = self.workers.get(victim).asked == Some(number);
        let question = if is_open { self.questions.close(number) } else { None };
        if let Some(question) = question {
            self.workers.get_mut(victim).asked = None;
            self.free_thief(question.thief, number);
        }
        if holds.is_empty() {
            self.counters.steals_empty += 1;
            // If the victim got work after it was asked, its answer may not cover that work.
            let turn = self.workers.get(victim).turn;
            let question = question.filter(|question| question.turn == turn);
            self.remember_nothing(victim, question.map(|question| question.thief));
        }
        self.workers.touch(victim);
        let mut stolen = 0;
        for &hold in holds {
            match self.standing(victim, hold) {
                // Only the owner takes jobs out of its deque, so only the owner knows whether one
                // was started.
                Standing::Owned => {
                    let thief = question.map(|question| question.thief);
                    match thief.filter(|&thief| self.has_place_for(thief, hold.job)) {
                        Some(thief) => {
                            self.steal(hold.job, victim, thief);
                            stolen += 1;
                        }
                        None => self.requeue(hold.job, LeaseCause::Returned(victim)),
                    }
                    self.answer_report(victim, session, hold, Verdict::Accepted);
                }
                Standing::Cancelled => {
                    self.let_go(hold.job);
                    self.answer_report(victim, session, hold, Verdict::Accepted);
                }
                standing => self.answer_absent(victim, session, hold, standing),
            }
        }
        self.counters.steals += u64::from(stolen > 0);
        self.counters.stolen += stolen;
    }

    /// The victim has nothing for this thief, nor for any worker that serves no other queues, until
    /// its deque grows.
    fn remember_nothing(&mut self, victim: WorkerId, thief: Option<WorkerId>) {
        if let Some(thief) = thief.and_then(|thief| self.workers.find(thief)) {
            let served = thief.served.clone();
            let worker = self.workers.get_mut(victim);
            worker.nothing_for = Some(match worker.nothing_for.take() {
                Some(before) => before.union(&served),
                None => served,
            });
        }
    }

    fn steal(&mut self, seq: Seq, victim: WorkerId, thief: WorkerId) {
        let verb = match self.jobs.get(seq).state() {
            JobState::Leased => Verb::Steal,
            // The owner reported that this job runs, and now that it never did. The owner knows
            // best.
            _ => {
                self.shift(seq, Verb::Requeue, None);
                Verb::Claim
            }
        };
        self.hand_over(seq, verb, Some(thief), LeaseCause::Steal(victim));
        let job = self.jobs.get_mut(seq);
        job.thefts = job.thefts.saturating_add(1);
        if planted(Bug::AttemptChargedOnSteal) {
            job.attempts += 1;
        }
        if planted(Bug::LimitNotCountedOnSteal) && job.thefts == 1 {
            self.queues.disown(job.queue, JobState::Leased);
        }
        self.assign(thief, seq);
    }

    pub(super) fn requeue(&mut self, seq: Seq, cause: LeaseCause) {
        self.hand_over(seq, Verb::Requeue, None, cause);
    }
}
