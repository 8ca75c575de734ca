//! Retention inside the server's engine: a store that answers when the test lets it, and virtual
//! time.

use std::collections::VecDeque;
use std::time::Duration;

use filch_engine::server::{
    RetentionJob, ServerAction, ServerEngine, ServerInput, SliceOutcome, Ticket,
};
use filch_scheduler::dispatch::{Dispatch, DispatchConfig, Limits, Request};
use filch_scheduler::id::JobId;
use filch_scheduler::record::{Mutation, StoredText};
use filch_scheduler::spec::JobSpec;
use filch_scheduler::time::{Monotonic, Now, Wall};
use filch_store::{Commit, Store as _, Transient};

const HOUR: Duration = Duration::from_secs(3_600);
const RETENTION: Duration = Duration::from_secs(24 * 3_600);

/// An engine, its store, and what it did.
struct Rig {
    engine: ServerEngine,
    now: Now,
    store: Transient,
    follow: VecDeque<ServerInput>,
    /// Commits that are not durable yet, and reads that are not answered yet.
    commits: VecDeque<Commit>,
    reads: VecDeque<ServerAction>,
    are_commits_held: bool,
    are_reads_held: bool,
    do_reads_fail: bool,
    /// How many rows each commit of retention removes.
    purges: Vec<usize>,
    slices: Vec<(Option<Ticket>, SliceOutcome)>,
    jobs: u32,
}

impl Rig {
    fn new() -> Self {
        Self::with(DispatchConfig::default())
    }

    fn with(config: DispatchConfig) -> Self {
        let now = Now { monotonic: Monotonic(0), wall: Wall(1_000_000_000_000) };
        let mut actions = Vec::new();
        let dispatch = Dispatch::new(config, now);
        let kept = Some(RETENTION);
        let engine = ServerEngine::new(dispatch, Vec::new(), kept, now, now, &mut actions);
        let mut rig = Self {
            engine,
            now,
            store: Transient::default(),
            follow: VecDeque::new(),
            commits: VecDeque::new(),
            reads: VecDeque::new(),
            are_commits_held: false,
            are_reads_held: false,
            do_reads_fail: false,
            purges: Vec::new(),
            slices: Vec::new(),
            jobs: 0,
        };
        rig.perform(actions);
        rig.settle();
        rig
    }

    fn feed(&mut self, input: ServerInput) {
        self.follow.push_back(input);
        self.settle();
    }

    /// Goes on until nothing is left to do, except what is held.
    fn settle(&mut self) {
        loop {
            if let Some(input) = self.follow.pop_front() {
                let mut actions = Vec::new();
                self.engine.handle(self.now, input, &mut actions);
                self.perform(actions);
            } else if !self.are_commits_held
                && let Some(commit) = self.commits.pop_front()
            {
                self.store.commit(&commit).expect("decisions can be stored");
                self.follow.push_back(ServerInput::Committed(commit.last));
            } else if !self.are_reads_held
                && let Some(read) = self.reads.pop_front()
            {
                let answer = self.answer(&read);
                self.follow.push_back(answer);
            } else {
                return;
            }
        }
    }

    fn answer(&self, read: &ServerAction) -> ServerInput {
        match *read {
            _ if self.do_reads_fail => ServerInput::RetentionFailed,
            ServerAction::ReadExpired { after, before, limit } => {
                let found = self.store.expired(after, before, limit);
                ServerInput::Expired(found.expect("memory can be read"))
            }
            ServerAction::ReadOutdated { after, ref recent, limit } => {
                let found = self.store.outdated(after, recent, limit);
                ServerInput::Outdated(found.expect("memory can be read"))
            }
            ref other => panic!("{other:?} is no read of retention"),
        }
    }

    fn perform(&mut self, actions: Vec<ServerAction>) {
        for action in actions {
            match action {
                ServerAction::Commit(commit) => {
                    for mutation in &commit.mutations {
                        if let Mutation::Purge(jobs) = mutation {
                            self.purges.push(jobs.len());
                        }
                    }
                    self.commits.push_back(commit);
                }
                ServerAction::Fetch { fetch, ids, keys, seqs } => {
                    let found = self.store.find(&ids, &keys, &seqs).expect("memory can be read");
                    self.follow.push_back(ServerInput::Fetched { fetch, found });
                }
                read @ (ServerAction::ReadExpired { .. } | ServerAction::ReadOutdated { .. }) => {
                    self.reads.push_back(read);
                    assert_eq!(self.reads.len(), 1, "one step of one slice at a time");
                }
                ServerAction::SliceDone { ticket, outcome, .. } => {
                    self.slices.push((ticket, outcome));
                }
                _ => {}
            }
        }
    }

    fn ask(&mut self, request: Request) {
        self.feed(ServerInput::Request { ticket: Ticket(0), by: None, request });
    }

