//! Workloads from a file: one JSON object per line.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs::File;
use std::io::{BufRead, BufReader};

use filch_scheduler::name::Name;
use filch_scheduler::time::Duration;
use serde::Deserialize;

use super::{JOBS_MAX, SPAN_MAX, WorkloadError, WorkloadJob, whole};

const HELP: &str = "write one object per line; only cost_ms is required: \
    {\"at_ms\": 0, \"cost_ms\": 5, \"queue\": \"default\", \"priority\": 0, \"id\": \"a\", \"after\": [\"b\"]}";

/// The longest id or name of a queue, as in the API.
const NAME_BYTES_MAX: usize = 200;

/// One line as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default)]
    at_ms: f64,
    cost_ms: f64,
    #[serde(default = "default_queue")]
    queue: String,
    #[serde(default)]
    priority: i16,
    id: Option<String>,
    #[serde(default)]
    after: Vec<String>,
}

fn default_queue() -> String {
    "default".into()
}

/// The jobs of this file, in an order in which they can be submitted.
pub(super) fn read(path: &str) -> Result<Vec<WorkloadJob>, WorkloadError> {
    let cannot = |error: std::io::Error| WorkloadError {
        what: format!("cannot read the workload {path} ({error})"),
        help: "name a file of JSON lines, for example file:jobs.jsonl".into(),
    };
    let lines = BufReader::new(File::open(path).map_err(cannot)?).lines();
    let mut draft = Draft { path, ..Draft::default() };
    let mut parents = Vec::new();
    for (number, line) in (1..).zip(lines) {
        let line = line.map_err(cannot)?;
        if !line.trim().is_empty() {
            parents.push(draft.add(number, &line)?);
        }
    }
    if draft.jobs.is_empty() {
        return Err(WorkloadError { what: format!("{path} has no jobs"), help: HELP.into() });
    }
    draft.link(parents)?;
    draft.ordered()
}

/// The lines that were read so far.
#[derive(Default)]
struct Draft<'a> {
    path: &'a str,
    jobs: Vec<WorkloadJob>,
    lines: Vec<usize>,
    ids: BTreeMap<String, usize>,
    /// Interned names of queues: many jobs share a few.
    queues: BTreeMap<String, Name>,
}

