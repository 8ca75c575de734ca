//! What was seen of one job and of the processes that ran it, told to the simulator's rules.
//!
//! There are three witnesses, none of whom knows what the others say: clients, who were told that the job
//! is kept and perhaps how it ended ([`crate::clients`]); its executions, which wrote down when they ran
//! ([`crate::runs`]); and the store, read when its server is gone, which has the owners in the order of
//! their fences, the attempts that failed, and the last state.
//!
//! What has a moment is told in that order. What the store says has none that could be compared with
//! those of processes, so it is told as late as it can have been: a change of owner when the new one
//! begins to run. What only a message would tell is taken from the store's word, so of the rules about
//! messages none is broken here; those about limits are for whoever sees all jobs ([`crate::limits`]), and
//! parents are looked at by [`crate::judge`].
//!
//! Whether a job was due is judged by the wall clock that its executions were told, which is the server's: one
//! that begins has to be told no less than the moment which the job waits for, or the clock has shown it
//! before it was set back. After a failure that moment is as late as the end of the execution that has
//! failed and the shortest wait which the job's settings allow: the server has heard of it later. A command that
//! could not be run to its end, through no fault of its own, waits for a second after it has begun.

use filch_scheduler::dispatch::{Answer, Novelty, Request, Submitted};
use filch_scheduler::id::{
    CommitNo, Fence, Hold, JobId, LeaseNo, MessageNo, QuestionNo, RequestNo, Seq, SessionNo,
    WorkerId,
};
use filch_scheduler::message::{Assignment, Ending, FromWorker, Placement, Report, StartMode};
use filch_scheduler::record::{
    AttemptOutcome, JobRow, JobWrite, LeaseCause, LeaseRow, Mutation, Note,
};
use filch_scheduler::spec::JobSpec;
use filch_scheduler::state::JobState;
use filch_scheduler::time::{Millis, Monotonic, Now, Wall};
use filch_sim::check::{Checkers, Violation, shortest_wait};
use filch_sim::log::{ExecutionEnd, Observed, Observer as _};
use filch_store::{History, OwnerChange};

use crate::clients::End;
use crate::runs::{Outcome, Run};
use crate::terms::Reading;

/// What is known of one job.
#[derive(Clone, Debug)]
pub struct Story<'a> {
    /// Which.
    pub id: JobId,
    /// Whether a client was told that it is kept.
    pub is_acknowledged: bool,
    /// The ends that clients were told.
    pub ends: &'a [End],
    /// Its executions, in the order of their starts.
    pub runs: &'a [Run],
    /// What the store has of it.
    pub kept: Option<&'a History>,
    /// What the wall clock showed before it was set, since the job is there.
    pub readings: &'a [Reading],
}

impl Story<'_> {
    /// The first rule that it breaks, if any.
    #[must_use]
    pub fn violation(&self) -> Option<Violation> {
        let mut teller = Teller::new(self);
        teller.submit(self);
        for (at, moment) in moments(self) {
            teller.at = Monotonic(at.max(teller.at.0));
            match moment {
                Moment::Ended(run) => teller.ended(run),
                Moment::Started(run) => teller.started(run),
                Moment::Told(end) => teller.told(end),
                Moment::Read(wall) => teller.read(wall),
            }
        }
        teller.close();
        teller.checkers.violation().cloned()
    }
}

