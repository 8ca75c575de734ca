//! Clients and operators: a number decides what they submit and request.

use super::*;

impl World {
    pub(super) fn submit(&mut self, number: u16) {
        let bits = usize::from(number);
        // Sometimes the same job again, like a client that got no answer.
        if bits % 7 == 0 && !self.ids.is_empty() {
            let id = self.ids[bits % self.ids.len()];
            if let Some(row) = self.store.by_id(id) {
                let again = row.spec.clone();
                self.request(Request::Submit(vec![again]));
                return;
            }
        }
        let mut batch = Vec::new();
        for place in 0..1 + bits % 6 {
            let made_at = Wall(self.now.wall.0.saturating_sub((bits as u64 % 3) * 500));
            let name = format!("j{}", self.ids.len());
            let id = JobId::named(&name, made_at).expect("a short name");
            let mut spec = JobSpec::new(id);
            spec.queue = QUEUES[(bits / 3) % 3].into();
            spec.priority = (bits % 5) as i16;
            // Few keys, so that many jobs share one.
            spec.key = (bits % 4 == 1).then(|| format!("k{}", bits / 4 % 9).as_str().into());
            spec.retry = Retry {
                max: 1 + (bits % 3) as u16,
                backoff: Backoff::Fixed(Millis(300)),
                jitter_percent: 0,
            };
            if bits % 2 == 1 && !self.ids.is_empty() {
                spec.parents.push(self.ids[bits % self.ids.len()]);
                if let Some(earlier) = batch.last().map(|spec: &JobSpec| spec.id) {
                    spec.parents.push(earlier);
                }
                spec.parents.dedup();
                use Condition::{AllDone, AllSucceeded, AnyFailed, AnySucceeded};
                spec.condition = [AllSucceeded, AnySucceeded, AllDone, AnyFailed][bits / 5 % 4];
                spec.otherwise =
                    [Otherwise::Cancel, Otherwise::Run, Otherwise::Hold][bits / 11 % 3];
            }
            if bits % 6 == 5 {
                spec.not_before = Some(Wall(self.now.wall.0 + 200 * place as u64));
            }
            self.ids.push(id);
            batch.push(spec);
        }
        self.request(Request::Submit(batch));
    }

    pub(super) fn operate(&mut self, number: u16) {
        let bits = usize::from(number);
        let job = self.ids.get(bits / 16 % self.ids.len().max(1)).copied();
        let queue: Name = QUEUES[bits / 16 % 3].into();
        let change = |change| Request::SetQueue { queue: queue.clone(), change };
        let aging = Duration::from_secs(1);
        let request = match (bits % 12, job) {
            (0..=2, Some(job)) => Request::Cancel(job),
            (3 | 4, Some(job)) => Request::Retry(job),
            (5, Some(job)) => Request::SetPriority { job, priority: (bits % 9) as i16 },
            (6, _) => change(QueueChange::Pause),
            (7, _) => change(QueueChange::Resume),
            (8, _) => change(QueueChange::Limit(Some(1 + bits as u32 / 64 % 2))),
            (9, _) => change(QueueChange::Limit(None)),
            (10, _) => change(QueueChange::Weight(1 + bits as u32 / 64 % 4)),
            _ => Request::SetStrategy(
                [
                    Strategy::Fifo,
                    Strategy::RoundRobin,
                    Strategy::Fair,
                    Strategy::Priority { aging },
                ][bits / 16 % 4],
            ),
        };
        self.request(request);
    }

    pub(super) fn drain_or_jump(&mut self, member: usize, number: u16) {
        match number / 4 % 4 {
            0 => self.request(Request::DrainWorker(self.members[member].agent.id())),
            1 if self.members[member].is_paused => {}
            1 => {
                self.agent_event(
                    member,
                    agent::AgentEvent::Drain { grace: Duration::from_secs(2) },
                );
            }
            2 => self.now.wall.0 += 3_000,
            _ => {
                self.now.wall.0 -= 1_500;
                self.wall_jumped_back = true;
            }
        }
    }

    /// If a job's condition can no longer be met and the job is held, only an operator can move it.
    pub(super) fn cancel_held(&mut self) {
        let is_held = |view: &JobView| {
            matches!(self.dispatch.why(view.id), Some(Why::Blocked { held: true, .. }))
        };
        let views = self.dispatch.job_views(Seq(0));
        let held: Vec<JobId> = views.filter(is_held).map(|view| view.id).collect();
        for id in held {
            self.request(Request::Cancel(id));
        }
    }

    pub(super) fn open_queues(&mut self) {
        for queue in QUEUES {
            for change in [QueueChange::Resume, QueueChange::Limit(None)] {
                self.request(Request::SetQueue { queue: queue.into(), change });
            }
        }
    }
}
