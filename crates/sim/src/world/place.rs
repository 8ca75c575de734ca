//! A place where one worker process runs after another: its clock, its jobs, pauses and crashes.
//! What a process decides is decided by the worker's engine, the same that real workers run.

use std::collections::BTreeMap;
use std::time::Duration;

use filch_engine::worker::{AgentStep, WorkerAction, WorkerEngine, WorkerInput};
use filch_scheduler::agent::{self, Home};
use filch_scheduler::id::{Hold, Seq};
use filch_scheduler::message::{Again, Assignment, Ending, Report, Serves, ToWorker};
use filch_scheduler::name::Name;
use filch_scheduler::record::StoredText;
use filch_scheduler::time::{Millis, Monotonic};

use super::network::Link;
use super::schedule::{Happening, InProcess};
use super::{Audit, World};
use crate::clock::Clock;
use crate::log::{ExecutionEnd, Observed, Observer};
use crate::plan::{CutDirection, Member, Paused, RESTARTS_WITHIN};
use crate::random::{Purpose, Random};
use crate::work::{self, Deed};

/// A place.
pub(super) struct Place {
    pub(super) clock: Clock,
    pub(super) link: Link,
    home: Home,
    slots: u32,
    serves: Serves,
    lives: u64,
    /// Which idle moments are picked.
    process: Option<Process>,
    /// How often each job was started here. A handler keeps no better count either.
    runs: BTreeMap<Seq, u32>,
}

/// Simulated jobs print nothing.
type Input = WorkerInput<()>;

struct Process {
    engine: WorkerEngine<()>,
    running: BTreeMap<Hold, Running>,
    /// The moment at which the guardian kills everything.
    deadline: Option<Monotonic>,
    pause: Option<Pause>,
    ticks_at: Option<Monotonic>,
}

struct Running {
    is_hanging: bool,
    is_stopping: bool,
}

struct Pause {
    since: Monotonic,
    jobs: Paused,
    /// What has happened meanwhile.
    missed: Vec<(Monotonic, InProcess)>,
}

/// How long the place of a process that is gone stays empty when nobody says otherwise.
pub(super) const EMPTY_FOR: Duration = Duration::from_millis(500);

/// A job that has been told to stop takes at most this long, in parts of the lease: what a worker
/// must be able to do.
pub(super) const STOPS_WITHIN: (u32, u32) = (3, 10);

/// The bytes of reports that a worker with a small bound sends at once.
const SMALL_BATCH: usize = 300;

/// One of so many runs has nodes on which jobs cannot be started.
const BROKEN_RUNS_ONE_IN: u64 = 3;

/// In such a run, this is so in one of so many parts of this length.
const BROKEN_MICROS: u64 = 10_000_000;
const BROKEN_ONE_IN: u64 = 12;

/// The longest wait of a worker that could not start its jobs, shorter than in reality because a
/// run is short.
const REST_MAX: Duration = Duration::from_secs(3);

/// How long a job runs that used to hang, once everything is mended.
pub(super) const MENDED_RUN: Duration = Duration::from_millis(10);

impl Place {
    pub(super) fn new(member: &Member) -> Self {
        Self {
            clock: Clock::new(member.rate),
            link: Link::new(member),
            home: member.home,
            slots: member.slots,
            serves: member.serves.clone(),
            lives: 0,
            process: None,
            runs: BTreeMap::new(),
        }
    }

    pub(super) const fn life(&self) -> u64 {
        self.lives
    }

    const fn is_paused(&self) -> bool {
        matches!(&self.process, Some(Process { pause: Some(_), .. }))
    }

    pub(super) fn worker(&self) -> Option<filch_scheduler::id::WorkerId> {
        self.process.as_ref().map(|process| process.engine.agent().id())
    }
}

