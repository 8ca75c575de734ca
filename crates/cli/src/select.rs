//! Job selectors: ids, the last digits of ids, `@last`, ids on stdin, or filters (`filter`).

use std::collections::BTreeSet;
use std::io::BufRead as _;

use anyhow::{Context as _, Result};
use filch_api::client::{Client, Error};
use filch_api::id;
use filch_api::job::Job;

use crate::confirm::count_jobs;
use crate::exit::{self, Exit};
use crate::filter::{JobFilter, is_filter};
use crate::usage::Usage;

/// The newest submitted job.
const LAST: &str = "@last";

/// The help of every argument that names a job.
pub(crate) const HELP: &str = "A job: its id or at least the last 4 digits of it, @last for the newest job, or a filter that matches one job (state:running)";

/// The help of every argument that names several jobs.
pub(crate) const HELP_MANY: &str = "Jobs: ids or at least the last 4 digits of each, @last for the newest job, - to read ids from stdin, or filters (state:dead kind:resize queue:img since:1h)";

/// The selected jobs.
pub(crate) struct Selected {
    pub(crate) jobs: Vec<Job>,
    /// The filter, if they were selected by one.
    pub(crate) filter: Option<JobFilter>,
}

/// The id as the server accepts it, which may be the last digits of one.
pub(crate) async fn one(client: &Client, selector: &str) -> Result<String> {
    if is_filter(selector) {
        return only(client, &JobFilter::read(&[selector])?).await;
    }
    if selector.trim().is_empty() {
        let help = "write an id, at least the last 4 digits of one, or @last for the newest job";
        return Err(Usage::new("the job id is empty", help).into());
    }
    if !selector.starts_with('@') {
        return Ok(selector.to_owned());
    }
    if selector != LAST {
        return Err(Usage::new(
            format!("unknown job selector {selector:?}"),
            "write @last for the newest job, or an id",
        )
        .into());
    }
    let newest = client.jobs("before=0&limit=1").await?.jobs.into_iter().next();
    let newest = newest.ok_or_else(|| {
        Exit::new(
            exit::NOT_FOUND,
            "no job has been submitted yet\n  help: submit one with `filch submit`",
        )
    })?;
    Ok(newest.id)
}

/// The only job that matches the filter.
async fn only(client: &Client, filter: &JobFilter) -> Result<String> {
    let mut fitting = filter.jobs(client).await?;
    match (fitting.pop(), fitting.len()) {
        (Some(job), 0) => Ok(job.id),
        (None, _) => Err(none(filter)),
        (Some(_), others) => {
            let count = count_jobs(others as u64 + 1);
            let help = format!("choose one of them: `filch job list {filter}`");
            let text = format!("{count} match `{filter}`\n  help: {help}");
            Err(Exit::new(exit::CONFLICT, text).into())
        }
    }
}

/// The error if no job matches.
fn none(filter: &JobFilter) -> anyhow::Error {
    let text = format!("no job matches `{filter}`\n  help: list jobs with `filch job list`");
    Exit::new(exit::NOT_FOUND, text).into()
}

/// The full id. An id that is written in full is not looked up.
pub(crate) async fn whole(client: &Client, selector: &str) -> Result<String> {
    if id::read_job(selector).is_some() {
        return Ok(selector.to_owned());
    }
    let look = async {
        let named = one(client, selector).await?;
        match id::read_job(&named) {
            Some(_) => Ok(named),
            None => Ok(client.job(&named).await?.id),
        }
    };
    look.await.map_err(|error| explain_no_lookup(selector, error))
}

/// A token may permit naming jobs but not looking them up.
fn explain_no_lookup(selector: &str, error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<Error>() {
        Some(Error::Refused(problem)) if problem.status == 403 => {
            let text = format!("cannot look up {selector}: {}", problem.title);
            let help = "write the full id, as printed by `filch submit`";
            Exit::new(exit::NOT_PERMITTED, format!("{text}\n  help: {help}")).into()
        }
        _ => error,
    }
}

/// The selected jobs, in order. It is an error if one does not exist or if no job matches a filter.
pub(crate) async fn many(client: &Client, selectors: &[String]) -> Result<Vec<Job>> {
    match choose(client, selectors).await? {
        Selected { jobs, filter: Some(filter) } if jobs.is_empty() => Err(none(&filter)),
        Selected { jobs, .. } => Ok(jobs),
    }
}

/// The selected jobs, and the filter if there was one.
pub(crate) async fn choose(client: &Client, selectors: &[String]) -> Result<Selected> {
    let (filter, names): (Vec<String>, Vec<String>) =
        written(selectors)?.into_iter().partition(|word| is_filter(word));
    if !filter.is_empty() {
        if let Some(name) = names.first() {
            let text = format!("{name:?} is a job id and {:?} is a filter", filter[0]);
            return Err(Usage::new(text, "use either ids or filters").into());
        }
        let filter = JobFilter::read(&filter)?;
        return Ok(Selected { jobs: filter.jobs(client).await?, filter: Some(filter) });
    }
    let (mut jobs, mut seen) = (Vec::new(), BTreeSet::new());
    for name in names {
        let job = client.job(&one(client, &name).await?).await?;
        if seen.insert(job.seq) {
            jobs.push(job);
        }
    }
    Ok(Selected { jobs, filter: None })
}

/// The selectors, with the ids from stdin in place of `-`.
pub(crate) fn written(selectors: &[String]) -> Result<Vec<String>> {
    let mut words = Vec::new();
    for selector in selectors {
        if selector == "-" {
            for line in std::io::stdin().lock().lines() {
                let line = line.context("cannot read ids from stdin")?;
                words.extend(line.split_whitespace().next().map(str::to_owned));
            }
        } else {
            words.push(selector.clone());
        }
    }
    Ok(words)
}

/// The last eight digits of an id, as tables show it.
pub(crate) fn short(id: &str) -> String {
    let from = id.len().saturating_sub(8);
    id.get(from..).unwrap_or(id).to_owned()
}