/// Something with a moment.
#[derive(Clone, Copy)]
enum Moment<'a> {
    Ended(&'a Run),
    Started(&'a Run),
    Told(&'a End),
    Read(Wall),
}

/// In the order of time; at the same moment an end comes before a beginning.
fn moments<'a>(story: &'a Story<'_>) -> Vec<(u64, Moment<'a>)> {
    let mut moments = Vec::new();
    for (index, run) in story.runs.iter().enumerate() {
        let next = story.runs.get(index + 1);
        let was_met = story.runs.iter().any(|other| other.beside == Some(run.fence));
        // Nobody has seen when it was killed: before the next one looked, unless that has met it.
        let killed_at = || next.map_or(u64::MAX, |next| next.start);
        let is_over = run.end.is_some() || !(was_met || run.process.is_alive());
        if is_over {
            let at = run.end.map_or_else(killed_at, |end| end.at);
            moments.push((at, Moment::Ended(run)));
        }
        moments.push((run.start, Moment::Started(run)));
    }
    moments.extend(story.ends.iter().map(|end| (end.at, Moment::Told(end))));
    let readings = story.readings.iter();
    moments.extend(readings.map(|reading| (reading.at, Moment::Read(reading.wall))));
    moments.sort_by_key(|&(at, moment)| {
        let order = match moment {
            Moment::Ended(run) if run.start == at => 2,
            Moment::Ended(_) => 0,
            Moment::Started(_) => 1,
            Moment::Told(_) | Moment::Read(_) => 3,
        };
        (at, order)
    });
    moments
}

/// A wait before the next attempt.
#[derive(Clone, Copy)]
struct Wait {
    /// Its beginning at the earliest, since boot and by the wall clock.
    since: Monotonic,
    wall: Wall,
    span: Millis,
    /// Whether the worker has said for how long.
    is_asked_for: bool,
}

/// For how long a worker lets a command wait that it could not run to its end.
const SNOOZE: Millis = Millis(1_000);

struct Teller<'a> {
    checkers: Checkers,
    at: Monotonic,
    seq: Seq,
    spec: JobSpec,
    kept: Option<&'a History>,
    runs: &'a [Run],
    /// Ends that somebody was told.
    ends: &'a [End],
    /// Changes of owner that are still to be told.
    owners: &'a [OwnerChange],
    /// Who had it last, under which fence.
    holder: Option<(Hold, WorkerId)>,
    /// Notes of attempts that are still to be told.
    notes: Vec<&'a Note>,
    attempts: u16,
    suspicions: u8,
    /// The end that was told last.
    end: Option<(JobState, Fence)>,
    commits: u64,
}

impl<'a> Teller<'a> {
    fn new(story: &Story<'a>) -> Self {
        let kept = story.kept;
        let mut spec = kept.map_or_else(|| JobSpec::new(story.id), |kept| kept.row.spec.clone());
        // Parents are other stories.
        spec.parents.clear();
        let notes = kept.into_iter().flat_map(|kept| &kept.notes).map(|(_, note)| note);
        Self {
            checkers: Checkers::new(None),
            at: Monotonic(0),
            seq: kept.map_or(Seq(0), |kept| kept.row.seq),
            spec,
            kept,
            runs: story.runs,
            ends: story.ends,
            owners: kept.map_or(&[], |kept| &kept.owners),
            holder: None,
            notes: notes.filter(|note| matches!(note, Note::Attempt { .. })).collect(),
            attempts: 0,
            suspicions: 0,
            end: None,
            commits: 0,
        }
    }

    fn observe(&mut self, seen: Observed<'_>) {
        self.checkers.observe(self.at, seen);
    }

    fn commit(&mut self, mutations: &[Mutation]) {
        self.commit_of((self.at, Wall(0)), mutations);
    }

    /// What was decided at a moment that is past, at the earliest.
    fn commit_of(&mut self, (at, wall): (Monotonic, Wall), mutations: &[Mutation]) {
        self.commits += 1;
        let number = CommitNo(self.commits);
        let decided = (at, Now { monotonic: at, wall });
        self.observe(Observed::Stored { number, decided, mutations });
    }

    /// The server's wall clock shows this.
    fn read(&mut self, wall: Wall) {
        self.observe(Observed::ServerRead(Now { monotonic: self.at, wall }));
    }

    fn submit(&mut self, story: &Story<'_>) {
        let request = RequestNo(1);
        let what = Request::Submit(vec![self.spec.clone()]);
        self.observe(Observed::Asked { request, what: &what });
        if let Some(kept) = self.kept {
            let row = JobRow { spec: self.spec.clone(), now: self.waiting(), ..kept.row.clone() };
            self.commit(&[Mutation::Put(row)]);
        }
        if story.is_acknowledged {
            let (id, seq, novelty) = (story.id, self.seq, Novelty::New);
            let answer = Answer::Submitted(vec![Submitted { id, seq, novelty }]);
            self.observe(Observed::Answered { request, answer: &answer });
        }
    }

