//! Every bound: requests beyond it are refused with the bound named, and change nothing.

use filch_scheduler::dispatch::{
    Ahead, Answer, Dispatch, DispatchConfig, DispatchEffect, DispatchEvent, Limits, Request, Why,
};
use filch_scheduler::id::{CommitNo, JobId, RequestNo};
use filch_scheduler::message::ToWorker;
use filch_scheduler::spec::JobSpec;
use filch_scheduler::time::{Now, Wall};
use filch_scheduler::trace::{Context, parse, print};

/// A server with small bounds. Commits are durable only when a test sends the receipt.
fn small() -> Dispatch {
    let limits = Limits {
        jobs: 4,
        edges: 3,
        live_jobs: 5,
        queues: 3,
        name_bytes: 8,
        waiting: 1,
        unreceipted: 3,
        ..Limits::default()
    };
    Dispatch::new(DispatchConfig { limits, ..DispatchConfig::default() }, Now::default())
}

fn handle(dispatch: &mut Dispatch, words: &str) -> Vec<DispatchEffect> {
    let event: DispatchEvent = parse(words, &Context::default()).expect("an event's words");
    let mut effects = Vec::new();
    dispatch.handle(Now::default(), event, &mut effects);
    dispatch.audit().expect("the audit");
    effects
}

#[test]
fn requests_beyond_a_bound_are_refused_and_change_nothing() {
    let rows = [
        ("submit [a; b; c; d; e]", "refused out-of-bounds jobs 5 bound 4"),
        ("submit [a; b; c after [a b]; d after [a b]]", "refused out-of-bounds edges 4 bound 3"),
        ("submit a queue 123456789", "refused out-of-bounds name-bytes 9 bound 8"),
        ("submit a kind 123456789", "refused out-of-bounds name-bytes 9 bound 8"),
        ("submit a key 123456789", "refused out-of-bounds name-bytes 9 bound 8"),
        ("submit a attempts 0", "refused out-of-bounds attempts 0 bound 1"),
        ("set-queue 123456789 pause", "refused out-of-bounds name-bytes 9 bound 8"),
        ("set-queue mail weight 0", "refused out-of-bounds weight 0 bound 1"),
        (
            "submit [a queue q; b queue r; c queue s; d queue t]",
            "refused out-of-bounds queues 4 bound 3",
        ),
    ];
    for (words, refusal) in rows {
        let mut dispatch = small();
        let effects = handle(&mut dispatch, words);
        let texts: Vec<String> =
            effects.iter().map(|effect| print(effect, &Context::default())).collect();
        assert_eq!(texts, [format!("reply {refusal}")], "{words}");
        assert_eq!((dispatch.job_count(), dispatch.queue_views().count()), (0, 0), "{words}");
    }
}

#[test]
fn the_last_unfinished_job_and_the_last_queue_fit() {
    let mut dispatch = small();
    handle(&mut dispatch, "submit [a queue q; b queue r; c; d]");
    assert_eq!(dispatch.job_count(), 4);
    let texts =
        |effects: Vec<DispatchEffect>| print(&effects[effects.len() - 1], &Context::default());
    let refused = texts(handle(&mut dispatch, "submit [e; f]"));
    assert_eq!(refused, "after 1 reply refused out-of-bounds live-jobs 6 bound 5");
    let refused = texts(handle(&mut dispatch, "set-queue s pause"));
    assert_eq!(refused, "after 1 reply refused out-of-bounds queues 4 bound 3");
    let taken = texts(handle(&mut dispatch, "submit e"));
    assert_eq!(taken, "after 2 reply submitted e #5 new");
}

#[test]
fn queues_named_by_workers_count_towards_the_bound() {
    let mut dispatch = small();
    handle(&mut dispatch, "w1: hello new slots 1 want 0 serves [q r s]");
    let last =
        |effects: Vec<DispatchEffect>| print(&effects[effects.len() - 1], &Context::default());
    let effects = handle(&mut dispatch, "w2: hello new slots 1 want 0 serves [t]");
    assert!(matches!(effects[0], DispatchEffect::HangUp { .. }), "{effects:?}");
    let taken = last(handle(&mut dispatch, "submit a queue q"));
    assert_eq!(taken, "after 1 reply submitted a #1 new");
    let refused = last(handle(&mut dispatch, "submit b"));
    assert_eq!(refused, "after 1 reply refused out-of-bounds queues 4 bound 3");
}

