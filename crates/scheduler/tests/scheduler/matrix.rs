//! Every message and request from outside, applied to a job in every state: the job's next state,
//! and the answer. The table is written out, and every cell is tested.

use filch_scheduler::dispatch::{
    Answer, Dispatch, DispatchConfig, DispatchEffect, DispatchEvent, Limits,
};
use filch_scheduler::id::{Fence, Hold, JobId, MessageNo, RequestNo, Seq, SessionNo, WorkerId};
use filch_scheduler::message::ToWorker;
use filch_scheduler::record::Strategy;
use filch_scheduler::state::JobState;
use filch_scheduler::time::{Monotonic, Now, Wall};
use filch_scheduler::trace::{Context, Traced, parse};

use filch_store::Memory;

/// One row per state, one column per message. `+` is accepted or done, `-` refused, `?` no answer
/// yet. A cell without a mark needs no answer. `cancelling` is cancelled, but not yet let go of.
const TABLE: &str = "
                finished     failed       for-good     snoozed      interrupted  dropped      stopped      stale        started     start       give         stopping    cancel       retry       priority   due
    blocked     blocked-     blocked-     blocked-     blocked-     blocked-     blocked-     blocked-     blocked-     blocked     blocked-    blocked-     blocked     cancelled+   blocked-    blocked+   blocked
    scheduled   scheduled-   scheduled-   scheduled-   scheduled-   scheduled-   scheduled-   scheduled-   scheduled-   scheduled   scheduled-  scheduled-   scheduled   cancelled+   scheduled-  scheduled+ queued
    queued      queued-      queued-      queued-      queued-      queued-      queued-      queued-      queued-      queued      queued-     queued-      queued      cancelled+   queued-     queued+    queued
    leased      succeeded+   scheduled+   dead+        scheduled+   queued+      queued+      queued+      leased-      running     running+    queued+      leased      cancelling?  leased-     leased+    leased
    running     succeeded+   scheduled+   dead+        scheduled+   queued+      queued+      queued+      running-     running     running+    queued+      running     cancelling?  running-    running+   running
    succeeded   succeeded+   succeeded-   succeeded-   succeeded-   succeeded-   succeeded-   succeeded-   succeeded-   succeeded   succeeded-  succeeded-   succeeded   succeeded-   succeeded-  succeeded- succeeded
    dead        dead-        dead+        dead+        dead-        dead-        dead-        dead-        dead-        dead        dead-       dead-        dead        dead-        queued+     dead-      dead
    cancelled   cancelled-   cancelled-   cancelled-   cancelled-   cancelled-   cancelled-   cancelled-   cancelled-   cancelled   cancelled-  cancelled-   cancelled   cancelled+   cancelled-  cancelled- cancelled
    cancelling  cancelled-   cancelled-   cancelled-   cancelled-   cancelled-   cancelled+   cancelled+   cancelling-  cancelling  cancelling? cancelled+   cancelling  cancelling?  cancelling- cancelling- cancelling
";

/// A server, its store, and one worker.
struct Bench {
    dispatch: Dispatch,
    store: Memory,
    now: Now,
    number: MessageNo,
    /// The last answer about the job: accepted, refused, or none.
    answer: Option<bool>,
}

const WORKER: WorkerId = WorkerId::apart(1);
const REQUEST: RequestNo = RequestNo(7);

fn job() -> JobId {
    JobId::named("job", Wall(0)).expect("a short name")
}

impl Bench {
    fn new() -> Self {
        let config = DispatchConfig { strategy: Strategy::Fifo, ..DispatchConfig::default() };
        let now = Now { monotonic: Monotonic(0), wall: Wall(1_000) };
        Self {
            dispatch: Dispatch::new(config, now),
            store: Memory::default(),
            now,
            number: MessageNo(0),
            answer: None,
        }
    }