    /// The job as it waits for an owner.
    fn waiting(&self) -> JobWrite {
        JobWrite {
            job: self.seq,
            state: JobState::Queued,
            fence: self.holder.map_or(Fence(0), |(hold, _)| hold.fence),
            attempts: self.attempts,
            suspicions: self.suspicions,
            priority: self.spec.priority,
            due: Default::default(),
            holder: None,
            reason: None,
            at: Default::default(),
        }
    }

    fn started(&mut self, run: &Run) {
        let fence = Fence(run.fence);
        self.change_hands(fence, Some(run.wall));
        let owner = self.kept.and_then(|kept| {
            let owner = kept.owners.iter().find(|owner| owner.hold.fence == fence);
            owner.and_then(|owner| owner.worker)
        });
        let assignment = Assignment {
            hold: Hold { job: self.seq, fence },
            id: self.spec.id,
            queue: self.spec.queue.clone(),
            kind: self.spec.kind.clone(),
            era: CommitNo(0),
            rank: 0,
            attempt: run.attempt,
            start: StartMode::Freely,
            place: Placement::Anywhere,
            timeout: None,
        };
        let worker = owner.unwrap_or(WorkerId::apart(0));
        self.observe(Observed::Started { place: place(run), worker, assignment: &assignment });
    }

    fn ended(&mut self, run: &Run) {
        let hold = Hold { job: self.seq, fence: Fence(run.fence) };
        let how = match run.end {
            Some(end) if end.outcome == Outcome::Done => ExecutionEnd::Finished,
            Some(_) => ExecutionEnd::Failed,
            None => ExecutionEnd::Killed,
        };
        self.observe(Observed::Ended { place: place(run), hold, how });
    }

    fn told(&mut self, end: &End) {
        self.change_hands(end.fence, None);
        if self.end != Some((end.state, end.fence)) {
            self.write_end(end.state, end.fence);
        }
    }

    /// All that is left, and the last state.
    fn close(&mut self) {
        self.change_hands(Fence(u64::MAX), None);
        if let Some(kept) = self.kept {
            let now = &kept.row.now;
            if self.end != Some((now.state, now.fence)) {
                self.write_end(now.state, now.fence);
            }
        }
    }

    /// Tells who has owned the job, up to this fence, and what the clock showed when it was run under it. If it
    /// was not, the store's word is taken for that.
    fn change_hands(&mut self, fence: Fence, wall: Option<Wall>) {
        while let Some((owner, rest)) = self.owners.split_first()
            && owner.hold.fence <= fence
        {
            self.owners = rest;
            self.read(wall.unwrap_or(owner.at));
            self.change(owner);
        }
    }

    fn change(&mut self, owner: &OwnerChange) {
        let mut mutations = match owner.cause {
            LeaseCause::Lost(worker) => {
                let mut lost = vec![Mutation::Note(Note::WorkerLost { worker, jobs: 1 })];
                lost.extend(self.attempt_ends(owner.hold.fence));
                lost
            }
            LeaseCause::Claim | LeaseCause::Steal(_) | LeaseCause::Returned(_) => {
                self.let_go();
                self.attempt_of_holder_ends();
                Vec::new()
            }
        };
        mutations.push(Mutation::Lease(LeaseRow {
            number: LeaseNo(self.commits),
            worker: owner.worker,
            cause: owner.cause,
            jobs: vec![owner.hold],
            at: owner.at,
        }));
        self.commit(&mutations);
        if let Some(worker) = owner.worker {
            self.holder = Some((owner.hold, worker));
        }
    }

    /// Who had it has said that it has it no more.
    fn let_go(&mut self) {
        if let Some((hold, worker)) = self.holder {
            let messages = [FromWorker::Given { question: QuestionNo(1), jobs: vec![hold] }];
            let (session, number) = (SessionNo(1), MessageNo(1));
            self.observe(Observed::Arrived { worker, session, number, messages: &messages });
        }
    }