    /// Submits jobs and ends them, in two commits: all wait for the first, which is cancelled.
    fn end_jobs(&mut self, count: u32) {
        let id = |number: u32| JobId::named(&format!("j{number}"), Wall(1)).expect("a short name");
        let first = self.jobs + 1;
        self.jobs += count;
        let jobs = (first..=self.jobs).map(|number| JobSpec {
            payload: Some(StoredText::from("{}")),
            parents: if number == first { Vec::new() } else { vec![id(first)] },
            ..JobSpec::new(id(number))
        });
        self.ask(Request::Submit(jobs.collect()));
        self.ask(Request::Cancel(id(first)));
    }

    fn stored(&self) -> usize {
        let everything = Wall(u64::MAX);
        self.store.expired(None, everything, usize::MAX).expect("memory can be read").len()
    }

    /// Time passes on both clocks, without a pause in which the engine is not called.
    fn wait(&mut self, span: Duration) {
        self.now.monotonic = self.now.monotonic.plus(span);
        self.now.wall = Wall(self.now.wall.0 + span.as_millis() as u64);
        self.feed(ServerInput::Tick);
    }

    /// The wall clock is set.
    fn jump(&mut self, by_ms: i64) {
        self.now.wall = Wall(self.now.wall.0.saturating_add_signed(by_ms));
        self.feed(ServerInput::Tick);
    }

    /// An idle moment for each job of retention, as long as there is anything to do.
    fn idle(&mut self) {
        for _ in 0..1_000 {
            if !self.engine.retention().may_begin() {
                return;
            }
            for job in RetentionJob::ALL {
                self.moment(job, 500, None);
            }
        }
        panic!("retention is always due");
    }

    fn moment(&mut self, job: RetentionJob, rows: usize, until: Option<Monotonic>) {
        self.feed(ServerInput::RetentionMoment { ticket: Ticket(7), job, rows, until });
    }
}

fn millis(span: Duration) -> i64 {
    span.as_millis() as i64
}

#[test]
fn jobs_are_purged_after_their_retention_a_hundred_at_a_time_and_not_before() {
    let mut rig = Rig::new();
    rig.end_jobs(250);
    rig.wait(RETENTION);
    rig.idle();
    assert_eq!(rig.stored(), 250, "purged too early");
    rig.wait(Duration::from_millis(1));
    rig.idle();
    assert_eq!((rig.stored(), &rig.purges[..]), (0, &[100, 100, 50][..]));
    assert_eq!(rig.engine.retention().totals().jobs_purged, 250);
    assert_eq!(rig.engine.retention().overdue_since_ms(), None);
}

#[test]
fn eight_commits_are_followed_by_a_slice_and_slices_by_none() {
    let mut rig = Rig::new();
    rig.idle();
    rig.end_jobs(600);
    rig.wait(2 * RETENTION);
    let before = rig.slices.len();
    rig.end_jobs(1);
    rig.end_jobs(1);
    assert_eq!((rig.slices.len(), &rig.purges[..]), (before, &[][..]), "six commits");
    rig.end_jobs(1);
    assert_eq!(rig.purges, [100; 6]);
    assert_eq!(rig.slices[before..], [(None, SliceOutcome::Done)]);
    // The ledger is still to be trimmed.
    rig.wait(Duration::from_secs(1));
    assert!(rig.engine.retention().may_begin());
    assert_eq!(rig.slices.len(), before + 1);
}

#[test]
fn a_step_ends_when_its_commit_is_durable() {
    let mut rig = Rig::new();
    rig.end_jobs(150);
    rig.wait(2 * RETENTION);
    rig.are_commits_held = true;
    rig.moment(RetentionJob::Purge, 500, None);
    assert_eq!((&rig.purges[..], rig.reads.len()), (&[100][..], 0));
    // Another one is refused meanwhile.
    rig.moment(RetentionJob::Purge, 500, None);
    assert_eq!(rig.slices.last(), Some(&(Some(Ticket(7)), SliceOutcome::NoWork)));
    rig.are_commits_held = false;
    rig.settle();
    assert_eq!(rig.purges, [100, 50]);
    assert_eq!(rig.slices.last(), Some(&(Some(Ticket(7)), SliceOutcome::Done)));
}

#[test]
fn a_slice_in_an_idle_moment_begins_no_step_after_its_time() {
    let mut rig = Rig::new();
    rig.end_jobs(350);
    rig.wait(2 * RETENTION);
    rig.moment(RetentionJob::Purge, 200, None);
    assert_eq!(rig.purges, [100, 100], "as many rows as it may look at");
    let until = rig.now.monotonic;
    rig.moment(RetentionJob::Purge, 500, Some(until));
    assert_eq!(rig.purges, [100, 100, 100]);
    assert_eq!(rig.slices.last(), Some(&(Some(Ticket(7)), SliceOutcome::Done)));
    assert!(rig.engine.retention().overdue_since_ms().is_some());
}

