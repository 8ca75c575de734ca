//! Runs with a fixed plan, for what is too large to be drawn from a seed.

use std::time::Duration;

use filch_scheduler::agent::{Home, Reserve};
use filch_scheduler::dispatch::{Request, Steal};
use filch_scheduler::id::JobId;
use filch_scheduler::message::Serves;
use filch_scheduler::name::Name;
use filch_scheduler::record::Strategy;
use filch_scheduler::spec::JobSpec;
use filch_scheduler::time::Wall;

use crate::plan::{Member, NetworkConditions, Plan, PlannedEvent};
use crate::search::run;
use crate::world::{Audit, Recording};

/// How many workers vanish at once.
const MANY: usize = 3_000;

/// How many jobs each of them has: one runs, the others can be stolen.
const JOBS_EACH: usize = 2;

/// When they vanish.
const VANISHED: Duration = Duration::from_secs(2);

/// How long before that the idle worker starts: its hello arrives when the others are gone, and
/// before the server has noticed.
const HELLO_TAKES: Duration = Duration::from_millis(13);

fn member(reserve: u32) -> Member {
    Member {
        slots: 1,
        reserve: Reserve::Fixed(reserve),
        home: Home::Apart,
        is_hostile: false,
        serves: Serves::All,
        rate: 1_000_000,
        network: NetworkConditions::fair(Duration::from_millis(5)),
    }
}

/// The workers of all nodes but the last one vanish. That one has just started, and the server asks
/// the others to give it jobs. Each that it asks turns out to be gone.
fn vanishing() -> Plan {
    let job = |number: usize| {
        let id = JobId::named(&format!("j{number}"), Wall(0)).expect("a short name");
        JobSpec { kind: Name::from("run-1500ms"), ..JobSpec::new(id) }
    };
    let specs = (0..MANY * JOBS_EACH).map(job).collect();
    let submit = PlannedEvent::Ask { request: Request::Submit(specs), tries: 1 };
    let idle = PlannedEvent::Crash { place: MANY, away: VANISHED - HELLO_TAKES };
    let vanish = |place| (VANISHED, PlannedEvent::Crash { place, away: Duration::from_secs(60) });
    let mut acts = vec![(Duration::ZERO, idle), (Duration::from_secs(1), submit)];
    acts.extend((0..MANY).map(vanish));
    let mut members = vec![member(JOBS_EACH as u32 - 1); MANY];
    members.push(member(0));
    Plan {
        seed: 1,
        lease: Duration::from_secs(10),
        strategy: Strategy::Fifo,
        steal: Steal::Half,
        commit: (Duration::from_micros(100), Duration::from_micros(100)),
        retention: None,
        unreceipted: None,
        batch_bytes: None,
        heals_at: Some(Duration::from_secs(20)),
        clients: NetworkConditions::fair(Duration::from_millis(1)),
        members,
        http_members: Vec::new(),
        acts,
    }
}

#[test]
fn three_thousand_workers_vanish_beside_an_idle_one() {
    let run = run(&vanishing(), Audit::Never, Some(Recording::default()));
    assert_eq!(run.violation, None);
    let trace = run.recording.expect("it was given").about("");
    let asked = trace.matches("ask-to-give").count();
    assert!(asked > MANY, "{asked}: one after the other is asked, in the same moment");
    assert_eq!(run.stats.jobs, (MANY * JOBS_EACH) as u64);
    assert_eq!(run.stats.lost, MANY as u64, "their leases have expired");
    assert!(run.stats.starts >= (MANY * (JOBS_EACH + 1)) as u64, "jobs that ran run again");
}
