//! The options of submitted jobs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use filch_api::client::Client;
use filch_api::submission::{RetryPolicy, Span, Submission, When};
use filch_scheduler::time::Millis;

use crate::usage::Usage;
use crate::{moment, select};

/// Options of every job
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct JobOptions {
    /// Queue to submit to
    #[arg(long, short, value_name = "NAME")]
    pub(crate) queue: Option<String>,
    /// Priority; higher runs sooner (strategy `priority`)
    #[arg(long, short, value_name = "N")]
    pub(crate) priority: i16,
    /// Dependency: start after this job has ended (repeatable)
    #[arg(long, value_name = "ID")]
    pub(crate) after: Vec<String>,
    /// Condition on the jobs named by --after [default: all-succeeded]
    #[arg(long, value_name = "CONDITION", requires = "after")]
    pub(crate) when: Option<Condition>,
    /// Do not start before this time (2026-01-31T12:00:00Z) or delay (90s)
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<String>,
    /// Maximum number of attempts, with exponential backoff between them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) retry: Option<u16>,
    /// Time limit of one attempt
    #[arg(long, value_name = "DURATION", value_parser = read_timeout)]
    pub(crate) timeout: Option<Duration>,
    /// Idempotency key: submitting again with the same key returns the same job
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
}

/// Timeouts are counted in milliseconds.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);

fn read_timeout(text: &str) -> Result<Duration, String> {
    let timeout = filch_api::span::read(text)?;
    let none = "a timeout must be at least 1ms; omit --timeout for none";
    if timeout < TIMEOUT_MIN { Err(none.to_owned()) } else { Ok(timeout) }
}

/// Options of commands
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct CommandOptions {
    /// Environment variable for the command (repeatable)
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Working directory of the command [default: the current one]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Condition on the dependencies of a job
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Condition {
    AllSucceeded,
    AnySucceeded,
    AllDone,
    AnyFailed,
}

impl From<Condition> for When {
    fn from(condition: Condition) -> Self {
        match condition {
            Condition::AllSucceeded => Self::AllSucceeded,
            Condition::AnySucceeded => Self::AnySucceeded,
            Condition::AllDone => Self::AllDone,
            Condition::AnyFailed => Self::AnyFailed,
        }
    }
}

impl JobOptions {
    /// A job without work, with a new id. Short ids of dependencies are looked up on the server.
    pub(crate) async fn submission(&self, client: &Client) -> Result<Submission> {
        let timeout = self.timeout.map(|timeout| {
            u32::try_from(timeout.as_millis())
                .map(|millis| Span(Millis(millis)))
                .map_err(|_| Usage::new("the timeout is too long", "write at most 49d"))
        });
        let mut after = Vec::new();
        for parent in &self.after {
            after.push(select::whole(client, parent).await?);
        }
        Ok(Submission {
            id: Some(filch_api::id::job(filch_api::id::new_job())),
            queue: self.queue.clone(),
            priority: self.priority,
            after,
            when: self.when.map(When::from).unwrap_or_default(),
            at: self.at.as_deref().map(|at| moment::from_now("--at", at)).transpose()?,
            retry: self.retry.map(|max| RetryPolicy { max, ..RetryPolicy::default() }),
            timeout: timeout.transpose()?,
            key: self.key.clone(),
            ..Submission::default()
        })
    }
}

impl CommandOptions {
    /// The job with this command as its work.
    pub(crate) fn command(&self, words: &[String], job: Submission) -> Result<Submission> {
        let mut dir = std::env::current_dir().context("cannot determine the current directory")?;
        if let Some(other) = &self.dir {
            dir.push(other);
        }
        let mut env = BTreeMap::new();
        for variable in &self.env {
            let named = variable.split_once('=').filter(|(name, _)| !name.is_empty());
            let (name, value) = named.ok_or_else(|| {
                Usage::new(
                    format!("invalid environment variable {variable:?}"),
                    "write --env NAME=VALUE",
                )
            })?;
            env.insert(name.to_owned(), value.to_owned());
        }
        let dir = dir.into_os_string().into_string().map_err(|dir| {
            Usage::new(
                format!("the directory {} is not UTF-8", dir.display()),
                "choose another one with --dir",
            )
        })?;
        Ok(Submission { run: Some(words.to_vec()), dir: Some(dir), env, ..job })
    }
}