#[test]
fn no_step_begins_while_the_scheduler_is_full() {
    let limits = Limits { unreceipted: 4, ..Limits::default() };
    let mut rig = Rig::with(DispatchConfig { limits, ..DispatchConfig::default() });
    rig.end_jobs(1);
    rig.wait(2 * RETENTION);
    rig.are_reads_held = true;
    rig.moment(RetentionJob::Purge, 500, None);
    assert_eq!(rig.reads.len(), 1);
    rig.are_commits_held = true;
    while rig.engine.takes_requests() {
        rig.end_jobs(1);
    }
    // What was read is not proposed, and read again once there is room.
    rig.are_reads_held = false;
    rig.settle();
    assert!(rig.purges.is_empty() && rig.reads.is_empty());
    rig.are_commits_held = false;
    rig.settle();
    assert_eq!(rig.purges, [1]);
}

#[test]
fn after_a_failed_read_retention_goes_on_half_a_minute_later() {
    let mut rig = Rig::new();
    rig.end_jobs(10);
    rig.wait(2 * RETENTION);
    rig.do_reads_fail = true;
    rig.moment(RetentionJob::Purge, 500, None);
    assert_eq!(rig.slices.last(), Some(&(Some(Ticket(7)), SliceOutcome::Failed)));
    rig.do_reads_fail = false;
    rig.wait(Duration::from_secs(29));
    rig.moment(RetentionJob::Purge, 500, None);
    assert_eq!(rig.stored(), 10);
    rig.wait(Duration::from_secs(1));
    rig.moment(RetentionJob::Purge, 500, None);
    assert_eq!(rig.stored(), 0);
}

#[test]
fn a_server_that_keeps_everything_reads_nothing() {
    let now = Now { monotonic: Monotonic(0), wall: Wall(1_000_000_000_000) };
    let dispatch = Dispatch::new(DispatchConfig::default(), now);
    let mut engine = ServerEngine::new(dispatch, Vec::new(), None, now, now, &mut Vec::new());
    assert!(!engine.retention().may_begin());
    assert_eq!(engine.retention().next_moment(), None);
    let (ticket, job) = (Ticket(1), RetentionJob::Purge);
    let mut actions = Vec::new();
    let input = ServerInput::RetentionMoment { ticket, job, rows: 500, until: None };
    engine.handle(now, input, &mut actions);
    assert!(matches!(actions[..], [ServerAction::SliceDone { .. }]), "{actions:?}");
}

#[test]
fn after_a_jump_forward_jobs_are_kept_for_their_retention_by_the_monotonic_clock() {
    let mut rig = Rig::new();
    rig.end_jobs(3);
    rig.wait(HOUR);
    rig.jump(30 * millis(RETENTION));
    rig.idle();
    assert_eq!(rig.stored(), 3, "the jump purged them");
    rig.end_jobs(2);
    rig.wait(RETENTION.checked_sub(HOUR).unwrap());
    rig.idle();
    assert_eq!(rig.stored(), 5, "the jump purged them later");
    // Those from before the jump are due first.
    rig.wait(Duration::from_millis(1));
    rig.idle();
    assert_eq!(rig.stored(), 2);
    rig.wait(HOUR);
    rig.idle();
    assert_eq!(rig.stored(), 0);
}

#[test]
fn jobs_that_ended_while_the_clock_was_ahead_are_purged_although_it_was_set_back() {
    let mut rig = Rig::new();
    rig.wait(HOUR);
    rig.jump(365 * millis(RETENTION));
    rig.end_jobs(3);
    rig.wait(HOUR);
    rig.jump(-365 * millis(RETENTION));
    rig.end_jobs(2);
    for _ in 0..24 {
        rig.idle();
        assert_eq!(rig.stored(), 5, "purged too early");
        rig.wait(HOUR);
    }
    // Times in the future are looked for once an hour.
    rig.wait(HOUR);
    rig.idle();
    assert_eq!(rig.stored(), 0);
    let totals = rig.engine.retention().totals();
    assert_eq!(totals.jobs_purged, 5);
}

#[test]
fn a_small_jump_back_keeps_jobs_until_the_wall_clock_agrees() {
    let mut rig = Rig::new();
    rig.wait(2 * HOUR);
    rig.end_jobs(1);
    rig.jump(-millis(HOUR));
    rig.wait(RETENTION + Duration::from_millis(1));
    rig.idle();
    assert_eq!(rig.stored(), 1);
    rig.wait(HOUR);
    rig.idle();
    assert_eq!(rig.stored(), 0);
}
