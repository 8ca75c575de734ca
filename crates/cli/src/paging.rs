//! Lists of jobs, fetched page by page.

use anyhow::Result;
use clap::Args;
use filch_api::client::Client;
use filch_api::limits;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::document::{self, JsonOrLines};
use crate::output::message;
use crate::table::{self, Column};

/// How many jobs to list
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ListLimit {
    /// List at most this many jobs
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50, conflicts_with = "all",
          value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// List all jobs
    #[arg(long)]
    all: bool,
}

/// A job in a list.
pub(crate) trait ListedJob: DeserializeOwned + Serialize {
    const COLUMNS: &[Column];

    fn row(&self) -> Result<Vec<String>>;

    /// Prints the job as one JSON line.
    fn line(&self) -> Result<()>;
}

#[derive(Deserialize)]
struct Page<T> {
    jobs: Vec<T>,
    next: Option<u64>,
}

#[derive(Serialize)]
struct Document<T> {
    jobs: Vec<T>,
    /// Whether there are more jobs than the limit.
    more: bool,
}

/// The API query that lists the jobs.
pub(crate) struct PageSource<'a> {
    pub(crate) client: &'a Client,
    pub(crate) path: &'static str,
    /// `after` for the oldest first, or `before`.
    pub(crate) direction: &'static str,
    /// Further query parameters, each with a leading `&`.
    pub(crate) query: String,
}

/// Prints a list, and returns the number of jobs in it.
pub(crate) async fn print_jobs<T: ListedJob>(
    source: &PageSource<'_>,
    count: ListLimit,
    form: JsonOrLines,
) -> Result<u64> {
    let PageSource { client, path, direction, query } = source;
    let limit = if count.all { u64::MAX } else { count.limit };
    let mut jobs: Vec<T> = Vec::new();
    let (mut shown, mut next) = (0, Some(0));
    while let Some(from) = next
        && shown < limit
    {
        let most = (limit - shown).min(limits::PAGE_JOBS as u64);
        let page: Page<T> =
            client.get(&format!("{path}?{direction}={from}&limit={most}{query}")).await?;
        shown += page.jobs.len() as u64;
        next = page.next;
        // JSON lines are printed page by page, so that memory does not grow with the list.
        if form.jsonl {
            page.jobs.iter().try_for_each(ListedJob::line)?;
        } else {
            jobs.extend(page.jobs);
        }
    }
    let more = next.is_some();
    if form.json {
        document::print(Document { jobs, more })?;
    } else if !form.jsonl {
        let rows = jobs.iter().map(ListedJob::row).collect::<Result<Vec<_>>>()?;
        table::list(T::COLUMNS, &rows)?;
        if more {
            message(format_args!("more jobs match: use --limit N or --all"));
        }
    }
    Ok(shown)
}
