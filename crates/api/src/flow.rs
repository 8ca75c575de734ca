//! A flow: jobs that depend on one another by name, submitted all or none.

use std::collections::HashMap;
use std::fmt;

use filch_scheduler::dispatch::Refused;
use filch_scheduler::id::JobId;
use filch_scheduler::spec::JobSpec;
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::job::Receipt;
use crate::problem::Problem;
use crate::submission::{Submission, name};
use crate::suggest::nearest;
use crate::{id, limits};

/// A flow as it is submitted.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Flow {
    /// Its name, for people only.
    pub name: String,
    /// The jobs by name, in order. `after` may name other jobs of this flow, or existing jobs by
    /// id.
    #[serde(serialize_with = "by_name")]
    pub jobs: Vec<(String, Submission)>,
}

/// A flow that passed validation.
#[derive(Clone, Debug)]
pub struct ValidatedFlow {
    /// Its name.
    pub name: String,
    /// The names of its jobs.
    pub names: Vec<String>,
    /// The jobs, in the same order.
    pub jobs: Vec<JobSpec>,
}

/// The receipts of a submitted flow.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FlowReceipts {
    /// Its name.
    pub name: String,
    /// The receipts of its jobs by name, in order.
    #[serde(serialize_with = "by_name")]
    pub jobs: Vec<(String, Receipt)>,
}

fn by_name<T: Serialize, S: Serializer>(
    items: &[(String, T)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(items.len()))?;
    for (name, item) in items {
        map.serialize_entry(name, item)?;
    }
    map.end()
}

impl Flow {
    /// Reads a flow from JSON.
    ///
    /// # Errors
    /// If it is malformed; the error names the job.
    pub fn read(text: &[u8]) -> Result<Self, Problem> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Raw<'a> {
            name: String,
            #[serde(borrow)]
            jobs: Ordered<'a>,
        }
        let raw: Raw<'_> = serde_json::from_slice(text).map_err(|error| unread(&error))?;
        if raw.jobs.0.len() > limits::FLOW_JOBS {
            let title = format!("too many jobs in the flow: {}", raw.jobs.0.len());
            return Err(Problem::new(413, "too-many-jobs", title)
                .help(format!("submit at most {} at once", limits::FLOW_JOBS))
                .at("/jobs"));
        }
        let jobs = raw.jobs.0.into_iter().map(|(name, text)| {
            let job = serde_json::from_str(text.get());
            job.map_err(|error| unread(&error).at(place(&name))).map(|job| (name, job))
        });
        Ok(Self { name: raw.name, jobs: jobs.collect::<Result<_, _>>()? })
    }

    /// Validates a flow. `key` determines the ids of jobs without one: the same key gives the same
    /// ids.
    ///
    /// # Errors
    /// If it is invalid; the error explains what to do.
    pub fn validate(self, key: Option<&str>) -> Result<ValidatedFlow, Problem> {
        name("name", &self.name)?;
        if self.jobs.is_empty() {
            return Err(Problem::invalid("the flow has no jobs").at("/jobs"));
        }
        let edges: usize = self.jobs.iter().map(|(_, job)| job.after.len()).sum();
        if edges > limits::FLOW_EDGES {
            let title = format!("too many dependencies in the flow: {edges}");
            return Err(Problem::new(413, "too-many-edges", title)
                .help(format!(
                    "use at most {}; a job in between can join many parents",
                    limits::FLOW_EDGES
                ))
                .at("/jobs"));
        }
        let graph = Graph::new(&self.jobs)?;
        if let Some(cycle) = graph.cycle() {
            let path: Vec<&str> = cycle.iter().map(|&at| self.jobs[at].0.as_str()).collect();
            let title = format!("the flow has a cycle: {}", path.join(" -> "));
            return Err(Problem::new(422, "cycle", title)
                .help("remove one of these dependencies: jobs in a cycle can never start")
                .at(format!("{}/after", place(path[0]))));
        }
        let mut ids = Vec::with_capacity(self.jobs.len());
        for (name, job) in &self.jobs {
            ids.push(id_of(name, job, key)?);
        }
        let parents = graph.parents;
        let mut judged = ValidatedFlow { name: self.name, names: Vec::new(), jobs: Vec::new() };
        for (at, (name, mut job)) in self.jobs.into_iter().enumerate() {
            let named = job.after.iter_mut().zip(&parents[at]);
            for (after, parent) in named {
                if let Some(parent) = *parent {
                    *after = id::job(ids[parent]);
                }
            }
            job.id = Some(id::job(ids[at]));
            let job = job.validate(|| ids[at]).map_err(|problem| problem.inside(&place(&name)))?;
            judged.names.push(name);
            judged.jobs.push(job);
        }
        Ok(judged)
    }
}

