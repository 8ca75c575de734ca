//! The jobs of a flow as a graph, for drawing.

use std::collections::BTreeMap;

use filch_api::flow::Flow;
use filch_api::submission::{Submission, When};

use crate::escape::{command, escaped};

/// The edges between jobs, which are identified by their position in the flow.
pub(super) struct Graph<'a> {
    pub(super) flow: &'a Flow,
    pub(super) children: Vec<Vec<usize>>,
    pub(super) parents: Vec<Vec<usize>>,
    /// The length of the longest path to each job.
    pub(super) depth: Vec<usize>,
}

impl<'a> Graph<'a> {
    /// Builds the graph of a flow without cycles.
    pub(super) fn of(flow: &'a Flow) -> Self {
        let places: BTreeMap<&str, usize> =
            flow.jobs.iter().enumerate().map(|(at, (name, _))| (name.as_str(), at)).collect();
        let count = flow.jobs.len();
        let mut children = vec![Vec::new(); count];
        let mut parents = vec![Vec::new(); count];
        for (at, (_, job)) in flow.jobs.iter().enumerate() {
            // Parents outside the flow exist already and are not drawn.
            for &parent in job.after.iter().filter_map(|after| places.get(after.as_str())) {
                children[parent].push(at);
                parents[at].push(parent);
            }
        }
        let mut depth = vec![0; count];
        let mut waits_for: Vec<usize> = parents.iter().map(Vec::len).collect();
        let mut free: Vec<usize> = (0..count).filter(|&at| waits_for[at] == 0).collect();
        while let Some(at) = free.pop() {
            for &child in &children[at] {
                depth[child] = depth[child].max(depth[at] + 1);
                waits_for[child] -= 1;
                if waits_for[child] == 0 {
                    free.push(child);
                }
            }
        }
        Self { flow, children, parents, depth }
    }

    pub(super) fn name(&self, at: usize) -> &'a str {
        &self.flow.jobs[at].0
    }
}

/// The command or kind of a job, on one line.
pub(super) fn what(job: &Submission) -> String {
    let what = match (&job.run, &job.kind) {
        (Some(words), _) => command(words),
        (None, kind) => kind.clone().unwrap_or_default(),
    };
    escaped(&what).into_owned()
}

pub(super) const fn word(when: When) -> &'static str {
    match when {
        When::AllSucceeded => "all-succeeded",
        When::AnySucceeded => "any-succeeded",
        When::AllDone => "all-done",
        When::AnyFailed => "any-failed",
    }
}
