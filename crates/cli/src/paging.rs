//! Lists of jobs that come page by page.

use anyhow::Result;
use clap::Args;
use filch_api::client::Client;
use filch_api::limits;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::document::{self, JsonOrLines};
use crate::output::message;
use crate::table::{self, Column};

/// How many are shown
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ListLimit {
    /// So many at most
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50, conflicts_with = "all",
          value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// All of them
    #[arg(long)]
    all: bool,
}

/// What is listed.
pub(crate) trait ListedJob: DeserializeOwned + Serialize {
    const COLUMNS: &[Column];

    fn row(&self) -> Result<Vec<String>>;

    /// Prints it as one line of many.
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
    /// Whether there are more than were asked for.
    more: bool,
}

/// Where a list comes from.
pub(crate) struct PageSource<'a> {
    pub(crate) client: &'a Client,
    pub(crate) path: &'static str,
    /// `after` for the oldest first, or `before`.
    pub(crate) direction: &'static str,
    /// What else is asked for, with `&` before each.
    pub(crate) query: String,
}

/// Prints a list, and returns how many there were in it.
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
        // Lines are passed on page by page, so that any number of jobs fits.
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
            message(format_args!("there are more: --limit N or --all shows them"));
        }
    }
    Ok(shown)
}