    /// Every commit is durable at once, and every look-up is answered at once.
    fn event(&mut self, event: DispatchEvent) {
        let mut effects = Vec::new();
        self.dispatch.handle(self.now, event, &mut effects);
        for effect in effects {
            match effect {
                DispatchEffect::Commit { number, mutations } => {
                    self.store.commit(number, &mutations).expect("what is decided can be kept");
                    self.event(DispatchEvent::Committed(number));
                }
                DispatchEffect::Fetch { fetch, ids, keys, seqs } => {
                    let found = self.store.find(&ids, &keys, &seqs);
                    self.event(DispatchEvent::Fetched { fetch, found });
                }
                DispatchEffect::Reply { to: REQUEST, answer, .. } => {
                    self.answer = Some(!matches!(answer, Answer::Refused(_)));
                }
                DispatchEffect::Send { messages, .. } => {
                    messages.iter().for_each(|it| self.told(it));
                }
                DispatchEffect::Reply { .. } | DispatchEffect::HangUp { .. } => {}
            }
        }
        self.dispatch.audit().expect("the audit");
    }

    fn told(&mut self, message: &ToWorker) {
        match message {
            ToWorker::Accepted(_) | ToWorker::StartGranted(_) => self.answer = Some(true),
            ToWorker::Refused { .. } => self.answer = Some(false),
            _ => {}
        }
    }

    /// The worker sends this message, in trace text; `@` stands for the job and its fence.
    fn say(&mut self, words: &str, fence: Fence) {
        let text = words.replace('@', &format!("#{}.{}", self.seq().0, fence.0));
        let mut context = Context::default();
        let event: DispatchEvent = parse(&format!("w1/1#{}: {text}", self.number.0 + 1), &context)
            .expect("a worker's words");
        event.learn(&mut context);
        self.number = self.number.next();
        self.event(event);
    }

    fn ask(&mut self, from: RequestNo, words: &str) {
        let event = parse(words, &Context::default()).expect("a request's words");
        let DispatchEvent::Request { request, .. } = event else {
            panic!("{words} is a request");
        };
        self.event(DispatchEvent::Request { from, by: None, request });
    }

    fn seq(&self) -> Seq {
        self.store.by_id(job()).map_or(Seq(1), |row| row.seq)
    }

    /// The fence under which a worker held the job last.
    fn fence(&self) -> Fence {
        match self.dispatch.job_view(job()) {
            Some(view) if view.state == JobState::Cancelled => Fence(view.fence.0 - 1),
            Some(view) => view.fence,
            None => self.store.by_id(job()).expect("kept").now.fence,
        }
    }

    fn state(&self) -> &'static str {
        let view = self.dispatch.job_view(job());
        match view {
            Some(view) if view.state == JobState::Cancelled && view.holder.is_some() => {
                "cancelling"
            }
            Some(view) => view.state.word(),
            None => self.store.by_id(job()).expect("kept").now.state.word(),
        }
    }

    /// Brings a job into this state.
    fn bring_to(state: &str) -> Self {
        let mut bench = Self::new();
        match state {
            "blocked" => bench.ask(RequestNo(1), "submit [p queue idle; job after p]"),
            "scheduled" => bench.ask(RequestNo(1), "submit job not-before 5s"),
            _ => bench.ask(RequestNo(1), "submit job"),
        }
        let want = if ["blocked", "scheduled", "queued"].contains(&state) { 0 } else { 1 };
        bench.say(&format!("hello new slots 1 want {want}"), Fence(0));
        bench.say("want 0", Fence(0));
        match state {
            "running" => bench.say("started @", Fence(1)),
            "succeeded" => bench.say("report @ finished", Fence(1)),
            "dead" => bench.say("report @ failed for-good \"no\"", Fence(1)),
            "cancelled" => {
                bench.ask(RequestNo(1), "cancel job");
                bench.say("report @ dropped", Fence(1));
            }
            "cancelling" => bench.ask(RequestNo(1), "cancel job"),
            _ => {}
        }
        bench.answer = None;
        assert_eq!(bench.state(), state);
        bench
    }

    fn word(&mut self, word: &str) {
        let fence = self.fence();
        match word {
            "finished" | "interrupted" | "dropped" | "stopped" => {
                self.say(&format!("report @ {word}"), fence);
            }
            "failed" => self.say("report @ failed again \"no\"", fence),
            "for-good" => self.say("report @ failed for-good \"no\"", fence),
            "snoozed" => self.say("report @ snoozed 9s", fence),
            "stale" => self.say("report @ finished", Fence(fence.0 + 7)),
            "started" | "start" | "stopping" => self.say(&format!("{word} @"), fence),
            "give" => self.say("give 1 @", fence),
            "cancel" | "retry" => self.ask(REQUEST, &format!("{word} job")),
            "priority" => self.ask(REQUEST, "set-priority job 3"),
            "due" => {
                self.now.wall = Wall(6_000);
                self.event(DispatchEvent::Tick);
            }
            _ => panic!("no such word: {word}"),
        }
    }
}

