//! What can be said of a job on the command line.

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

/// What can be said of any job
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct JobOptions {
    /// The line it waits in
    #[arg(long, short, value_name = "NAME")]
    pub(crate) queue: Option<String>,
    /// Higher is sooner
    #[arg(long, short, value_name = "N")]
    pub(crate) priority: i16,
    /// Start only after this job; may be given several times
    #[arg(long, value_name = "ID")]
    pub(crate) after: Vec<String>,
    /// How the jobs named by --after must end [default: all-succeeded]
    #[arg(long, value_name = "HOW", requires = "after")]
    pub(crate) when: Option<Ending>,
    /// Not before this moment (2026-01-31T12:00:00Z), or this span from now (90s)
    #[arg(long, value_name = "WHEN")]
    pub(crate) at: Option<String>,
    /// How many attempts there are
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) retry: Option<u16>,
    /// How long one attempt may take
    #[arg(long, value_name = "SPAN", value_parser = read_timeout)]
    pub(crate) timeout: Option<Duration>,
    /// A second name for what is submitted: the same key and the same words, the same jobs
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
}

/// Less than what is counted would be nothing.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);

fn read_timeout(text: &str) -> Result<Duration, String> {
    let timeout = filch_api::span::read(text)?;
    let none = "no attempt could succeed; write 1ms or more, or leave --timeout out";
    if timeout < TIMEOUT_MIN { Err(none.to_owned()) } else { Ok(timeout) }
}

/// What can be said of a command
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct CommandOptions {
    /// A variable for the command's environment; may be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// The folder in which it runs [default: the present one]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

/// How the jobs must end that another one waits for
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Ending {
    AllSucceeded,
    AnySucceeded,
    AllDone,
    AnyFailed,
}

impl From<Ending> for When {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::AllSucceeded => Self::AllSucceeded,
            Ending::AnySucceeded => Self::AnySucceeded,
            Ending::AllDone => Self::AllDone,
            Ending::AnyFailed => Self::AnyFailed,
        }
    }
}

impl JobOptions {
    /// A job that is nothing yet, under a new id. The server is asked whom the ends of ids mean.
    pub(crate) async fn plain(&self, client: &Client) -> Result<Submission> {
        let timeout = self.timeout.map(|timeout| {
            u32::try_from(timeout.as_millis()).map(|millis| Span(Millis(millis))).map_err(|_| {
                Usage::new("the timeout is too long", "an attempt may take 49 days at most")
            })
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
    /// The same job, as this command.
    pub(crate) fn command(&self, words: &[String], job: Submission) -> Result<Submission> {
        let mut dir = std::env::current_dir().context("cannot tell the present folder")?;
        if let Some(other) = &self.dir {
            dir.push(other);
        }
        let mut env = BTreeMap::new();
        for variable in &self.env {
            let named = variable.split_once('=').filter(|(name, _)| !name.is_empty());
            let (name, value) = named.ok_or_else(|| {
                Usage::new(format!("{variable:?} is no variable"), "write --env NAME=VALUE")
            })?;
            env.insert(name.to_owned(), value.to_owned());
        }
        let dir = dir.into_os_string().into_string().map_err(|dir| {
            Usage::new(
                format!("the folder {} has a name that is not UTF-8", dir.display()),
                "choose another one with --dir",
            )
        })?;
        Ok(Submission { run: Some(words.to_vec()), dir: Some(dir), env, ..job })
    }
}