    /// The last owner has reported the end of its attempt, after which the job may have to wait.
    fn attempt_of_holder_ends(&mut self) {
        let fence = self.holder.map_or(Fence(0), |(hold, _)| hold.fence);
        let mut ends = self.attempt_ends(fence);
        let wait = ends.iter().find_map(|mutation| match mutation {
            Mutation::Note(Note::Attempt { outcome, .. }) => self.wait_after(outcome, fence),
            _ => None,
        });
        let mut decided = (self.at, Wall(0));
        if let (Some(wait), Some(Mutation::Write(write))) = (wait, ends.last_mut()) {
            decided = (wait.since, wait.wall);
            (write.state, write.due) = (JobState::Scheduled, wait.wall.plus(wait.span));
        }
        if let Some(Wait { span, is_asked_for: true, .. }) = wait
            && let Some((hold, worker)) = self.holder
        {
            let ending = Ending::Snoozed(span);
            let messages = [FromWorker::Report(Report { hold, ending })];
            let (session, number) = (SessionNo(1), MessageNo(1));
            self.observe(Observed::Arrived { worker, session, number, messages: &messages });
        }
        if !ends.is_empty() {
            self.commit_of(decided, &ends);
        }
    }

    /// How long the job waits at the least after an attempt under this fence that went so, and since when: as far
    /// as the attempt itself has written that down.
    fn wait_after(&self, outcome: &AttemptOutcome, fence: Fence) -> Option<Wait> {
        let run = self.runs.iter().find(|run| run.fence == fence.0)?;
        match outcome {
            AttemptOutcome::Failed(_) => run.end.map(|end| {
                let millis = shortest_wait(&self.spec.retry, self.attempts);
                let span = Millis(u32::try_from(millis).unwrap_or(u32::MAX));
                Wait { since: Monotonic(end.at), wall: end.wall, span, is_asked_for: false }
            }),
            AttemptOutcome::Snoozed => {
                let (since, wall) = (Monotonic(run.start), run.wall);
                Some(Wait { since, wall, span: SNOOZE, is_asked_for: true })
            }
            _ => None,
        }
    }

    /// What is noted of the last owner's attempt, and what is written of the job in the same breath.
    fn attempt_ends(&mut self, fence: Fence) -> Vec<Mutation> {
        let notes = self.notes_of_holder();
        if notes.is_empty() {
            return notes;
        }
        let mut write = JobWrite { fence, ..self.waiting() };
        if self.is_told_dead(fence) {
            write.state = JobState::Dead;
            self.end = Some((JobState::Dead, fence));
        }
        notes.into_iter().chain([Mutation::Write(write)]).collect()
    }

    /// Whether the job is dead under this fence: then it died by what gave it the fence.
    fn is_told_dead(&self, fence: Fence) -> bool {
        let kept = self.kept.map(|kept| (kept.row.now.state, kept.row.now.fence));
        let told = self.ends.iter().map(|end| (end.state, end.fence));
        told.chain(kept).any(|end| end == (JobState::Dead, fence))
    }

    fn notes_of_holder(&mut self) -> Vec<Mutation> {
        let Some((holder, _)) = self.holder else { return Vec::new() };
        let is_its = |note: &&Note| matches!(note, Note::Attempt { hold, .. } if *hold == holder);
        let (its, others) = std::mem::take(&mut self.notes).into_iter().partition(is_its);
        self.notes = others;
        let its: Vec<&Note> = its;
        for note in &its {
            let Note::Attempt { outcome, .. } = note else { continue };
            let (is_charged, is_suspected) = match outcome {
                AttemptOutcome::Failed(_) => (true, false),
                AttemptOutcome::LostAlone => (true, true),
                AttemptOutcome::LostAmongOthers => (false, true),
                AttemptOutcome::Snoozed | AttemptOutcome::Interrupted => (false, false),
            };
            self.attempts += u16::from(is_charged);
            self.suspicions += u8::from(is_suspected);
        }
        its.into_iter().cloned().map(Mutation::Note).collect()
    }