#[test]
fn every_message_about_a_job_in_every_state() {
    let mut lines = TABLE.lines().map(str::trim).filter(|line| !line.is_empty());
    let words: Vec<&str> = lines.next().expect("a header").split_whitespace().collect();
    let mut wrong = Vec::new();
    let mut cells = 0;
    for line in lines {
        let mut columns = line.split_whitespace();
        let state = columns.next().expect("a state");
        for word in &words {
            let drawn = columns.next().expect("a cell for every word");
            let mut bench = Bench::bring_to(state);
            bench.word(word);
            let mark = match bench.answer {
                Some(true) => "+",
                Some(false) => "-",
                None if drawn.ends_with('?') => "?",
                None => "",
            };
            let found = format!("{}{mark}", bench.state());
            if found != drawn {
                wrong.push(format!("{state}, {word}: drawn {drawn}, found {found}"));
            }
            cells += 1;
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert_eq!(cells, 9 * words.len());
}

/// Very many repeated reports after a restart must not fill the memory: beyond the bound, a session
/// ends and its worker reports everything again later. A goodbye in the same batch changes nothing.
#[test]
fn look_ups_for_reports_are_bounded() {
    let limits = Limits { waiting: 2, ..Limits::default() };
    let config = DispatchConfig { strategy: Strategy::Fifo, limits, ..DispatchConfig::default() };
    let now = Now::default();
    let mut dispatch = Dispatch::new(config, now);
    let mut say = |text: &str| {
        let mut effects = Vec::new();
        let event: DispatchEvent = parse(text, &Context::default()).expect("an event's words");
        dispatch.handle(now, event, &mut effects);
        dispatch.audit().expect("the audit");
        effects
    };
    say("submit [a; b]");
    say("w1/1#1: hello new slots 2 want 2");
    say("w1/1#2: report #1.1 finished, report #2.1 finished");
    say("committed 3");
    let fetches = |effects: &[DispatchEffect]| {
        effects.iter().filter(|effect| matches!(effect, DispatchEffect::Fetch { .. })).count()
    };
    let again = "report #1.1 finished, report #2.1 finished";
    assert_eq!(fetches(&say(&format!("w1/1#3: {again}"))), 1, "one look-up a batch");
    assert_eq!(fetches(&say(&format!("w1/1#4: {again}"))), 1);
    let effects = say(&format!("w1/1#5: {again}, goodbye"));
    assert_eq!(fetches(&effects), 0);
    assert!(effects.iter().any(|effect| matches!(effect, DispatchEffect::HangUp { .. })));
}

/// Reports about jobs or fences that never existed change nothing.
#[test]
fn reports_of_unknown_jobs_are_answered_and_change_nothing() {
    let mut bench = Bench::bring_to("leased");
    let kept = bench.store.last_commit();
    for text in [
        "report #99.1 finished",
        "start #99.1",
        "started #99.1",
        "stopping #99.1",
        "progress #99.1 200",
        "give 99 [#99.1 #98.7]",
        "report #1.18446744073709551615 finished",
        "want 4294967295, want 0",
        "report #18446744073709551615.1 dropped",
    ] {
        bench.say(text, Fence(0));
    }
    assert_eq!((bench.state(), bench.store.last_commit()), ("leased", kept));
    let session = SessionNo(1);
    let number = MessageNo(u64::MAX);
    bench.event(DispatchEvent::Worker { worker: WORKER, session, number, messages: Vec::new() });
    let hold = Hold { job: Seq(1), fence: Fence(1) };
    assert_eq!(bench.dispatch.job_view(job()).map(|view| view.fence), Some(hold.fence));
}
