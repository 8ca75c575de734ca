//! Which jobs are meant: ids, the ends of ids, `@last`, a list of them on stdin, or what they have in
//! common (`filter`).

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
pub(crate) const HELP: &str = "A job: its id, at least the last 4 digits of it, @last for the newest, or what only it has (state:running)";

/// The same, where several can be named.
pub(crate) const HELP_MANY: &str = "Jobs: ids, at least the last 4 digits of each, @last for the newest, - to read them from stdin; or what they have in common (state:dead kind:resize queue:img since:1h)";

/// Jobs that were chosen.
pub(crate) struct Chosen {
    pub(crate) jobs: Vec<Job>,
    /// What they have in common, if that is how they were chosen.
    pub(crate) terms: Option<JobFilter>,
}

/// The id as the server takes it, which may still be only the end of one.
pub(crate) async fn one(client: &Client, selector: &str) -> Result<String> {
    if is_filter(selector) {
        return only(client, &JobFilter::read(&[selector])?).await;
    }
    if selector.trim().is_empty() {
        let help = "write an id, at least the last 4 digits of one, or @last for the newest job";
        return Err(Usage::new("the id of the job is empty", help).into());
    }
    if !selector.starts_with('@') {
        return Ok(selector.to_owned());
    }
    if selector != LAST {
        return Err(Usage::new(
            format!("{selector:?} names no job"),
            "write @last for the newest job, or an id",
        )
        .into());
    }
    let newest = client.jobs("before=0&limit=1").await?.jobs.into_iter().next();
    let newest = newest.ok_or_else(|| {
        Exit::new(exit::NOT_FOUND, "there is no last job\n  help: submit one with `filch submit`")
    })?;
    Ok(newest.id)
}

/// The one job that fits.
async fn only(client: &Client, terms: &JobFilter) -> Result<String> {
    let mut fitting = terms.jobs(client).await?;
    match (fitting.pop(), fitting.len()) {
        (Some(job), 0) => Ok(job.id),
        (None, _) => Err(none(terms)),
        (Some(_), others) => {
            let count = count_jobs(others as u64 + 1);
            let help = format!("choose one of them: `filch job list {terms}`");
            let text = format!("{count} match `{terms}`\n  help: {help}");
            Err(Exit::new(exit::CONFLICT, text).into())
        }
    }
}

/// That there is no such job.
fn none(terms: &JobFilter) -> anyhow::Error {
    let text = format!("no job matches `{terms}`\n  help: `filch job list` shows which there are");
    Exit::new(exit::NOT_FOUND, text).into()
}

/// The whole id. One that is written in full is not looked for.
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
    look.await.map_err(|error| blind(selector, error))
}

/// Some may name jobs, and not look for them.
fn blind(selector: &str, error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<Error>() {
        Some(Error::Refused(problem)) if problem.status == 403 => {
            let text = format!("{selector} has to be looked for, and {}", problem.title);
            let help = "write the whole id, as `filch submit` printed it";
            Exit::new(exit::NOT_PERMITTED, format!("{text}\n  help: {help}")).into()
        }
        _ => error,
    }
}

/// All of them, in order; each exists, and so does one that fits if that is how they are chosen.
pub(crate) async fn many(client: &Client, selectors: &[String]) -> Result<Vec<Job>> {
    match choose(client, selectors).await? {
        Chosen { jobs, terms: Some(terms) } if jobs.is_empty() => Err(none(&terms)),
        Chosen { jobs, .. } => Ok(jobs),
    }
}

/// All of them, and how they were chosen.
pub(crate) async fn choose(client: &Client, selectors: &[String]) -> Result<Chosen> {
    let (terms, names): (Vec<String>, Vec<String>) =
        written(selectors)?.into_iter().partition(|word| is_filter(word));
    if !terms.is_empty() {
        if let Some(name) = names.first() {
            let text = format!("{name:?} is a job, and {:?} what jobs have in common", terms[0]);
            return Err(Usage::new(text, "write either the one or the other").into());
        }
        let terms = JobFilter::read(&terms)?;
        return Ok(Chosen { jobs: terms.jobs(client).await?, terms: Some(terms) });
    }
    let (mut jobs, mut seen) = (Vec::new(), BTreeSet::new());
    for name in names {
        let job = client.job(&one(client, &name).await?).await?;
        if seen.insert(job.seq) {
            jobs.push(job);
        }
    }
    Ok(Chosen { jobs, terms: None })
}

/// The words themselves, with those of stdin in the place of `-`.
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

/// The last eight digits, by which people know a job or a worker.
pub(crate) fn short(id: &str) -> String {
    let from = id.len().saturating_sub(8);
    id.get(from..).unwrap_or(id).to_owned()
}
