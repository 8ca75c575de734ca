//! What only an outside observer sees: which worker really runs which job, and whether guarantees
//! hold.

use super::*;

impl World {
    pub(super) fn audit(&self) {
        self.dispatch.audit().expect("the audit of the server");
        for member in &self.members {
            member.agent.audit().expect("the audit of a worker");
        }
        for id in self.submitted.difference(&self.purged) {
            assert!(self.store.by_id(*id).is_some(), "an acknowledged job is kept: {id}");
        }
    }

    pub(super) fn answered(&mut self, to: RequestNo, answer: &Answer) {
        let request = self.requests.remove(&to).expect("an answer to a question, once");
        match (request, answer) {
            (Request::Submit(_), Answer::Submitted(jobs)) => {
                self.submitted.extend(jobs.iter().map(|job| job.id));
                for job in jobs {
                    let is_kept = self.store.by_id(job.id).is_some();
                    assert!(is_kept || self.purged.contains(&job.id), "told before its receipt");
                }
            }
            (Request::Cancel(id), Answer::Done) => {
                self.cancelled.extend(self.store.by_id(id).map(|row| row.seq));
            }
            _ => {}
        }
    }

    /// A server that is loaded now has the same state as this one.
    pub(super) fn compare_with_a_load(&mut self) {
        self.event(DispatchEvent::Tick);
        // A starting server takes back the jobs of workers that ran in its predecessor's process.
        let is_held_here = |worker: WorkerView| worker.id.is_embedded() && worker.held > 0;
        if !self.commits.is_empty() || self.dispatch.worker_views().any(is_held_here) {
            return;
        }
        let (loaded, effects) = self.load();
        assert_eq!(effects, [], "nothing is left to decide");
        loaded.audit().expect("the audit of a server that was just loaded");
        let (mut loaded, mut here) = (live(&loaded), live(&self.dispatch));
        if self.wall_jumped_back {
            // A job that was due before the jump stays due here; to a new server it is not due yet.
            for view in loaded.iter_mut().chain(&mut here) {
                if view.state == JobState::Scheduled {
                    (view.state, view.due) = (JobState::Queued, Wall(0));
                }
            }
        }
        assert_eq!(loaded, here, "memory and store agree");
    }

    /// Checks, as an outside observer, that a job may start.
    pub(super) fn start(&mut self, at: usize, hold: Hold) {
        self.starts += 1;
        for member in self.members.iter().filter(|member| !member.is_paused) {
            let same = member.running.iter().find(|other| other.job == hold.job);
            assert_eq!(same, None, "a job runs in one place only");
        }
        let row = self.store.job(hold.job).expect("what runs is kept");
        assert!(!self.cancelled.contains(&hold.job), "a cancelled job does not start");
        // While the holder has not received a cancel, the job has not ended and the cancel is
        // unanswered.
        let has_ended = row.now.state.is_ended() && row.now.holder.is_none();
        assert!(!has_ended, "an ended job does not start: {row:?}");
        assert!(!self.succeeded.contains_key(&hold.job), "a job succeeds once");
        if row.spec.condition == Condition::AllSucceeded && row.spec.otherwise == Otherwise::Cancel
        {
            for parent in &row.spec.parents {
                let state = self.store.by_id(*parent).map(|row| row.now.state);
                let has_succeeded = state.is_none_or(|state| state == JobState::Succeeded);
                assert!(has_succeeded, "a child starts after its parents: {state:?}");
            }
        }
        self.members[at].running.insert(hold);
    }

    pub(super) fn settled(&mut self, hold: Hold, verdict: Verdict) {
        if verdict == Verdict::Refused && self.finished.contains(&hold) {
            let row = self.store.job(hold.job).map(|row| (row.now.state, row.now.fence));
            assert_ne!(row, Some((JobState::Succeeded, hold.fence)), "a stored success is refused");
        }
        if verdict == Verdict::Accepted && self.finished.contains(&hold) {
            let before = self.succeeded.insert(hold.job, hold);
            assert!(before.is_none_or(|before| before == hold), "one success is accepted");
            let state = self.store.job(hold.job).map(|row| row.now.state);
            let is_kept = state.is_none_or(|state| state == JobState::Succeeded);
            assert!(is_kept, "an accepted success is durable: {state:?}");
        }
    }

    /// Without faults for a while, no worker is idle while another one has jobs to spare.
    pub(super) fn check_that_work_is_shared(&mut self) {
        let crashes = self.crashes;
        // First until every worker is known and has settled what was left over, then for a few
        // steal questions.
        for span in [400; 10].into_iter().chain([25; 10]) {
            for at in 0..MEMBERS {
                self.resume(at);
                self.connect(at);
            }
            self.pump();
            self.advance(Duration::from_millis(span));
            self.pump();
        }
        // A worker that holds a suspect may be refused another one.
        let has_suspects = self.dispatch.job_views(Seq(0)).any(|job| job.suspicions >= 2);
        if has_suspects || self.crashes > crashes {
            return;
        }
        let view = |member: &Member| {
            self.dispatch.worker_views().find(|worker| worker.id == member.agent.id())
        };
        let is_idle = |member: &&Member| {
            let (running, waiting) = (member.agent.running_count(), member.agent.waiting_count());
            let takes_work = |worker: WorkerView| worker.connected && !worker.draining;
            member.serves_all
                && running < member.slots
                && waiting == 0
                && view(member).is_some_and(takes_work)
        };
        let Some(idle) = self.members.iter().find(is_idle) else {
            return;
        };
        for other in &self.members {
            let (idle, other_view) = (view(idle), view(other));
            let has_few = other.agent.waiting_count() < 2;
            assert!(has_few, "work is shared: {idle:?} is idle beside {other_view:?}");
        }
    }

    /// Checks that every accepted report had its effect.
    pub(crate) fn check_outcomes(&self) {
        for (seq, hold) in &self.succeeded {
            if let Some(row) = self.store.job(*seq) {
                assert_eq!((row.now.state, row.now.fence), (JobState::Succeeded, hold.fence));
            }
        }
    }
}

/// A server's view of the jobs that have not ended or that a worker still holds.
pub(super) fn live(dispatch: &Dispatch) -> Vec<JobView> {
    let views =
        dispatch.job_views(Seq(0)).filter(|view| !view.state.is_ended() || view.holder.is_some());
    let comparable = |mut view: JobView| {
        view.progress = None;
        if view.state != JobState::Scheduled {
            view.due = Wall(0);
        }
        view
    };
    views.map(comparable).collect()
}