impl ValidatedFlow {
    /// A refusal by the scheduler, with the names of this flow's jobs.
    #[must_use]
    pub fn explain(names: &[(JobId, String)], refused: Refused) -> Problem {
        let name_of =
            |job: JobId| names.iter().find(|(id, _)| *id == job).map(|(_, name)| name.as_str());
        let whose = match &refused {
            Refused::IdConflict(job) | Refused::OwnParent(job) => name_of(*job),
            Refused::UnknownParent { child, .. } | Refused::ParentTwice { child, .. } => {
                name_of(*child)
            }
            _ => None,
        };
        let problem = match (&refused, whose) {
            (Refused::UnknownParent { parent, .. }, Some(name)) => unknown_parent(
                format!("job {name:?} waits for {}, which does not exist", id::job(*parent)),
                "submit that job first; ended jobs are purged after the retention period".into(),
            ),
            _ => Problem::from(refused),
        };
        match whose {
            Some(name) => problem.at(place(name)),
            None => problem,
        }
    }
}

fn id_of(job_name: &str, job: &Submission, key: Option<&str>) -> Result<JobId, Problem> {
    match (&job.id, key) {
        (Some(text), _) => id::read_job(text).ok_or_else(|| {
            Problem::invalid(format!("malformed id {text:?}"))
                .help("use a UUID, preferably version 7, or leave `id` out")
                .at(format!("{}/id", place(job_name)))
        }),
        // Keys come from a header, which cannot contain NUL bytes, so these ids are unique.
        (None, Some(key)) => Ok(job.keyed_id(&format!("flow\0{key}\0{job_name}"), 0)),
        (None, None) => Ok(id::new_job()),
    }
}

/// The JSON pointer to a job in the body of the request.
fn place(name: &str) -> String {
    format!("/jobs/{}", name.replace('~', "~0").replace('/', "~1"))
}

fn unread(error: &serde_json::Error) -> Problem {
    let kind = if error.is_data() { Problem::invalid } else { Problem::malformed };
    kind(error.to_string())
}

fn unknown_parent(title: String, help: String) -> Problem {
    Problem::new(404, "unknown-parent", title).help(help)
}

/// The members of an object in the order in which they were written.
struct Ordered<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Ordered<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Ordered<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object of jobs by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Ordered(members))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// The dependencies, by position in the flow.
struct Graph {
    /// The parents of each job: a position in the flow, or `None` for a job that exists already.
    parents: Vec<Vec<Option<usize>>>,
}

impl Graph {
    fn new(jobs: &[(String, Submission)]) -> Result<Self, Problem> {
        let mut places: HashMap<&str, usize> = HashMap::with_capacity(jobs.len());
        for (at, (job_name, _)) in jobs.iter().enumerate() {
            name("job", job_name).map_err(|problem| problem.at("/jobs"))?;
            if id::read_job(job_name).is_some() {
                let title = format!("the name {job_name:?} looks like an id");
                return Err(Problem::invalid(title)
                    .help("choose a name that is not a UUID; ids go into \"id\"")
                    .at(place(job_name)));
            }
            if places.insert(job_name, at).is_some() {
                return Err(Problem::invalid(format!("duplicate job name {job_name:?}"))
                    .help("give each job a unique name")
                    .at(place(job_name)));
            }
        }
        let parents = jobs.iter().map(|(job_name, job)| {
            let mut seen: Vec<&str> = job.after.iter().map(String::as_str).collect();
            seen.sort_unstable();
            if let Some([twice, _]) = seen.array_windows().find(|[one, other]| one == other) {
                return Err(Problem::new(
                    422,
                    "parent-twice",
                    format!("job {job_name:?} names {twice:?} twice"),
                )
                .help("name each parent once")
                .at(format!("{}/after", place(job_name))));
            }
            let found = job.after.iter().enumerate().map(|(index, after)| {
                match places.get(after.as_str()) {
                    Some(&parent) => Ok(Some(parent)),
                    None if id::read_job(after).is_some() => Ok(None),
                    None => {
                        let title = format!(
                            "job {job_name:?} waits for {after:?}, which is not in this flow"
                        );
                        let at = format!("{}/after/{index}", place(job_name));
                        Err(unknown_parent(title, advice(after, jobs)).at(at))
                    }
                }
            });
            found.collect()
        });
        Ok(Self { parents: parents.collect::<Result<_, _>>()? })
    }

