//! What every store has to do is in `conformance`, with random commits in `model`, and with random
//! decisions of the scheduler in `dispatch`. The other files test the store on a disk.

mod backup;
mod conformance;
mod disk_full;
mod dispatch;
mod integrity;
mod kills;
mod log;
mod model;
mod owner;
mod pair;
mod readers;
mod schema;
mod sync;
mod tokens;

use filch_scheduler::id::{Fence, Hold, JobId, LeaseNo, Seq, WorkerId};
use filch_scheduler::record::{JobRow, JobWrite, LeaseCause, LeaseRow, Mutation};
use filch_scheduler::spec::JobSpec;
use filch_scheduler::state::JobState;
use filch_scheduler::time::Wall;

const WORKER: WorkerId = WorkerId::apart(1);

fn id(name: &str) -> JobId {
    JobId::named(name, Wall(0)).expect("a short name")
}

fn write(seq: u64, state: JobState, fence: u64) -> JobWrite {
    JobWrite {
        job: Seq(seq),
        state,
        fence: Fence(fence),
        attempts: 0,
        suspicions: 0,
        priority: 0,
        due: Wall(0),
        holder: (state == JobState::Running).then_some(WORKER),
        last: None,
        reason: None,
        at: Wall(seq),
    }
}

fn put(seq: u64, name: &str) -> Mutation {
    row(seq, name, JobState::Queued, |_| ())
}

fn row(seq: u64, name: &str, state: JobState, say: impl FnOnce(&mut JobSpec)) -> Mutation {
    let mut spec = JobSpec::new(id(name));
    say(&mut spec);
    let now = write(seq, state, 0);
    Mutation::Put(JobRow { seq: Seq(seq), spec, submitted_at: Wall(0), now })
}

fn lease(number: u64, jobs: &[(u64, u64)]) -> Mutation {
    let hold = |&(job, fence): &(u64, u64)| Hold { job: Seq(job), fence: Fence(fence) };
    let jobs = jobs.iter().map(hold).collect();
    let number = LeaseNo(number);
    Mutation::Lease(LeaseRow {
        number,
        worker: Some(WORKER),
        cause: LeaseCause::Claim,
        jobs,
        at: Wall(0),
    })
}

fn trim(leases: &[u64]) -> Mutation {
    let leases = leases.iter().copied().map(LeaseNo).collect();
    Mutation::Trim { leases, notes_before: Wall(0) }
}
