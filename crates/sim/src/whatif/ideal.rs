//! References for a schedule: a greedy one without any overhead, and a lower bound.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use filch_scheduler::time::Duration;

use super::workload::{Workload, WorkloadJob};

/// How long the workload takes with a greedy schedule without overhead: whenever a slot is free it
/// takes, in the order of submission, the first job that has been submitted and whose parents have
/// ended.
///
/// # Panics
/// If there is no slot, or if jobs wait for each other.
#[must_use]
pub fn ideal(workload: &Workload, slots: usize) -> Duration {
    assert!(slots > 0, "without a slot nothing ever ends");
    let jobs = &workload.jobs;
    let children = Children::of(jobs);
    let mut missing: Vec<usize> = jobs.iter().map(|job| job.after.len()).collect();
    let roots = jobs.iter().enumerate().filter(|(_, job)| job.after.is_empty());
    let mut coming: BinaryHeap<_> = roots.map(|(place, job)| Reverse((job.at, place))).collect();
    let mut ready: BinaryHeap<Reverse<usize>> = BinaryHeap::new();
    let mut running: BinaryHeap<Reverse<(Duration, usize)>> = BinaryHeap::new();
    let (mut now, mut ended) = (Duration::ZERO, 0);
    loop {
        // All ends and submissions of this time are processed before any job is taken.
        while let Some(&Reverse((end, place))) = running.peek()
            && end <= now
        {
            running.pop();
            ended += 1;
            for &child in children.of_job(place) {
                missing[child] -= 1;
                if missing[child] == 0 {
                    coming.push(Reverse((jobs[child].at.max(now), child)));
                }
            }
        }
        while let Some(&Reverse((at, place))) = coming.peek()
            && at <= now
        {
            coming.pop();
            ready.push(Reverse(place));
        }
        while running.len() < slots
            && let Some(Reverse(place)) = ready.pop()
        {
            running.push(Reverse((now + jobs[place].cost, place)));
        }
        let next_end = running.peek().map(|&Reverse((end, _))| end);
        // Without a free slot, submissions do not matter before one is free.
        let next_coming = coming.peek().map(|&Reverse((at, _))| at);
        let next_coming = next_coming.filter(|_| running.len() < slots);
        match next_end.into_iter().chain(next_coming).min() {
            Some(next) => now = next,
            None => break,
        }
    }
    assert_eq!(ended, jobs.len(), "jobs wait for each other");
    now
}

/// A lower bound for every schedule: all slots busy all the time, or the longest job alone.
///
/// # Panics
/// If there is no slot.
#[must_use]
pub fn bound(workload: &Workload, slots: usize) -> Duration {
    assert!(slots > 0, "without a slot nothing ever ends");
    let costs = || workload.jobs.iter().map(|job| job.cost);
    let share = costs().sum::<Duration>().as_nanos() / slots as u128;
    let nanos = (share % 1_000_000_000) as u32;
    let seconds =
        u64::try_from(share / 1_000_000_000).expect("a share is no longer than the whole");
    Duration::new(seconds, nanos).max(costs().max().unwrap_or_default())
}

/// The children of each job, in two flat lists: a vector for each of a million jobs would cost more
/// than everything else.
struct Children {
    starts: Vec<usize>,
    children: Vec<usize>,
}

impl Children {
    fn of(jobs: &[WorkloadJob]) -> Self {
        let mut starts = vec![0; jobs.len() + 1];
        for &parent in jobs.iter().flat_map(|job| &job.after) {
            starts[parent + 1] += 1;
        }
        for place in 1..starts.len() {
            starts[place] += starts[place - 1];
        }
        let mut free = starts.clone();
        let mut children = vec![0; starts[jobs.len()]];
        for (child, job) in jobs.iter().enumerate() {
            for &parent in &job.after {
                children[free[parent]] = child;
                free[parent] += 1;
            }
        }
        Self { starts, children }
    }

    fn of_job(&self, place: usize) -> &[usize] {
        &self.children[self.starts[place]..self.starts[place + 1]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// Each job as (at, cost, after), in milliseconds.
    fn workload(jobs: &[(u64, u64, &[usize])]) -> Workload {
        let job = |&(at, cost, after): &(u64, u64, &[usize])| WorkloadJob {
            at: millis(at),
            cost: millis(cost),
            queue: "default".into(),
            priority: 0,
            id: None,
            after: after.to_vec(),
        };
        Workload { jobs: jobs.iter().map(job).collect() }
    }

    #[test]
    fn schedules_that_were_drawn_by_hand() {
        type Jobs<'a> = &'a [(u64, u64, &'a [usize])];
        let cases: [(&str, Jobs<'_>, usize, u64, u64); 10] = [
            ("nothing", &[], 3, 0, 0),
            ("one after another", &[(0, 3, &[]), (0, 4, &[])], 1, 7, 7),
            ("all at once", &[(0, 3, &[]), (0, 4, &[])], 5, 4, 4),
            // Slot 1: 2 2 5, slot 2: 3 3.
            (
                "a long one last",
                &[(0, 2, &[]), (0, 3, &[]), (0, 2, &[]), (0, 3, &[]), (0, 5, &[])],
                2,
                9,
                7,
            ),
            // The same jobs with the long one first. Slot 1: 5 2, slot 2: 2 3 3.
            (
                "a long one first",
                &[(0, 5, &[]), (0, 2, &[]), (0, 3, &[]), (0, 2, &[]), (0, 3, &[])],
                2,
                8,
                7,
            ),
            ("a late one", &[(0, 1, &[]), (10, 2, &[])], 1, 12, 3),
            // While the first runs, both others come: the order of submission counts.
            ("two that wait", &[(0, 5, &[]), (1, 9, &[]), (2, 1, &[])], 1, 15, 15),
            ("a chain", &[(0, 2, &[]), (0, 3, &[0]), (0, 4, &[1])], 9, 9, 4),
            // 1 and 2 after 0 side by side, then 3 after both.
            ("a diamond", &[(0, 1, &[]), (0, 5, &[0]), (0, 2, &[0]), (0, 1, &[1, 2])], 2, 7, 5),
            ("jobs that cost nothing", &[(0, 0, &[]), (0, 0, &[0]), (3, 0, &[1])], 1, 3, 0),
        ];
        for (name, jobs, slots, makespan, least) in cases {
            let workload = workload(jobs);
            assert_eq!(ideal(&workload, slots), millis(makespan), "{name}");
            assert_eq!(bound(&workload, slots).as_millis(), least.into(), "{name}");
        }
    }
}