impl Draft<'_> {
    fn wrong(&self, line: usize, what: &str, help: &str) -> WorkloadError {
        WorkloadError { what: format!("{}:{line}: {what}", self.path), help: help.into() }
    }

    /// Adds one line, and returns the ids of its parents.
    fn add(&mut self, number: usize, text: &str) -> Result<Vec<String>, WorkloadError> {
        // serde would accept an array for a struct as well.
        if !text.trim_start().starts_with('{') {
            return Err(self.wrong(number, "the line is not a JSON object", HELP));
        }
        let line: Line = serde_json::from_str(text).map_err(|error| {
            let text = error.to_string();
            let what = text.rfind(" at line ").map_or(text.as_str(), |end| &text[..end]);
            self.wrong(number, &format!("column {}: {what}", error.column()), HELP)
        })?;
        if self.jobs.len() == JOBS_MAX {
            let what = "a workload has at most 10,000,000 jobs";
            return Err(self.wrong(number, what, "end the file before this line"));
        }
        let names = [("id", line.id.as_ref()), ("queue", Some(&line.queue))];
        for (what, name) in names.into_iter().filter_map(|(what, name)| Some((what, name?))) {
            let bytes = name.len();
            if bytes > NAME_BYTES_MAX {
                let what = format!("the {what} has {bytes} bytes");
                return Err(self.wrong(number, &what, "names have at most 200 bytes: shorten it"));
            }
        }
        let place = self.jobs.len();
        if let Some(id) = &line.id
            && let Some(other) = self.ids.insert(id.clone(), place)
        {
            let what = format!("line {} has the id {id:?} already", self.lines[other]);
            return Err(self.wrong(number, &what, "give each line a unique id, or none"));
        }
        let at = self.span(number, "at_ms", line.at_ms)?;
        let cost = self.span(number, "cost_ms", line.cost_ms)?;
        let Line { queue, priority, id, after, .. } = line;
        let name = Name::from(queue.as_str());
        let queue = self.queues.entry(queue).or_insert(name).clone();
        self.jobs.push(WorkloadJob { at, cost, queue, priority, id, after: Vec::new() });
        self.lines.push(number);
        Ok(after)
    }

    fn span(&self, line: usize, field: &str, millis: f64) -> Result<Duration, WorkloadError> {
        let help = "times are milliseconds from 0 to 2592000000 (30 days), fractions allowed";
        let span = Duration::try_from_secs_f64(millis / 1_000.0).ok();
        let wrong = || self.wrong(line, &format!("{field} cannot be {millis}"), help);
        span.filter(|&span| span <= SPAN_MAX).map(whole).ok_or_else(wrong)
    }

    /// Resolves the ids of parents to indexes.
    fn link(&mut self, parents: Vec<Vec<String>>) -> Result<(), WorkloadError> {
        let mut named_by = vec![None; self.jobs.len()];
        for (child, names) in parents.into_iter().enumerate() {
            let mut after = Vec::with_capacity(names.len());
            for name in names {
                let line = self.lines[child];
                let Some(&parent) = self.ids.get(&name) else {
                    let what = format!("no line has the id {name:?}");
                    let help = "name the id of another line in `after`, or leave it out";
                    return Err(self.wrong(line, &what, help));
                };
                if named_by[parent].replace(child) == Some(child) {
                    let what = format!("it is after {name:?} twice");
                    return Err(self.wrong(line, &what, "name each parent once"));
                }
                after.push(parent);
            }
            self.jobs[child].after = after;
        }
        Ok(())
    }

    /// The jobs by time and then by line, but no job before its parents: a child of a job that does
    /// not exist yet cannot be submitted, so it is submitted with the last of its parents.
    fn ordered(mut self) -> Result<Vec<WorkloadJob>, WorkloadError> {
        let count = self.jobs.len();
        let mut children = vec![Vec::new(); count];
        let mut missing = vec![0; count];
        for (child, job) in self.jobs.iter().enumerate() {
            missing[child] = job.after.len();
            job.after.iter().for_each(|&parent| children[parent].push(child));
        }
        let roots = (0..count).filter(|&place| missing[place] == 0);
        let mut next: BinaryHeap<_> =
            roots.map(|place| Reverse((self.jobs[place].at, place))).collect();
        let mut order = Vec::with_capacity(count);
        while let Some(Reverse((at, place))) = next.pop() {
            order.push(place);
            for &child in &children[place] {
                let job = &mut self.jobs[child];
                job.at = job.at.max(at);
                missing[child] -= 1;
                if missing[child] == 0 {
                    next.push(Reverse((job.at, child)));
                }
            }
        }
        if order.len() < count {
            return Err(self.cycle(&missing));
        }
        let mut places = vec![0; count];
        for (new, &old) in order.iter().enumerate() {
            places[old] = new;
        }
        for job in &mut self.jobs {
            job.after.iter_mut().for_each(|parent| *parent = places[*parent]);
        }
        let mut jobs: Vec<Option<WorkloadJob>> = self.jobs.into_iter().map(Some).collect();
        let take = |place: usize| jobs[place].take().expect("each place is in the order once");
        Ok(order.into_iter().map(take).collect())
    }

    /// Names one cycle among the jobs that still miss parents. Each of them has a parent that does
    /// too, so following parents leads into a cycle.
    fn cycle(&self, missing: &[usize]) -> WorkloadError {
        let mut place =
            missing.iter().position(|&count| count > 0).expect("at least one job waits");
        let mut path: Vec<usize> = Vec::new();
        let mut seen = vec![usize::MAX; missing.len()];
        while seen[place] == usize::MAX {
            seen[place] = path.len();
            path.push(place);
            let waits = |&&parent: &&usize| missing[parent] > 0;
            place = *self.jobs[place].after.iter().find(waits).expect("a parent waits too");
        }
        let cycle = &path[seen[place]..];
        let name =
            |&place: &usize| format!("{:?}", self.jobs[place].id.as_deref().unwrap_or_default());
        let mut names: Vec<String> = cycle.iter().take(10).map(name).collect();
        if cycle.len() > names.len() {
            names.push("...".into());
        }
        names.push(name(&cycle[0]));
        let what = format!("the jobs wait for each other: {}", names.join(" after "));
        self.wrong(self.lines[cycle[0]], &what, "remove one of these ids from an `after`")
    }
}
