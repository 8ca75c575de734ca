//! What a starting server expects of the process that served before it.

use filch_scheduler::dispatch::{Dispatch, DispatchConfig, DispatchEvent};
use filch_scheduler::id::{CommitNo, Fence, Hold, JobId, LeaseNo, Seq, WorkerId};
use filch_scheduler::record::{JobRow, JobWrite, LeaseCause, LeaseRow, Loaded};
use filch_scheduler::spec::JobSpec;
use filch_scheduler::state::JobState;
use filch_scheduler::time::{Duration, Now, Wall};

const EMBEDDED: WorkerId = WorkerId::embedded(1);
const APART: WorkerId = WorkerId::apart(2);
const LEASE: Duration = Duration::from_secs(10);

/// A shard in which two workers hold a job each, loaded after a former owner like this.
fn load(former: Option<Loaded>) -> Dispatch {
    let numbers =
        Loaded::Numbers { commit: CommitNo(2), seq: Seq(2), lease: LeaseNo(2), newest_id: None };
    let mut pieces = vec![numbers];
    pieces.extend(former);
    for number in 1..=2_u64 {
        let spec = JobSpec::new(JobId::named(&format!("j{number}"), Wall(0)).expect("short"));
        let now = JobWrite {
            job: Seq(number),
            state: JobState::Queued,
            fence: Fence(0),
            attempts: 0,
            suspicions: 0,
            priority: 0,
            due: Wall(0),
            holder: None,
            last: None,
            reason: None,
            at: Wall(0),
        };
        pieces.push(Loaded::Job(JobRow { seq: Seq(number), spec, submitted_at: Wall(0), now }));
    }
    for (number, worker) in [(1, EMBEDDED), (2, APART)] {
        pieces.push(Loaded::Lease(LeaseRow {
            number: LeaseNo(number),
            worker: Some(worker),
            cause: LeaseCause::Claim,
            jobs: vec![Hold { job: Seq(number), fence: Fence(1) }],
            at: Wall(0),
        }));
    }
    let config = DispatchConfig { lease: LEASE, ..DispatchConfig::default() };
    Dispatch::load(config, Now::default(), pieces, &mut Vec::new()).expect("it is consistent")
}

/// The workers that still hold their jobs this long after the start.
fn holders(dispatch: &mut Dispatch, after: Duration) -> Vec<WorkerId> {
    let start = Now::default();
    let now = Now { monotonic: start.monotonic.plus(after), ..start };
    dispatch.handle(now, DispatchEvent::Tick, &mut Vec::new());
    let mut workers: Vec<WorkerId> = dispatch.worker_views().map(|view| view.id).collect();
    workers.sort();
    workers
}

#[test]
fn embedded_workers_end_with_a_process_that_is_gone() {
    let mut dispatch = load(None);
    assert_eq!(holders(&mut dispatch, Duration::ZERO), [APART]);
    assert_eq!(holders(&mut dispatch, LEASE + Duration::from_millis(1)), []);
}

#[test]
fn workers_of_a_process_that_may_still_run_keep_their_leases() {
    let renews_for = Duration::from_secs(7);
    let mut dispatch = load(Some(Loaded::FormerOwner { renews_for }));
    assert_eq!(holders(&mut dispatch, Duration::ZERO), [APART, EMBEDDED]);
    // It may have renewed their leases until the very end.
    let last = LEASE + renews_for - Duration::from_millis(1);
    assert_eq!(holders(&mut dispatch, last), [APART, EMBEDDED]);
    assert_eq!(holders(&mut dispatch, last + Duration::from_millis(2)), []);
}