impl<W: Observer> World<'_, W> {
    pub(super) fn is_embedded(&self, place: usize) -> bool {
        self.places[place].home == Home::Embedded
    }

    pub(super) fn start_process(&mut self, place: usize) {
        let plan = &self.plan.members[place];
        let is_possible = self.server.is_up() || plan.home == Home::Apart;
        let member = &mut self.places[place];
        if member.process.is_some() || !is_possible {
            return;
        }
        member.lives += 1;
        let mut random = Random::keyed(self.plan.seed, Purpose::Worker(place), member.lives);
        let link = Random::keyed(self.plan.seed, Purpose::Link(place), member.lives);
        member.link.seed(link);
        let config = agent::AgentConfig {
            seed: random.next(),
            home: plan.home,
            slots: member.slots,
            serves: member.serves.clone(),
            reserve: plan.reserve,
            // With faults, so small that two results do not always fit.
            report_bytes_max: match self.plan.heals_at {
                Some(_) if !place.is_multiple_of(3) => SMALL_BATCH,
                _ => agent::AgentConfig::default().report_bytes_max,
            },
            rest_max: REST_MAX,
            ..agent::AgentConfig::default()
        };
        let now = member.clock.read(self.now);
        let mut actions = Vec::new();
        if let Some(recording) = &mut self.recording {
            recording.worker_starts(place, &config);
        }
        let engine = WorkerEngine::new(config, now, &mut actions);
        let running = BTreeMap::new();
        let process = Process { engine, running, deadline: None, pause: None, ticks_at: None };
        self.places[place].process = Some(process);
        let is_embedded = plan.home == Home::Embedded;
        let (slots, serves) = (self.places[place].slots, &self.places[place].serves.clone());
        self.observe(Observed::Began { place, slots, serves, is_embedded });
        self.perform_for(place, actions);
    }

    /// What happens in a process, now or when it goes on.
    pub(super) fn happen_in_process(&mut self, place: usize, life: u64, happening: InProcess) {
        let member = &mut self.places[place];
        if member.lives != life || member.process.is_none() {
            return;
        }
        if member.is_paused() {
            self.happen_while_paused(place, happening);
            return;
        }
        match happening {
            InProcess::Ticks => self.tick(place),
            InProcess::Connects => self.connects(place),
            InProcess::LosesConnection { connection } => self.loses_connection(place, connection),
            InProcess::Hears { connection, delivery } => {
                let current = member.link.connection;
                let again = || {
                    let happening = InProcess::Hears { connection, delivery: delivery.clone() };
                    Happening::Process { place, life, happening }
                };
                if current.is_some_and(|current| current.number == connection)
                    && self.gets_through(place, (CutDirection::ToWorker, connection), again)
                {
                    let member = &self.places[place];
                    let worker = member.worker().expect("there is a process");
                    let messages = &delivery.messages;
                    self.observe(Observed::Heard { place, worker, messages });
                    self.lies.overhear(place, messages);
                    self.tell(place, Input::Received(delivery));
                }
            }
            InProcess::JobEnds { hold, deed: Deed::KillWorker } => {
                if self.is_running(place, hold) {
                    self.crash_by_job(place);
                }
            }
            InProcess::JobEnds { .. } | InProcess::JobStops { .. } => {
                let (hold, outcome) = outcome_of(&happening);
                if self.end_run(place, hold, &outcome) {
                    let report = self.report(hold, outcome);
                    self.tell(place, Input::Ended(report));
                    self.find_nothing(place);
                }
            }
            InProcess::HearsOfEnd { hold, outcome } => {
                let report = self.report(hold, outcome);
                self.tell(place, Input::Ended(report));
            }
            InProcess::Drains { grace } => self.drain(place, grace),
        }
    }

    /// The report of an attempt. In a run with faults, a success has a result that names it.
    fn report(&self, hold: Hold, ending: Ending) -> Report {
        let has_result = ending == Ending::Finished && self.plan.heals_at.is_some();
        let result = has_result.then(|| work::result(hold));
        Report { result, ..Report::plain(hold, ending) }
    }

    /// Every other worker runs its jobs on threads that say so when they have nothing to do.
    fn find_nothing(&mut self, place: usize) {
        if place.is_multiple_of(2) && self.places[place].process.is_some() {
            self.tell(place, Input::Idle);
        }
    }

    /// A process that stands still does nothing; jobs that are processes of their own go on.
    fn happen_while_paused(&mut self, place: usize, happening: InProcess) {
        let at = self.now;
        let process = self.places[place].process.as_mut().expect("checked by the caller");
        let pause = process.pause.as_mut().expect("checked by the caller");
        let is_of_a_job =
            matches!(happening, InProcess::JobEnds { .. } | InProcess::JobStops { .. });
        let kills = matches!(happening, InProcess::JobEnds { deed: Deed::KillWorker, .. });
        if pause.jobs == Paused::Frozen || !is_of_a_job || kills {
            pause.missed.push((at, happening));
            return;
        }
        let (hold, outcome) = outcome_of(&happening);
        if self.end_run(place, hold, &outcome) {
            self.miss(place, InProcess::HearsOfEnd { hold, outcome });
        }
    }

    fn miss(&mut self, place: usize, happening: InProcess) {
        let at = self.now;
        let process = self.places[place].process.as_mut();
        if let Some(pause) = process.and_then(|process| process.pause.as_mut()) {
            pause.missed.push((at, happening));
        }
    }

    fn is_running(&self, place: usize, hold: Hold) -> bool {
        let process = self.places[place].process.as_ref();
        process.is_some_and(|process| process.running.contains_key(&hold))
    }

    /// Nothing of this job runs here any more. `false` if nothing did before.
    fn end_run(&mut self, place: usize, hold: Hold, outcome: &Ending) -> bool {
        let Some(process) = &mut self.places[place].process else {
            return false;
        };
        let was_running = process.running.remove(&hold).is_some();
        if was_running {
            self.observe(Observed::Ended { place, hold, how: outcome.into() });
        }
        was_running
    }

    /// One input for the worker's engine.
    pub(super) fn tell(&mut self, place: usize, input: Input) {
        let mut next = Some(input);
        // A send that fails is an input of its own, after the other actions.
        while let Some(input) = next.take() {
            let member = &mut self.places[place];
            let now = member.clock.read(self.now);
            let Some(process) = &mut member.process else {
                return;
            };
            // Looked at before: at the end of the event it may have come back already, as another.
            if process.engine.agent().fence_at().is_some_and(|at| at <= now.monotonic) {
                self.observer.observe(self.now, Observed::PastDeadline { place });
            }
            let (fingerprint, recording) = (&mut self.fingerprint, &mut self.recording);
            let mut see = |step: AgentStep<'_>| match step {
                AgentStep::Event(event) => {
                    fingerprint.add(place as u64, now, event);
                    if let Some(recording) = recording {
                        recording.worker_hears(place, now, event);
                    }
                }
                AgentStep::Effects(effects) => {
                    if let Some(recording) = recording {
                        recording.worker_does(place, effects);
                    }
                }
            };
            let mut actions = Vec::new();
            process.engine.handle_observed(now, input, &mut actions, &mut see);
            let has_failed = self.perform_for(place, actions);
            next = has_failed.then_some(Input::SendFailed);
        }
        if self.audit == Audit::Always {
            self.audit_place(place);
        }
    }

    pub(super) fn audit_place(&mut self, place: usize) {
        if let Some(process) = &self.places[place].process
            && process.pause.is_none()
            && let Err(error) = process.engine.audit()
        {
            self.audit_failed(&format!("the worker in place {}", place + 1), &error.to_string());
        }
    }

    /// Performs actions in order. True if a batch could not be sent.
    fn perform_for(&mut self, place: usize, actions: Vec<WorkerAction<()>>) -> bool {
        let mut has_failed = false;
        for action in actions {
            match action {
                WorkerAction::Connect { wait } => self.connect_soon(place, wait),
                WorkerAction::Disconnect => self.disconnect(place),
                WorkerAction::Send(batch) => has_failed |= !self.send_to_server(place, batch),
                WorkerAction::Deadline(deadline) => {
                    if let Some(process) = &mut self.places[place].process {
                        process.deadline = deadline;
                    }
                }
                WorkerAction::Start { assignment, payload } => {
                    self.start_job(place, &assignment, payload);
                }
                WorkerAction::Stop { hold, why } => {
                    self.observe(Observed::Stopping { place, hold, why });
                    self.stop_job(place, hold);
                }
                WorkerAction::Answered { hold, verdict } => {
                    self.observe(Observed::Settled { place, hold, verdict });
                }
                WorkerAction::Leave => {
                    let until = self.now.plus(EMPTY_FOR);
                    self.observe(Observed::Trouble { place: Some(place), until });
                    self.observe(Observed::Left { place });
                    self.end_process(place);
                    self.schedule.put(self.now.plus(EMPTY_FOR), Happening::ProcessStarts { place });
                    return false;
                }
                WorkerAction::SendOutput { .. }
                | WorkerAction::ToldToDrain { .. }
                | WorkerAction::Log(_) => {}
            }
        }
        self.plan_worker_tick(place);
        has_failed
    }

    fn plan_worker_tick(&mut self, place: usize) {
        let member = &mut self.places[place];
        let life = member.lives;
        let Some(process) = &mut member.process else {
            return;
        };
        if let Some(due) = process.engine.next_deadline() {
            let due = member.clock.when(due).max(self.now);
            if process.ticks_at.is_none_or(|at| due < at) {
                process.ticks_at = Some(due);
                let happening = InProcess::Ticks;
                self.schedule.put(due, Happening::Process { place, life, happening });
            }
        }
    }

    fn tick(&mut self, place: usize) {
        let now = self.now;
        let member = &mut self.places[place];
        let Some(process) = &mut member.process else {
            return;
        };
        if process.ticks_at.is_none_or(|at| at > now) {
            return;
        }
        process.ticks_at = None;
        let due = process.engine.next_deadline();
        if due.is_some_and(|due| member.clock.when(due) <= now) {
            self.tell(place, Input::Tick);
        }
        self.plan_worker_tick(place);
    }

    fn start_job(&mut self, place: usize, assignment: &Assignment, payload: StoredText) {
        self.counts.starts += 1;
        let member = &mut self.places[place];
        let worker = member.worker().expect("it started a job");
        let hold = assignment.hold;
        self.observe(Observed::Started { place, worker, assignment });
        // The payload with which it starts is judged like one that is sent.
        let (messages, works) = (&[ToWorker::Assign(vec![assignment.clone()])], &[(hold, payload)]);
        self.observe(Observed::Posted { worker, messages, works });
        let is_broken = self.is_broken(place);
        let member = &mut self.places[place];
        let known = if is_broken {
            Some((Deed::CannotStart, Duration::from_millis(1)))
        } else {
            let runs = member.runs.entry(hold.job).or_insert(0);
            *runs += 1;
            work::deed(&assignment.kind, *runs)
        };
        let (deed, takes) = known.unwrap_or((Deed::Succeed, Duration::ZERO));
        let (deed, takes) = match deed {
            Deed::Hang if self.is_healed => (Deed::Succeed, MENDED_RUN),
            Deed::KillWorker if self.is_healed => (Deed::Succeed, takes),
            _ => (deed, takes),
        };
        let process = member.process.as_mut().expect("it started a job");
        let is_hanging = deed == Deed::Hang;
        process.running.insert(hold, Running { is_hanging, is_stopping: false });
        if !is_hanging {
            let (life, happening) = (member.lives, InProcess::JobEnds { hold, deed });
            self.schedule.put(self.now.plus(takes), Happening::Process { place, life, happening });
        }
    }

    /// Whether jobs cannot be started on this node now: a disk is full, say.
    fn is_broken(&mut self, place: usize) -> bool {
        let has_broken_nodes = self.plan.seed.is_multiple_of(BROKEN_RUNS_ONE_IN);
        if self.is_healed || self.plan.heals_at.is_none() || !has_broken_nodes {
            return false;
        }
        let part = self.now.0 / BROKEN_MICROS;
        let mut random = Random::keyed(self.plan.seed, Purpose::Broken(place), part);
        let is_broken = random.one_in(BROKEN_ONE_IN);
        if is_broken {
            // It takes jobs again after a wait, which doubles.
            let until = Monotonic((part + 1) * BROKEN_MICROS).plus(REST_MAX + REST_MAX);
            self.observe(Observed::Trouble { place: Some(place), until });
        }
        is_broken
    }

    fn stop_job(&mut self, place: usize, hold: Hold) {
        let member = &mut self.places[place];
        let life = member.lives;
        let process = member.process.as_mut().expect("it stops a job");
        let Some(running) = process.running.get_mut(&hold).filter(|running| !running.is_stopping)
        else {
            return;
        };
        running.is_stopping = true;
        // Most stop at once, some take as long as they may.
        let mut random = Random::keyed(self.plan.seed, Purpose::Stop(hold.fence), hold.job.0);
        let most = self.plan.leases().0 * STOPS_WITHIN.0 / STOPS_WITHIN.1;
        let takes = match random.below(3) {
            0 => Duration::ZERO,
            1 => Duration::from_micros(random.below(100_000)),
            _ => Duration::from_micros(random.below(most.as_micros() as u64)),
        };
        let happening = InProcess::JobStops { hold };
        self.schedule.put(self.now.plus(takes), Happening::Process { place, life, happening });
    }

    /// The process is told to end in good order.
    pub(super) fn drain(&mut self, place: usize, grace: Duration) {
        let member = &self.places[place];
        if member.process.is_none() {
            return;
        }
        if member.is_paused() {
            self.miss(place, InProcess::Drains { grace });
            return;
        }
        let until = member.clock.read(self.now).monotonic.plus(grace);
        let until = member.clock.when(until);
        self.observe(Observed::Draining { place, until });
        self.tell(place, Input::Drain { grace });
    }

    /// The process ends at once.
    pub(super) fn crash(&mut self, place: usize, away: Duration) {
        if self.places[place].process.is_some() {
            self.end_process(place);
            self.schedule.put(self.now.plus(away), Happening::ProcessStarts { place });
        }
    }

    /// The process ends at once, and the next one has other settings.
    pub(super) fn reshape(&mut self, place: usize, slots: u32, serves: &Serves) {
        self.crash(place, RESTARTS_WITHIN);
        let member = &mut self.places[place];
        (member.slots, member.serves) = (slots, serves.clone());
    }

    /// The queues that a narrow node serves.
    pub(super) fn queues_of(&self, place: usize) -> Option<&[Name]> {
        match &self.places[place].serves {
            Serves::All => None,
            Serves::Named(queues) => Some(queues),
        }
    }

    /// A job has taken its process with it.
    fn crash_by_job(&mut self, place: usize) {
        self.counts.faults += 1;
        let until = self.now.plus(EMPTY_FOR);
        self.observe(Observed::Trouble { place: Some(place), until });
        if self.is_embedded(place) {
            self.crash_server(EMPTY_FOR, true);
        } else {
            self.crash(place, EMPTY_FOR);
        }
        if self.audit != Audit::Never {
            self.audit_all();
        }
    }

    /// Whatever the process was about, it is over; the operating system closes its connection.
    pub(super) fn end_process(&mut self, place: usize) {
        let Some(process) = self.places[place].process.take() else {
            return;
        };
        for &hold in process.running.keys() {
            self.observe(Observed::Ended { place, hold, how: ExecutionEnd::Killed });
        }
        self.observe(Observed::Crashed { place });
        self.disconnect(place);
    }

    pub(super) fn pause(&mut self, place: usize, span: Duration, jobs: Paused) {
        let member = &mut self.places[place];
        let (now, life) = (self.now, member.lives);
        let Some(process) = member.process.as_mut().filter(|process| process.pause.is_none())
        else {
            return;
        };
        process.pause = Some(Pause { since: now, jobs, missed: Vec::new() });
        self.schedule.put(now.plus(span), Happening::Resumes { place, life });
        if jobs == Paused::GoOn {
            let deadline = process.deadline.map_or(now, |at| member.clock.when(at));
            self.schedule.put(deadline.max(now), Happening::GuardianKills { place, life });
        }
        self.observe(Observed::Paused { place, jobs });
    }

    /// The worker's deadline has passed while it stood still: the guardian ends its jobs.
    pub(super) fn guardian_kills(&mut self, place: usize, life: u64) {
        let member = &mut self.places[place];
        let Some(process) = member.process.as_mut().filter(|_| member.lives == life) else {
            return;
        };
        if process.pause.as_ref().is_none_or(|pause| pause.jobs != Paused::GoOn) {
            return;
        }
        for hold in std::mem::take(&mut process.running).into_keys() {
            self.observe(Observed::Ended { place, hold, how: ExecutionEnd::Killed });
            self.miss(place, InProcess::HearsOfEnd { hold, outcome: Ending::Stopped });
        }
    }

    pub(super) fn resume(&mut self, place: usize, life: u64) {
        let member = &mut self.places[place];
        let Some(process) = member.process.as_mut().filter(|_| member.lives == life) else {
            return;
        };
        let Some(Pause { since, jobs, missed }) = process.pause.take() else {
            return;
        };
        process.ticks_at = None;
        self.observe(Observed::Resumed { place });
        for (at, happening) in missed {
            let is_of_a_job =
                matches!(happening, InProcess::JobEnds { .. } | InProcess::JobStops { .. });
            if is_of_a_job && jobs == Paused::Frozen {
                let left = at.since(since);
                let happening = Happening::Process { place, life, happening };
                self.schedule.put(self.now.plus(left), happening);
            } else {
                self.happen_in_process(place, life, happening);
            }
        }
        if self.places[place].lives == life {
            self.tell(place, Input::Tick);
        }
    }

    /// Whatever is wrong with this place is mended.
    pub(super) fn mend_place(&mut self, place: usize) {
        let life = self.places[place].lives;
        self.resume(place, life);
        self.start_process(place);
        let Some(process) = &self.places[place].process else {
            return;
        };
        let hanging = process.running.iter().filter(|(_, running)| running.is_hanging);
        for hold in hanging.map(|(&hold, _)| hold).collect::<Vec<_>>() {
            let happening = InProcess::JobEnds { hold, deed: Deed::Succeed };
            let life = self.places[place].lives;
            self.schedule
                .put(self.now.plus(MENDED_RUN), Happening::Process { place, life, happening });
        }
    }
}

/// What a worker hears of a job that comes to an end.
fn outcome_of(happening: &InProcess) -> (Hold, Ending) {
    match happening {
        InProcess::JobEnds { hold, deed } => (*hold, outcome_of_deed(*deed)),
        InProcess::JobStops { hold } => (*hold, Ending::Stopped),
        _ => unreachable!("only jobs come to an end"),
    }
}

pub(super) fn outcome_of_deed(deed: Deed) -> Ending {
    match deed {
        Deed::Succeed => Ending::Finished,
        Deed::Fail => Ending::Failed { again: Again::ByPolicy, error: "no luck".into() },
        Deed::FailForGood => Ending::Failed { again: Again::Never, error: "no use".into() },
        Deed::Snooze => Ending::Snoozed(Millis(700)),
        Deed::CannotStart => Ending::Unstarted("no room".into()),
        Deed::KillWorker | Deed::Hang => Ending::Stopped,
    }
}
