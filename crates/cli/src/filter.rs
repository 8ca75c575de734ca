//! Job filters: `state:dead kind:resize queue:img since:1h`. A job must match all of them.

use std::fmt;

use anyhow::Result;
use filch_api::client::{Client, path};
use filch_api::job::{Job, states};
use filch_api::limits;
use filch_scheduler::state::JobState;

use crate::moment;
use crate::name_list;
use crate::output::message;
use crate::usage::Usage;
use filch_api::suggest::did_you_mean;

/// The fields of a filter.
const FIELDS: [&str; 4] = ["state", "kind", "queue", "since"];

/// A filter for jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobFilter {
    /// One state, or several separated by commas.
    pub(crate) state: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) queue: Option<String>,
    /// Submitted at this time or later: a time, or a duration before now.
    pub(crate) since: Option<String>,
}

/// Whether this word is part of a filter rather than an id.
pub(crate) fn is_filter(word: &str) -> bool {
    word.contains(':')
}

impl JobFilter {
    /// Parses words like `state:dead`. One word may hold several filters separated by blanks.
    ///
    /// # Errors
    /// If a field or a value is invalid.
    pub(crate) fn read(words: &[impl AsRef<str>]) -> Result<Self> {
        let mut filter = Self::default();
        for word in words.iter().flat_map(|word| word.as_ref().split_whitespace()) {
            let (field, value) = word.split_once(':').unwrap_or((word, ""));
            filter.add(field, value)?;
        }
        Ok(filter)
    }

    /// Adds one field.
    ///
    /// # Errors
    /// If the field or the value is invalid.
    pub(crate) fn add(&mut self, field: &str, value: &str) -> Result<()> {
        let slot = match field {
            "state" => &mut self.state,
            "kind" => &mut self.kind,
            "queue" => &mut self.queue,
            "since" => &mut self.since,
            _ => {
                let near = did_you_mean(field, &FIELDS);
                let text = format!("unknown filter `{field}`{near}");
                return Err(Usage::new(
                    text,
                    "write state:VALUE, kind:VALUE, queue:VALUE or since:WHEN",
                )
                .into());
            }
        };
        if value.is_empty() {
            return Err(Usage::new(
                format!("the filter `{field}` has no value"),
                format!("write {field}:VALUE"),
            )
            .into());
        }
        if slot.is_some() {
            let help = "give it once; several states are separated by commas: state:dead,cancelled";
            return Err(Usage::new(format!("the filter `{field}` is given twice"), help).into());
        }
        *slot = Some(match field {
            "state" => {
                let states = name_list::without_blanks(value);
                check_states(&states)?;
                states
            }
            _ => value.to_owned(),
        });
        Ok(())
    }

    /// The filter as query parameters, each with a leading `&`.
    pub(crate) fn query(&self) -> Result<String> {
        let since = self.since.as_deref().map(|since| moment::ago("since", since)).transpose()?;
        let fields = [
            ("state", self.state.clone()),
            ("kind", self.kind.clone()),
            ("queue", self.queue.clone()),
            ("since", since.map(|since| since.to_string())),
        ];
        let mut query = String::new();
        for (name, value) in fields {
            if let Some(value) = value {
                query.push_str(&format!("&{name}={}", path(&value)));
            }
        }
        Ok(query)
    }

    /// Every job that matches, the oldest first.
    pub(crate) async fn jobs(&self, client: &Client) -> Result<Vec<Job>> {
        let query = self.query()?;
        let (mut jobs, mut next) = (Vec::new(), Some(0));
        while let Some(after) = next {
            let most = limits::PAGE_JOBS;
            let page = client.jobs(&format!("after={after}&limit={most}{query}")).await?;
            jobs.extend(page.jobs);
            next = page.next;
        }
        if jobs.is_empty() {
            self.suggest(client).await?;
        }
        Ok(jobs)
    }

    /// If nothing matches, points out a queue or kind that may be misspelt.
    pub(crate) async fn suggest(&self, client: &Client) -> Result<()> {
        if let Some(queue) = &self.queue {
            let queues = client.queues().await?;
            let names: Vec<&str> = queues.iter().map(|queue| queue.name.as_str()).collect();
            if !names.contains(&queue.as_str()) {
                let near = did_you_mean(queue, &names);
                message(format_args!("no queue {queue:?}{near}"));
            }
        }
        if let Some(kind) = &self.kind {
            let newest = client.jobs(&format!("before=0&limit={}", limits::PAGE_JOBS)).await?.jobs;
            let kinds: Vec<&str> = newest.iter().map(|job| job.kind.as_str()).collect();
            if !kinds.contains(&kind.as_str()) {
                let near = did_you_mean(kind, &kinds);
                message(format_args!("no recent job has the kind {kind:?}{near}"));
            }
        }
        Ok(())
    }
}

/// As it can be typed.
impl fmt::Display for JobFilter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = [&self.state, &self.kind, &self.queue, &self.since];
        let filter = FIELDS
            .iter()
            .zip(values)
            .filter_map(|(field, value)| value.as_ref().map(|value| format!("{field}:{value}")));
        formatter.write_str(&filter.collect::<Vec<_>>().join(" "))
    }
}

/// Rejects unknown states before the server is asked.
pub(crate) fn check_states(words: &str) -> Result<()> {
    for word in words.split(',') {
        if states(word).is_none() {
            let known = JobState::ALL.map(JobState::word);
            let near = did_you_mean(&word.to_ascii_lowercase(), &known);
            let text = format!("unknown job state {word:?}{near}");
            return Err(Usage::new(text, format!("the states are {}", known.join(", "))).into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_parsed_and_printed() {
        let filter = JobFilter::read(&["state:dead,cancelled kind:resize", "queue:a:b"]).unwrap();
        assert_eq!(filter.to_string(), "state:dead,cancelled kind:resize queue:a:b");
        assert_eq!(filter.query().unwrap(), "&state=dead%2Ccancelled&kind=resize&queue=a%3Ab");
        assert_eq!(JobFilter::read(&[""]).unwrap(), JobFilter::default());
    }

    #[test]
    fn invalid_filters_are_rejected() {
        for (words, said) in [
            ("sate:dead", "did you mean \"state\"?"),
            ("state:daed", "did you mean \"dead\"?"),
            ("state:", "has no value"),
            ("kind:a kind:b", "is given twice"),
            ("priority:3", "write state:VALUE, kind:VALUE, queue:VALUE or since:WHEN"),
        ] {
            let error = JobFilter::read(&[words]).unwrap_err().to_string();
            assert!(error.contains(said), "{words}: {error}");
        }
    }
}