    /// A cycle, if there is one: each job is a parent of the next, and the last is the first again.
    fn cycle(&self) -> Option<Vec<usize>> {
        let count = self.parents.len();
        let inside = |at: usize| self.parents[at].iter().copied().flatten();
        // Removes jobs without parents until none is left to remove.
        let mut children = vec![Vec::new(); count];
        let mut waits_for: Vec<usize> = (0..count).map(|at| inside(at).count()).collect();
        for at in 0..count {
            for parent in inside(at) {
                children[parent].push(at);
            }
        }
        let mut free: Vec<usize> = (0..count).filter(|&at| waits_for[at] == 0).collect();
        while let Some(at) = free.pop() {
            for &child in &children[at] {
                waits_for[child] -= 1;
                if waits_for[child] == 0 {
                    free.push(child);
                }
            }
        }
        // Every remaining job has a remaining parent: following parents must lead into a cycle.
        let mut at = (0..count).find(|&at| waits_for[at] > 0)?;
        let mut seen_at = vec![usize::MAX; count];
        let mut path = Vec::new();
        while seen_at[at] == usize::MAX {
            seen_at[at] = path.len();
            path.push(at);
            at = inside(at).find(|&parent| waits_for[parent] > 0)?;
        }
        let mut cycle = path.split_off(seen_at[at]);
        cycle.reverse();
        // Starts with the job that was written first, so that the same flow gives the same error.
        let first = (0..cycle.len()).min_by_key(|&index| cycle[index])?;
        cycle.rotate_left(first);
        cycle.push(cycle[0]);
        Some(cycle)
    }
}

/// How many names are searched for one to suggest.
const LOOKED_AT: usize = 10_000;

fn advice(after: &str, jobs: &[(String, Submission)]) -> String {
    let names = jobs.iter().take(LOOKED_AT).map(|(name, _)| name.as_str());
    nearest(after, names).map_or_else(
        || "name a job of this flow, or write the whole UUID of one that is there".into(),
        |name| format!("did you mean {name:?}?"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn validate(text: &str) -> Result<ValidatedFlow, Problem> {
        Flow::read(text.as_bytes())?.validate(Some("k"))
    }

    #[test]
    fn names_become_ids_and_the_same_key_gives_the_same_ones() {
        let text = r#"{"name": "n", "jobs": {
            "join": {"kind": "j", "after": ["a", "01890000-0000-7000-8000-000000000001"]},
            "a": {"kind": "k"}}}"#;
        let flow = validate(text).unwrap();
        assert_eq!(flow.names, ["join", "a"], "in the order in which they were written");
        let [join, a] = &flow.jobs[..] else { panic!("two jobs") };
        assert_eq!(join.parents[0], a.id);
        assert_eq!(validate(text).unwrap().jobs[1].id, a.id);
        let other = Flow::read(text.as_bytes()).unwrap().validate(Some("other")).unwrap();
        assert_ne!(other.jobs[1].id, a.id);
    }

    #[test]
    fn what_cannot_be_carried_out_is_named() {
        for (jobs, code, title) in [
            (
                r#""map": {"kind": "k", "after": ["join"]}, "join": {"kind": "k", "after": ["map"]}"#,
                "cycle",
                "the flow has a cycle: map -> join -> map",
            ),
            (r#""a": {"kind": "k", "after": ["a"]}"#, "cycle", "the flow has a cycle: a -> a"),
            (
                r#""in": {"kind": "k"}, "a": {"kind": "k", "after": ["in", "c"]},
                   "b": {"kind": "k", "after": ["a"]}, "c": {"kind": "k", "after": ["b"]},
                   "out": {"kind": "k", "after": ["c"]}"#,
                "cycle",
                "the flow has a cycle: a -> b -> c -> a",
            ),
            (
                r#""fetch": {"kind": "k"}, "b": {"kind": "k", "after": ["fecth"]}"#,
                "unknown-parent",
                "job \"b\" waits for \"fecth\", which is not in this flow",
            ),
            (
                r#""a": {"kind": "k"}, "b": {"kind": "k", "after": ["a", "a"]}"#,
                "parent-twice",
                "job \"b\" names \"a\" twice",
            ),
            (r#""a": {"kind": "k"}, "a": {"kind": "k"}"#, "invalid", "duplicate job name \"a\""),
            ("", "invalid", "the flow has no jobs"),
        ] {
            let text = format!(r#"{{"name": "n", "jobs": {{{jobs}}}}}"#);
            let problem = validate(&text).unwrap_err();
            assert_eq!((problem.code.as_str(), problem.title.as_str()), (code, title));
        }
    }

    #[test]
    fn a_problem_says_in_which_job_and_what_was_meant() {
        let text = r#"{"name": "n", "jobs": {"a/b": {"kind": "k", "queue": ""}}}"#;
        assert_eq!(validate(text).unwrap_err().at.as_deref(), Some("/jobs/a~1b/queue"));
        let text = r#"{"name": "n", "jobs": {"a": {"knid": "k"}}}"#;
        assert_eq!(validate(text).unwrap_err().at.as_deref(), Some("/jobs/a"));
        let text = r#"{"name": "n", "jobs": {"fetch": {"kind": "k", "after": ["fecth"]}}}"#;
        assert_eq!(validate(text).unwrap_err().help.as_deref(), Some("did you mean \"fetch\"?"));
    }
}