#[test]
fn requests_beyond_the_bound_on_waiting_ones_are_refused_as_busy() {
    let mut dispatch = small();
    assert!(matches!(handle(&mut dispatch, "submit a key k")[..], [DispatchEffect::Fetch { .. }]));
    let effects = handle(&mut dispatch, "r7 submit b key l");
    let busy = "reply r7 refused busy";
    assert_eq!(print(&effects[0], &Context::default()), busy);
    // A request that needs no look-up does not wait.
    assert!(matches!(handle(&mut dispatch, "submit c")[0], DispatchEffect::Commit { .. }));
}

#[test]
fn while_it_is_full_workers_are_heard_but_get_no_jobs() {
    let mut dispatch = small();
    handle(&mut dispatch, "w1/1#1: hello new slots 1 want 2");
    handle(&mut dispatch, "submit [a; b; c; d]");
    assert!(dispatch.is_full(), "a, b, c, d and the claim of a and b wait for the disk");
    for words in [
        "w2/1#1: hello new slots 1 want 1",
        "w1/1#2: heartbeat",
        "w1/1#3: report #1.1 finished",
        "w1/1#4: report #2.1 finished, want 1",
        "tick",
    ] {
        let effects = handle(&mut dispatch, words);
        let is_worker = words.starts_with('w');
        let is_renewed =
            |effect: &DispatchEffect| print(effect, &Context::default()).contains("renewed");
        assert_eq!(effects.iter().any(is_renewed), is_worker, "{words}: the lease is renewed");
        let owned: u32 = dispatch.queue_views().map(|view| view.owned).sum();
        assert!(owned <= 2, "{words}: no job is claimed");
        assert!(dispatch.is_full(), "{words}");
    }
    let owned = |dispatch: &Dispatch| dispatch.queue_views().map(|view| view.owned).sum::<u32>();
    assert_eq!(owned(&dispatch), 0, "both jobs of w1 have ended, and no worker got another");
    handle(&mut dispatch, "committed 3");
    assert_eq!((dispatch.is_full(), owned(&dispatch)), (false, 2), "both workers are served now");
}

#[test]
fn while_it_is_full_no_worker_is_asked_to_give() {
    let mut dispatch = small();
    handle(&mut dispatch, "w1/1#1: hello new slots 1 want 4");
    handle(&mut dispatch, "submit [a; b; c; d]");
    assert!(dispatch.is_full());
    let asks = |effects: &[DispatchEffect]| {
        effects.iter().any(|effect| match effect {
            DispatchEffect::Send { messages, .. } => {
                messages.iter().any(|message| matches!(message, ToWorker::AskToGive { .. }))
            }
            _ => false,
        })
    };
    assert!(!asks(&handle(&mut dispatch, "w2/1#1: hello new slots 1 want 1")));
    assert!(asks(&handle(&mut dispatch, "committed 1")), "the idle worker was remembered");
}

#[test]
fn dispatch_is_full_while_too_many_mutations_are_uncommitted() {
    let mut dispatch = small();
    handle(&mut dispatch, "submit [a; b]");
    assert!(!dispatch.is_full());
    handle(&mut dispatch, "submit c");
    assert!(dispatch.is_full());
    handle(&mut dispatch, "committed 1");
    assert!(!dispatch.is_full());
    assert_eq!(dispatch.newest_commit(), Some(CommitNo(2)));
    // A receipt for a commit that was never issued has no effect.
    handle(&mut dispatch, "committed 99");
    assert_eq!(dispatch.newest_commit(), None);
    handle(&mut dispatch, "submit d");
    assert_eq!(dispatch.newest_commit(), Some(CommitNo(3)));
}

#[test]
fn jobs_ahead_are_counted_up_to_ten_thousand() {
    let mut dispatch = Dispatch::new(DispatchConfig::default(), Now::default());
    let id = |number: u32| JobId::named(&format!("j{number}"), Wall(1)).expect("a short name");
    let jobs = (0..10_002).map(|number| JobSpec::new(id(number))).collect();
    let mut effects = Vec::new();
    let event =
        DispatchEvent::Request { from: RequestNo(0), by: None, request: Request::Submit(jobs) };
    dispatch.handle(Now::default(), event, &mut effects);
    let is_taken = |it: &DispatchEffect| matches!(it, DispatchEffect::Reply { answer: Answer::Submitted(jobs), .. } if jobs.len() == 10_002);
    assert!(effects.iter().any(is_taken));
    let ahead = |number| match dispatch.why(id(number)) {
        Some(Why::Queued { ahead, .. }) => ahead,
        other => panic!("{other:?}"),
    };
    assert_eq!(ahead(0), Ahead::Exactly(0));
    assert_eq!(ahead(10_000), Ahead::Exactly(10_000));
    assert_eq!(ahead(10_001), Ahead::AtLeast(10_000));
}
