//! The history of one job and of the processes that ran it, replayed to the simulator's rules.
//!
//! It comes from three independent sources: clients, to which the server has confirmed that the job
//! is stored and perhaps how it ended ([`crate::client_log`]); its executions, which recorded when
//! they ran ([`crate::runs`]); and the store, read when no server has it open, which has the owners
//! in the order of their fences, the attempts that failed, and the last state.
//!
//! Observations with a time are replayed in that order. Times in the store cannot be compared with
//! those of processes, so changes of owner are replayed as late as possible: when the new owner
//! starts to run the job. What only a message would show is taken from the store, so the rules
//! about messages cannot be broken here; limits concern all jobs of a queue
//! ([`crate::queue_runs`]), and parents are checked by [`crate::check`].
//!
//! Whether a job was due is decided by the wall clock of its executions, which is the server's:
//! when one starts, the clock must show at least the time for which the job waits, or have shown it
//! before it was set back. After a failure this is the end of the failed execution plus the
//! shortest wait that the job's settings allow: the server learns of the failure later. A command
//! that could not be run to its end, through no fault of its own, waits for a second after it has
//! started.

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

use crate::client_log::ReportedEnd;
use crate::constraints::ClockReading;
use crate::runs::{JobRun, RunOutcome};

/// Everything that is known of one job.
#[derive(Clone, Debug)]
pub struct JobHistory<'a> {
    /// Its id.
    pub id: JobId,
    /// Whether its submit was acknowledged.
    pub is_acknowledged: bool,
    /// The ends that the server has shown to clients.
    pub ends: &'a [ReportedEnd],
    /// Its executions, in the order of their starts.
    pub runs: &'a [JobRun],
    /// What the store contains of it.
    pub kept: Option<&'a History>,
    /// What the wall clock showed before it was set, since the job exists.
    pub readings: &'a [ClockReading],
}

impl JobHistory<'_> {
    /// The first rule that it breaks, if any.
    #[must_use]
    pub fn violation(&self) -> Option<Violation> {
        let mut replay = Replay::new(self);
        replay.submit(self);
        for (at, moment) in moments(self) {
            replay.at = Monotonic(at.max(replay.at.0));
            match moment {
                Moment::Ended(run) => replay.ended(run),
                Moment::Started(run) => replay.started(run),
                Moment::Shown(end) => replay.shown(end),
                Moment::Read(wall) => replay.read(wall),
            }
        }
        replay.close();
        replay.checkers.violation().cloned()
    }
}

/// An observation with a time.
#[derive(Clone, Copy)]
enum Moment<'a> {
    Ended(&'a JobRun),
    Started(&'a JobRun),
    Shown(&'a ReportedEnd),
    Read(Wall),
}

/// In the order of time; at the same time an end comes before a start.
fn moments<'a>(history: &'a JobHistory<'_>) -> Vec<(u64, Moment<'a>)> {
    let mut moments = Vec::new();
    for (index, run) in history.runs.iter().enumerate() {
        let next = history.runs.get(index + 1);
        let was_met = history.runs.iter().any(|other| other.beside == Some(run.fence));
        // The time at which it was killed is unknown: before the next one looked, unless that one
        // saw it alive.
        let killed_at = || next.map_or(u64::MAX, |next| next.start);
        let is_over = run.end.is_some() || !(was_met || run.process.is_alive());
        if is_over {
            let at = run.end.map_or_else(killed_at, |end| end.at);
            moments.push((at, Moment::Ended(run)));
        }
        moments.push((run.start, Moment::Started(run)));
    }
    moments.extend(history.ends.iter().map(|end| (end.at, Moment::Shown(end))));
    let readings = history.readings.iter();
    moments.extend(readings.map(|reading| (reading.at, Moment::Read(reading.wall))));
    moments.sort_by_key(|&(at, moment)| {
        let order = match moment {
            Moment::Ended(run) if run.start == at => 2,
            Moment::Ended(_) => 0,
            Moment::Started(_) => 1,
            Moment::Shown(_) | Moment::Read(_) => 3,
        };
        (at, order)
    });
    moments
}

/// A wait before the next attempt.
#[derive(Clone, Copy)]
struct Wait {
    /// Its earliest beginning, since boot and by the wall clock.
    since: Monotonic,
    wall: Wall,
    span: Millis,
    /// Whether the worker has requested it.
    is_requested: bool,
}

/// The wait that a worker requests for a command that it could not run to its end.
const SNOOZE: Millis = Millis(1_000);

struct Replay<'a> {
    checkers: Checkers,
    at: Monotonic,
    seq: Seq,
    spec: JobSpec,
    kept: Option<&'a History>,
    runs: &'a [JobRun],
    /// Ends that the server has shown.
    ends: &'a [ReportedEnd],
    /// Changes of owner that are not replayed yet.
    owners: &'a [OwnerChange],
    /// The last owner and its fence.
    holder: Option<(Hold, WorkerId)>,
    /// Notes of attempts that are not replayed yet.
    notes: Vec<&'a Note>,
    attempts: u16,
    suspicions: u8,
    /// The end that was replayed last.
    end: Option<(JobState, Fence)>,
    commits: u64,
}