    /// An end, if it is one of its own making: who cancels and whose parents fail is not seen here.
    fn write_end(&mut self, state: JobState, fence: Fence) {
        let Some(kept) = self.kept else { return };
        if !matches!(state, JobState::Succeeded | JobState::Dead) {
            return;
        }
        self.end = Some((state, fence));
        self.let_go();
        let notes = self.notes_of_holder();
        let lost = notes.iter().filter_map(|note| match note {
            Mutation::Note(Note::Attempt {
                worker, outcome: AttemptOutcome::LostAlone, ..
            }) => Some(Mutation::Note(Note::WorkerLost { worker: *worker, jobs: 1 })),
            _ => None,
        });
        let mut mutations: Vec<Mutation> = lost.collect();
        mutations.extend(notes);
        let now = &kept.row.now;
        let is_last = (state, fence) == (now.state, now.fence);
        let attempts = if is_last { now.attempts } else { self.attempts };
        mutations.push(Mutation::Write(JobWrite { state, fence, attempts, ..*now }));
        self.commit(&mutations);
    }
}

/// Workers are told apart by the number of their process.
fn place(run: &Run) -> usize {
    usize::try_from(run.worker).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use filch_scheduler::record::Reason;
    use filch_scheduler::spec::{Backoff, Retry};
    use filch_sim::check::Rule;

    use super::*;
    use crate::process::{Known, this};
    use crate::runs::End as RunEnd;

    const SEQ: Seq = Seq(7);

    fn worker(number: u64) -> WorkerId {
        WorkerId::apart(number)
    }

    fn owner(fence: u64, worker: Option<u64>, cause: LeaseCause) -> OwnerChange {
        let hold = Hold { job: SEQ, fence: Fence(fence) };
        OwnerChange { hold, worker: worker.map(WorkerId::apart), cause, at: Wall(0) }
    }

    fn lost(fence: u64, number: u64) -> OwnerChange {
        owner(fence, None, LeaseCause::Lost(worker(number)))
    }

    fn claim(fence: u64, number: u64) -> OwnerChange {
        owner(fence, Some(number), LeaseCause::Claim)
    }

    fn note(fence: u64, number: u64, outcome: AttemptOutcome) -> (Wall, Note) {
        let hold = Hold { job: SEQ, fence: Fence(fence) };
        (Wall(0), Note::Attempt { hold, worker: worker(number), outcome })
    }

    /// An execution from `start` to `end`, or one that was killed.
    fn run(fence: u64, start: u64, end: Option<(Outcome, u64)>) -> Run {
        Run {
            fence,
            attempt: 1,
            // No process was ever born so late.
            process: Known { pid: 1, born: u64::MAX },
            worker: i32::try_from(fence).unwrap(),
            start,
            // The wall clock of these stories shows a millisecond more in each microsecond.
            wall: Wall(start),
            end: end.map(|(outcome, at)| RunEnd { outcome, at, wall: Wall(at) }),
            beside: None,
        }
    }

    fn done(at: u64) -> Option<(Outcome, u64)> {
        Some((Outcome::Done, at))
    }

    /// What the witnesses say of one job.
    struct Said {
        owners: Vec<OwnerChange>,
        notes: Vec<(Wall, Note)>,
        runs: Vec<Run>,
        told: Vec<(JobState, u64, u64)>,
        last: (JobState, u64, u16),
    }

    /// A first worker is lost in the middle of its run, and a second one does it.
    fn sound() -> Said {
        Said {
            owners: vec![claim(1, 1), lost(2, 1), claim(3, 2)],
            notes: vec![note(1, 1, AttemptOutcome::LostAlone)],
            runs: vec![run(1, 100, None), run(3, 200, done(300))],
            told: vec![(JobState::Succeeded, 3, 310)],
            last: (JobState::Succeeded, 3, 1),
        }
    }

    impl Said {
        fn history(&self) -> History {
            let id = JobId(1);
            let (state, fence, attempts) = self.last;
            let reason = (state == JobState::Dead).then_some(Reason::Failed);
            let now = JobWrite {
                job: SEQ,
                state,
                fence: Fence(fence),
                attempts,
                suspicions: 0,
                priority: 0,
                due: Wall(0),
                holder: None,
                reason,
                at: Wall(0),
            };
            let row = JobRow { seq: SEQ, spec: JobSpec::new(id), submitted_at: Wall(0), now };
            let (owners, notes) = (self.owners.clone(), self.notes.clone());
            History { row, payload: "".into(), owners, notes, outputs: Vec::new() }
        }

        fn rule(&self) -> Option<Rule> {
            self.rule_if_kept(Some(&self.history()))
        }

        fn rule_if_kept(&self, kept: Option<&History>) -> Option<Rule> {
            self.rule_after(&[], kept)
        }

        /// What it breaks where the wall clock has shown this before it was set.
        fn rule_after(&self, readings: &[Reading], kept: Option<&History>) -> Option<Rule> {
            let told = self.told.iter();
            let ends: Vec<End> = told
                .map(|&(state, fence, at)| End { job: JobId(1), state, fence: Fence(fence), at })
                .collect();
            let id = JobId(1);
            let (runs, is_acknowledged) = (&self.runs[..], true);
            let story = Story { id, is_acknowledged, ends: &ends, runs, kept, readings };
            story.violation().map(|violation| violation.rule)
        }
    }

    #[test]
    fn what_is_sound_breaks_no_rule() {
        assert_eq!(sound().rule(), None);
        let by_thieves = Said {
            owners: vec![claim(1, 1), owner(2, Some(2), LeaseCause::Steal(worker(1)))],
            notes: Vec::new(),
            runs: vec![run(2, 100, done(200))],
            told: Vec::new(),
            last: (JobState::Succeeded, 2, 0),
        };
        assert_eq!(by_thieves.rule(), None);
        let failed = || AttemptOutcome::Failed("exit code 1".into());
        let to_death = Said {
            owners: vec![claim(1, 1), claim(2, 1), claim(3, 2)],
            notes: vec![note(1, 1, failed()), note(2, 1, failed()), note(3, 2, failed())],
            runs: (1..=3)
                .map(|it| run(it, it * 100, Some((Outcome::Failed, it * 100 + 9))))
                .collect(),
            told: vec![(JobState::Dead, 3, 400)],
            last: (JobState::Dead, 3, 3),
        };
        let mut history = to_death.history();
        history.row.spec.retry = Retry { max: 3, backoff: Backoff::None, jitter_percent: 0 };
        assert_eq!(to_death.rule_if_kept(Some(&history)), None);
        // The last of them had failed as well, and its worker was killed before it could say so.
        let with_its_worker = Said {
            owners: [&to_death.owners[..], &[lost(4, 2)]].concat(),
            notes: [&to_death.notes[..2], &[note(3, 2, AttemptOutcome::LostAlone)]].concat(),
            told: vec![(JobState::Dead, 4, 400)],
            last: (JobState::Dead, 4, 3),
            ..to_death
        };
        let mut history = with_its_worker.history();
        history.row.spec.retry = Retry { max: 3, backoff: Backoff::None, jitter_percent: 0 };
        assert_eq!(with_its_worker.rule_if_kept(Some(&history)), None);
        history.row.spec.retry.max = 4;
        assert_eq!(with_its_worker.rule_if_kept(Some(&history)), Some(Rule::S9), "one was left");
    }

    #[test]
    fn a_job_that_is_gone_breaks_s1() {
        assert_eq!(Said { runs: Vec::new(), ..sound() }.rule_if_kept(None), Some(Rule::S1));
    }

    #[test]
    fn two_at_once_break_s2() {
        let late = Said { runs: vec![run(1, 100, done(201)), run(3, 200, done(300))], ..sound() };
        // That its worker was taken for lost meanwhile is the first thing that is wrong.
        assert_eq!(late.rule(), Some(Rule::S8));
        let handed_back =
            [claim(1, 1), owner(2, None, LeaseCause::Returned(worker(1))), claim(3, 2)];
        let late = Said { owners: handed_back.into(), notes: Vec::new(), ..late };
        assert_eq!(Said { last: (JobState::Succeeded, 3, 0), ..late }.rule(), Some(Rule::S2));
        let mut met = sound();
        met.runs[1].beside = Some(1);
        assert_eq!(met.rule(), Some(Rule::S8), "the second has met the first");
        let mut alive = sound();
        alive.runs[0].process = this();
        assert_eq!(alive.rule(), Some(Rule::S8), "the first is alive to this day");
        let stale = Said { runs: vec![run(3, 100, done(150)), run(1, 200, None)], ..sound() };
        assert_eq!(Said { told: Vec::new(), ..stale }.rule(), Some(Rule::S2), "a former owner");
        let nobodys = Said { runs: vec![run(4, 100, done(150))], ..sound() };
        assert_eq!(nobodys.rule(), Some(Rule::S2), "nobody ever gave it that fence");
    }

    #[test]
    fn two_successes_break_s3_and_so_does_one_that_nobody_achieved() {
        let twice = Said {
            runs: vec![run(1, 100, done(150)), run(3, 200, done(300))],
            told: vec![(JobState::Succeeded, 1, 160)],
            ..sound()
        };
        assert!(matches!(twice.rule(), Some(Rule::S3 | Rule::S5)), "{:?}", twice.rule());
        let never = Said { runs: vec![run(1, 100, None), run(3, 200, None)], ..sound() };
        assert_eq!(never.rule(), Some(Rule::S3));
    }

    #[test]
    fn whatever_comes_after_an_end_breaks_s5() {
        let late =
            Said { told: vec![(JobState::Succeeded, 3, 310), (JobState::Dead, 3, 320)], ..sound() };
        assert_eq!(late.rule(), Some(Rule::S5));
        let mut again = sound();
        again.owners.push(claim(4, 1));
        assert!(matches!(again.rule(), Some(Rule::S3 | Rule::S5 | Rule::S4)), "{:?}", again.rule());
    }

    #[test]
    fn a_fence_that_does_not_grow_breaks_s7() {
        let mut same = sound();
        same.owners[2] = claim(2, 2);
        same.runs[1] = run(2, 200, done(300));
        (same.told, same.last) = (Vec::new(), (JobState::Succeeded, 2, 1));
        assert_eq!(same.rule(), Some(Rule::S7));
    }

    #[test]
    fn a_charge_for_nothing_breaks_s9() {
        let failed = AttemptOutcome::Failed("killed by signal 9".into());
        let unearned = Said {
            owners: vec![claim(1, 1), claim(2, 2)],
            notes: vec![note(1, 1, failed)],
            runs: vec![run(1, 100, None), run(2, 200, done(300))],
            told: Vec::new(),
            last: (JobState::Succeeded, 2, 1),
        };
        assert_eq!(unearned.rule(), Some(Rule::S9), "it was killed, and did not fail");
        let unnoted = Said { last: (JobState::Succeeded, 3, 2), ..sound() };
        assert_eq!(unnoted.rule(), Some(Rule::S9), "of one of two charges nobody knows why");
        let twice = Said { runs: vec![run(3, 100, None), run(3, 200, done(300))], ..sound() };
        assert_eq!(twice.rule(), Some(Rule::S9), "one fence, two starts");
    }

    /// A job for a moment, which is run at once.
    fn planned() -> Said {
        Said {
            owners: vec![claim(1, 1)],
            notes: Vec::new(),
            runs: vec![run(1, 200, done(300))],
            told: vec![(JobState::Succeeded, 1, 310)],
            last: (JobState::Succeeded, 1, 0),
        }
    }

    #[test]
    fn a_start_before_its_moment_breaks_s11() {
        let rule = |not_before: u64, readings: &[Reading]| {
            let said = planned();
            let mut history = said.history();
            history.row.spec.not_before = Some(Wall(not_before));
            said.rule_after(readings, Some(&history))
        };
        assert_eq!(rule(200, &[]), None);
        assert_eq!(rule(201, &[]), Some(Rule::S11));
        let set_back = |at, wall| [Reading { at, wall: Wall(wall) }];
        assert_eq!(rule(201, &set_back(150, 900)), None, "it was due before the clock went back");
        assert_eq!(rule(901, &set_back(150, 900)), Some(Rule::S11), "not even then");
        assert_eq!(rule(201, &set_back(250, 900)), Some(Rule::S11), "that was later");
    }

    #[test]
    fn a_claim_that_was_never_run_is_held_to_its_moment_by_the_word_of_the_store() {
        let rule = |claimed_at: u64| {
            let mut said = planned();
            (said.runs, said.told) = (Vec::new(), Vec::new());
            said.last = (JobState::Queued, 1, 0);
            said.owners[0].at = Wall(claimed_at);
            let mut history = said.history();
            history.row.spec.not_before = Some(Wall(200));
            said.rule_if_kept(Some(&history))
        };
        assert_eq!(rule(200), None);
        assert_eq!(rule(199), Some(Rule::S11));
    }

    #[test]
    fn a_wait_after_a_failure_that_is_too_short_breaks_s11() {
        let rule =
            |backoff: Backoff, jitter_percent: u8, starts: [u64; 3], readings: &[Reading]| {
                let failed = |fence| note(fence, 1, AttemptOutcome::Failed("no".into()));
                let fails =
                    |fence, start: u64| run(fence, start, Some((Outcome::Failed, start + 10)));
                let [first, second, third] = starts;
                let said = Said {
                    owners: vec![claim(1, 1), claim(2, 1), claim(3, 1)],
                    notes: vec![failed(1), failed(2)],
                    runs: vec![fails(1, first), fails(2, second), run(3, third, done(third + 10))],
                    told: Vec::new(),
                    last: (JobState::Succeeded, 3, 2),
                };
                let mut history = said.history();
                history.row.spec.retry = Retry { max: 3, backoff, jitter_percent };
                said.rule_after(readings, Some(&history))
            };
        let fixed = Backoff::Fixed(Millis(50));
        assert_eq!(rule(fixed, 0, [100, 160, 220], &[]), None);
        assert_eq!(rule(fixed, 0, [100, 159, 220], &[]), Some(Rule::S11));
        assert_eq!(rule(fixed, 0, [100, 160, 219], &[]), Some(Rule::S11));
        assert_eq!(rule(fixed, 20, [100, 150, 200], &[]), None, "it may be a fifth shorter");
        assert_eq!(rule(fixed, 20, [100, 149, 200], &[]), Some(Rule::S11));
        assert_eq!(rule(Backoff::None, 0, [100, 110, 120], &[]), None);
        let double =
            Backoff::Exponential { base: Millis(50), factor_percent: 200, cap: Millis(500) };
        assert_eq!(rule(double, 0, [100, 160, 270], &[]), None);
        assert_eq!(rule(double, 0, [100, 160, 269], &[]), Some(Rule::S11), "it was to double");
        let set_back = |at| [Reading { at, wall: Wall(900) }];
        assert_eq!(rule(fixed, 0, [100, 120, 180], &set_back(115)), None, "it was due meanwhile");
        let before = rule(fixed, 0, [100, 120, 180], &set_back(105));
        assert_eq!(before, Some(Rule::S11), "that was before it had failed");
    }

    #[test]
    fn a_wait_through_no_fault_of_its_own_that_is_too_short_breaks_s11() {
        let rule = |again: u64| {
            let said = Said {
                owners: vec![claim(1, 1), claim(2, 1)],
                notes: vec![note(1, 1, AttemptOutcome::Snoozed)],
                runs: vec![run(1, 100, None), run(2, again, done(again + 10))],
                told: Vec::new(),
                last: (JobState::Succeeded, 2, 0),
            };
            said.rule()
        };
        assert_eq!(rule(1_100), None);
        assert_eq!(rule(1_099), Some(Rule::S11));
    }
}
