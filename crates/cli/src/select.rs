//! Which jobs are meant: ids, the ends of ids, `@last`, or a list of them on stdin.

use std::collections::BTreeSet;
use std::io::BufRead as _;

use anyhow::{Context as _, Result};
use filch_api::client::Client;
use filch_api::id;
use filch_api::job::Job;

use crate::exit::{self, Exit};
use crate::usage::Usage;

/// The newest submitted job.
const LAST: &str = "@last";

/// The help of every argument that names jobs.
pub(crate) const HELP: &str =
    "A job: its id, at least the last 4 digits of it, or @last for the newest";

/// The same, where several can be named.
pub(crate) const HELP_MANY: &str = "Jobs: ids, at least the last 4 digits of each, @last for the newest, or - to read them from stdin";

/// The id as the server takes it, which may still be only the end of one.
pub(crate) async fn one(client: &Client, selector: &str) -> Result<String> {
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

/// The whole id.
pub(crate) async fn whole(client: &Client, selector: &str) -> Result<String> {
    let named = one(client, selector).await?;
    if id::read_job(&named).is_some() {
        return Ok(named);
    }
    Ok(client.job(&named).await?.id)
}

/// All of them, in order; each exists.
pub(crate) async fn many(client: &Client, selectors: &[String]) -> Result<Vec<Job>> {
    let (mut jobs, mut seen) = (Vec::new(), BTreeSet::new());
    for selector in written(selectors)? {
        let job = client.job(&one(client, &selector).await?).await?;
        if seen.insert(job.seq) {
            jobs.push(job);
        }
    }
    Ok(jobs)
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