impl<'a> Replay<'a> {
    fn new(history: &JobHistory<'a>) -> Self {
        let kept = history.kept;
        let mut spec = kept.map_or_else(|| JobSpec::new(history.id), |kept| kept.row.spec.clone());
        // Parents have their own histories.
        spec.parents.clear();
        let notes = kept.into_iter().flat_map(|kept| &kept.notes).map(|(_, note)| note);
        Self {
            checkers: Checkers::new(None),
            at: Monotonic(0),
            seq: kept.map_or(Seq(0), |kept| kept.row.seq),
            spec,
            kept,
            runs: history.runs,
            ends: history.ends,
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

    /// A commit whose decision was made at an earlier time.
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

    fn submit(&mut self, history: &JobHistory<'_>) {
        let request = RequestNo(1);
        let what = Request::Submit(vec![self.spec.clone()]);
        self.observe(Observed::Asked { request, what: &what });
        if let Some(kept) = self.kept {
            let row = JobRow { spec: self.spec.clone(), now: self.waiting(), ..kept.row.clone() };
            self.commit(&[Mutation::Put(row)]);
        }
        if history.is_acknowledged {
            let (id, seq, novelty) = (history.id, self.seq, Novelty::New);
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
            last: None,
            reason: None,
            at: Default::default(),
        }
    }

    fn started(&mut self, run: &JobRun) {
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

    fn ended(&mut self, run: &JobRun) {
        let hold = Hold { job: self.seq, fence: Fence(run.fence) };
        let how = match run.end {
            Some(end) if end.outcome == RunOutcome::Done => ExecutionEnd::Finished,
            Some(_) => ExecutionEnd::Failed,
            None => ExecutionEnd::Killed,
        };
        self.observe(Observed::Ended { place: place(run), hold, how });
    }

    fn shown(&mut self, end: &ReportedEnd) {
        self.change_hands(end.fence, None);
        if self.end != Some((end.state, end.fence)) {
            self.write_end(end.state, end.fence);
        }
    }

    /// What is left, and the last state.
    fn close(&mut self) {
        self.change_hands(Fence(u64::MAX), None);
        if let Some(kept) = self.kept {
            let now = &kept.row.now;
            if self.end != Some((now.state, now.fence)) {
                self.write_end(now.state, now.fence);
            }
        }
    }

    /// Replays the owners of the job up to this fence, and what the clock showed when it was run
    /// under it. If it was not run, the time in the store is used.
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
                let notes = self.attempt_ends(owner.hold.fence);
                let mut lost = vec![loss_of(worker)];
                lost.extend(notes);
                lost
            }
            LeaseCause::Claim | LeaseCause::Steal(_) | LeaseCause::Returned(_) => {
                self.give_up();
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

    /// The last owner has given it up.
    fn give_up(&mut self) {
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
        if let Some(Wait { span, is_requested: true, .. }) = wait
            && let Some((hold, worker)) = self.holder
        {
            let ending = Ending::Snoozed(span);
            let messages = [FromWorker::Report(Report::plain(hold, ending))];
            let (session, number) = (SessionNo(1), MessageNo(1));
            self.observe(Observed::Arrived { worker, session, number, messages: &messages });
        }
        if !ends.is_empty() {
            self.commit_of(decided, &ends);
        }
    }

    /// How long the job has to wait at least after an attempt under this fence with this outcome,
    /// and since when, as far as the attempt has recorded that.
    fn wait_after(&self, outcome: &AttemptOutcome, fence: Fence) -> Option<Wait> {
        let run = self.runs.iter().find(|run| run.fence == fence.0)?;
        match outcome {
            AttemptOutcome::Failed(_) => run.end.map(|end| {
                let millis = shortest_wait(&self.spec.retry, self.attempts);
                let span = Millis(u32::try_from(millis).unwrap_or(u32::MAX));
                Wait { since: Monotonic(end.at), wall: end.wall, span, is_requested: false }
            }),
            AttemptOutcome::Snoozed => {
                let (since, wall) = (Monotonic(run.start), run.wall);
                Some(Wait { since, wall, span: SNOOZE, is_requested: true })
            }
            _ => None,
        }
    }

    /// The notes of the last owner's attempt, and the state of the job in the same commit.
    fn attempt_ends(&mut self, fence: Fence) -> Vec<Mutation> {
        let notes = self.notes_of_holder();
        if notes.is_empty() {
            return notes;
        }
        let mut write = JobWrite { fence, ..self.waiting() };
        if self.is_dead_under(fence) {
            write.state = JobState::Dead;
            self.end = Some((JobState::Dead, fence));
        }
        notes.into_iter().chain([Mutation::Write(write)]).collect()
    }

    /// Whether the job is dead under this fence: then the change that gave it the fence ended it.
    fn is_dead_under(&self, fence: Fence) -> bool {
        let kept = self.kept.map(|kept| (kept.row.now.state, kept.row.now.fence));
        let shown = self.ends.iter().map(|end| (end.state, end.fence));
        shown.chain(kept).any(|end| end == (JobState::Dead, fence))
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
                AttemptOutcome::Snoozed
                | AttemptOutcome::Interrupted
                | AttemptOutcome::Unstarted(_) => (false, false),
            };
            self.attempts += u16::from(is_charged);
            self.suspicions += u8::from(is_suspected);
        }
        its.into_iter().cloned().map(Mutation::Note).collect()
    }

    /// An end, if it is the result of an attempt: cancels and failed parents are not seen here.
    fn write_end(&mut self, state: JobState, fence: Fence) {
        let Some(kept) = self.kept else { return };
        if !matches!(state, JobState::Succeeded | JobState::Dead) {
            return;
        }
        self.end = Some((state, fence));
        self.give_up();
        let notes = self.notes_of_holder();
        let lost = notes.iter().filter_map(|note| match note {
            Mutation::Note(Note::Attempt {
                worker, outcome: AttemptOutcome::LostAlone, ..
            }) => Some(loss_of(*worker)),
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

/// Workers are distinguished by their process ids.
fn place(run: &JobRun) -> usize {
    usize::try_from(run.worker).unwrap_or_default()
}

/// A worker is lost. A job's history does not tell what else the worker held, or what else could
/// have caused the loss: so it counts as more jobs than this one, and who is charged is not judged.
const fn loss_of(worker: WorkerId) -> Mutation {
    Mutation::Note(Note::WorkerLost { worker, jobs: u32::MAX })
}

#[cfg(test)]
mod tests {
    use filch_scheduler::record::Reason;
    use filch_scheduler::spec::{Backoff, Retry};
    use filch_sim::check::Rule;

    use super::*;
    use crate::process::{ProcessIdentity, this};
    use crate::runs::RunEnd;

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
    fn run(fence: u64, start: u64, end: Option<(RunOutcome, u64)>) -> JobRun {
        JobRun {
            fence,
            attempt: 1,
            // No process has this start time.
            process: ProcessIdentity { pid: 1, born: u64::MAX },
            worker: i32::try_from(fence).unwrap(),
            start,
            // In these histories the wall clock advances by a millisecond in each microsecond.
            wall: Wall(start),
            end: end.map(|(outcome, at)| RunEnd { outcome, at, wall: Wall(at) }),
            beside: None,
        }
    }

    fn done(at: u64) -> Option<(RunOutcome, u64)> {
        Some((RunOutcome::Done, at))
    }

    /// The history of one job, as the sources show it.
    struct Sources {
        owners: Vec<OwnerChange>,
        notes: Vec<(Wall, Note)>,
        runs: Vec<JobRun>,
        shown: Vec<(JobState, u64, u64)>,
        last: (JobState, u64, u16),
    }

    /// A first worker is lost in the middle of its run, and a second one does it.
    fn sound() -> Sources {
        Sources {
            owners: vec![claim(1, 1), lost(2, 1), claim(3, 2)],
            notes: vec![note(1, 1, AttemptOutcome::LostAlone)],
            runs: vec![run(1, 100, None), run(3, 200, done(300))],
            shown: vec![(JobState::Succeeded, 3, 310)],
            last: (JobState::Succeeded, 3, 1),
        }
    }

    impl Sources {
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
                last: None,
                reason,
                at: Wall(0),
            };
            let row = JobRow { seq: SEQ, spec: JobSpec::new(id), submitted_at: Wall(0), now };
            let (owners, notes) = (self.owners.clone(), self.notes.clone());
            History {
                row,
                payload: "".into(),
                owners,
                notes,
                outputs: Vec::new(),
                may_be_more: false,
            }
        }

        fn rule(&self) -> Option<Rule> {
            self.rule_if_kept(Some(&self.history()))
        }

        fn rule_if_kept(&self, kept: Option<&History>) -> Option<Rule> {
            self.rule_after(&[], kept)
        }

        /// The rule that it breaks if the wall clock has shown this before it was set.
        fn rule_after(&self, readings: &[ClockReading], kept: Option<&History>) -> Option<Rule> {
            let shown = self.shown.iter();
            let ends: Vec<ReportedEnd> = shown
                .map(|&(state, fence, at)| ReportedEnd {
                    job: JobId(1),
                    state,
                    fence: Fence(fence),
                    at,
                })
                .collect();
            let id = JobId(1);
            let (runs, is_acknowledged) = (&self.runs[..], true);
            let history = JobHistory { id, is_acknowledged, ends: &ends, runs, kept, readings };
            history.violation().map(|violation| violation.rule)
        }
    }

    #[test]
    fn a_sound_history_breaks_no_rule() {
        assert_eq!(sound().rule(), None);
        let by_thieves = Sources {
            owners: vec![claim(1, 1), owner(2, Some(2), LeaseCause::Steal(worker(1)))],
            notes: Vec::new(),
            runs: vec![run(2, 100, done(200))],
            shown: Vec::new(),
            last: (JobState::Succeeded, 2, 0),
        };
        assert_eq!(by_thieves.rule(), None);
        let failed = || AttemptOutcome::Failed("exit code 1".into());
        let to_death = Sources {
            owners: vec![claim(1, 1), claim(2, 1), claim(3, 2)],
            notes: vec![note(1, 1, failed()), note(2, 1, failed()), note(3, 2, failed())],
            runs: (1..=3)
                .map(|it| run(it, it * 100, Some((RunOutcome::Failed, it * 100 + 9))))
                .collect(),
            shown: vec![(JobState::Dead, 3, 400)],
            last: (JobState::Dead, 3, 3),
        };
        let mut history = to_death.history();
        history.row.spec.retry = Retry { max: 3, backoff: Backoff::None, jitter_percent: 0 };
        assert_eq!(to_death.rule_if_kept(Some(&history)), None);
        // The last attempt had failed as well, and its worker was killed before it could report
        // that.
        let with_its_worker = Sources {
            owners: [&to_death.owners[..], &[lost(4, 2)]].concat(),
            notes: [&to_death.notes[..2], &[note(3, 2, AttemptOutcome::LostAlone)]].concat(),
            shown: vec![(JobState::Dead, 4, 400)],
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
    fn a_lost_job_breaks_s1() {
        assert_eq!(Sources { runs: Vec::new(), ..sound() }.rule_if_kept(None), Some(Rule::S1));
    }

    #[test]
    fn two_executions_at_once_break_s2() {
        let late =
            Sources { runs: vec![run(1, 100, done(201)), run(3, 200, done(300))], ..sound() };
        // The first violation is that its worker was declared lost meanwhile.
        assert_eq!(late.rule(), Some(Rule::S8));
        let handed_back =
            [claim(1, 1), owner(2, None, LeaseCause::Returned(worker(1))), claim(3, 2)];
        let late = Sources { owners: handed_back.into(), notes: Vec::new(), ..late };
        assert_eq!(Sources { last: (JobState::Succeeded, 3, 0), ..late }.rule(), Some(Rule::S2));
        let mut met = sound();
        met.runs[1].beside = Some(1);
        assert_eq!(met.rule(), Some(Rule::S8), "the second saw the first alive");
        let mut alive = sound();
        alive.runs[0].process = this();
        assert_eq!(alive.rule(), Some(Rule::S8), "the first is still alive");
        let stale = Sources { runs: vec![run(3, 100, done(150)), run(1, 200, None)], ..sound() };
        assert_eq!(Sources { shown: Vec::new(), ..stale }.rule(), Some(Rule::S2), "a former owner");
        let unknown = Sources { runs: vec![run(4, 100, done(150))], ..sound() };
        assert_eq!(unknown.rule(), Some(Rule::S2), "no owner has this fence");
    }

    #[test]
    fn two_successes_break_s3_and_so_does_one_without_an_execution() {
        let twice = Sources {
            runs: vec![run(1, 100, done(150)), run(3, 200, done(300))],
            shown: vec![(JobState::Succeeded, 1, 160)],
            ..sound()
        };
        assert!(matches!(twice.rule(), Some(Rule::S3 | Rule::S5)), "{:?}", twice.rule());
        let never = Sources { runs: vec![run(1, 100, None), run(3, 200, None)], ..sound() };
        assert_eq!(never.rule(), Some(Rule::S3));
    }

    #[test]
    fn any_change_after_an_end_breaks_s5() {
        let late = Sources {
            shown: vec![(JobState::Succeeded, 3, 310), (JobState::Dead, 3, 320)],
            ..sound()
        };
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
        (same.shown, same.last) = (Vec::new(), (JobState::Succeeded, 2, 1));
        assert_eq!(same.rule(), Some(Rule::S7));
    }

    #[test]
    fn an_attempt_charged_without_a_failure_breaks_s9() {
        let failed = AttemptOutcome::Failed("killed by signal 9".into());
        let unearned = Sources {
            owners: vec![claim(1, 1), claim(2, 2)],
            notes: vec![note(1, 1, failed)],
            runs: vec![run(1, 100, None), run(2, 200, done(300))],
            shown: Vec::new(),
            last: (JobState::Succeeded, 2, 1),
        };
        assert_eq!(unearned.rule(), Some(Rule::S9), "it was killed, and did not fail");
        let unnoted = Sources { last: (JobState::Succeeded, 3, 2), ..sound() };
        assert_eq!(unnoted.rule(), Some(Rule::S9), "one of two charges has no reason");
        let twice = Sources { runs: vec![run(3, 100, None), run(3, 200, done(300))], ..sound() };
        assert_eq!(twice.rule(), Some(Rule::S9), "one fence, two starts");
    }

    /// A scheduled job that is run at once.
    fn planned() -> Sources {
        Sources {
            owners: vec![claim(1, 1)],
            notes: Vec::new(),
            runs: vec![run(1, 200, done(300))],
            shown: vec![(JobState::Succeeded, 1, 310)],
            last: (JobState::Succeeded, 1, 0),
        }
    }

    #[test]
    fn a_start_before_the_scheduled_time_breaks_s11() {
        let rule = |not_before: u64, readings: &[ClockReading]| {
            let sources = planned();
            let mut history = sources.history();
            history.row.spec.not_before = Some(Wall(not_before));
            sources.rule_after(readings, Some(&history))
        };
        assert_eq!(rule(200, &[]), None);
        assert_eq!(rule(201, &[]), Some(Rule::S11));
        let set_back = |at, wall| [ClockReading { at, wall: Wall(wall) }];
        assert_eq!(rule(201, &set_back(150, 900)), None, "it was due before the clock went back");
        assert_eq!(rule(901, &set_back(150, 900)), Some(Rule::S11), "not even then");
        assert_eq!(rule(201, &set_back(250, 900)), Some(Rule::S11), "that was later");
    }

    #[test]
    fn a_claim_that_was_never_run_is_checked_by_its_time_in_the_store() {
        let rule = |claimed_at: u64| {
            let mut sources = planned();
            (sources.runs, sources.shown) = (Vec::new(), Vec::new());
            sources.last = (JobState::Queued, 1, 0);
            sources.owners[0].at = Wall(claimed_at);
            let mut history = sources.history();
            history.row.spec.not_before = Some(Wall(200));
            sources.rule_if_kept(Some(&history))
        };
        assert_eq!(rule(200), None);
        assert_eq!(rule(199), Some(Rule::S11));
    }

    #[test]
    fn a_backoff_that_is_too_short_breaks_s11() {
        let rule =
            |backoff: Backoff, jitter_percent: u8, starts: [u64; 3], readings: &[ClockReading]| {
                let failed = |fence| note(fence, 1, AttemptOutcome::Failed("no".into()));
                let fails =
                    |fence, start: u64| run(fence, start, Some((RunOutcome::Failed, start + 10)));
                let [first, second, third] = starts;
                let sources = Sources {
                    owners: vec![claim(1, 1), claim(2, 1), claim(3, 1)],
                    notes: vec![failed(1), failed(2)],
                    runs: vec![fails(1, first), fails(2, second), run(3, third, done(third + 10))],
                    shown: Vec::new(),
                    last: (JobState::Succeeded, 3, 2),
                };
                let mut history = sources.history();
                history.row.spec.retry = Retry { max: 3, backoff, jitter_percent };
                sources.rule_after(readings, Some(&history))
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
        assert_eq!(
            rule(double, 0, [100, 160, 269], &[]),
            Some(Rule::S11),
            "it should have doubled"
        );
        let set_back = |at| [ClockReading { at, wall: Wall(900) }];
        assert_eq!(rule(fixed, 0, [100, 120, 180], &set_back(115)), None, "it was due meanwhile");
        let before = rule(fixed, 0, [100, 120, 180], &set_back(105));
        assert_eq!(before, Some(Rule::S11), "that was before it had failed");
    }

    #[test]
    fn a_snooze_that_is_too_short_breaks_s11() {
        let rule = |again: u64| {
            let sources = Sources {
                owners: vec![claim(1, 1), claim(2, 1)],
                notes: vec![note(1, 1, AttemptOutcome::Snoozed)],
                runs: vec![run(1, 100, None), run(2, again, done(again + 10))],
                shown: Vec::new(),
                last: (JobState::Succeeded, 2, 0),
            };
            sources.rule()
        };
        assert_eq!(rule(1_100), None);
        assert_eq!(rule(1_099), Some(Rule::S11));
    }
}
