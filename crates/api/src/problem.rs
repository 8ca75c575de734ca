//! How a request is refused: `application/problem+json`, with a stable code and a text that
//! explains what to do.

use std::fmt;

use filch_scheduler::dispatch::Refused;
use serde::{Deserialize, Serialize};

use crate::id;

/// Why a request was not carried out. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Problem {
    /// The status of the HTTP answer.
    pub status: u16,
    /// A stable error code, for programs.
    pub code: String,
    /// What is wrong, for people.
    pub title: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// Where in the request: a path like `/2/retry/max`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

impl Problem {
    /// A problem without further help.
    #[must_use]
    pub fn new(status: u16, code: &str, title: impl Into<String>) -> Self {
        Self { status, code: code.to_owned(), title: title.into(), help: None, at: None }
    }

    /// The same, with what to do about it.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The same, with its place in the request.
    #[must_use]
    pub fn at(mut self, at: impl Into<String>) -> Self {
        self.at = Some(at.into());
        self
    }

    /// The same, with the path of the object that contains its place.
    #[must_use]
    pub fn inside(mut self, path: &str) -> Self {
        self.at = Some(format!("{path}{}", self.at.unwrap_or_default()));
        self
    }

    /// The request cannot be read.
    #[must_use]
    pub fn malformed(title: impl Into<String>) -> Self {
        Self::new(400, "malformed", title)
    }

    /// A value is invalid.
    #[must_use]
    pub fn invalid(title: impl Into<String>) -> Self {
        Self::new(422, "invalid", title)
    }

    /// Something does not exist.
    #[must_use]
    pub fn not_found(title: impl Into<String>) -> Self {
        Self::new(404, "not-found", title)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.title)?;
        if let Some(at) = &self.at {
            write!(formatter, " (at {at})")?;
        }
        if let Some(help) = &self.help {
            write!(formatter, "\n  help: {help}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        let title = refused.to_string();
        match refused {
            Refused::UnknownJob(_) => Self::not_found(title).help(
                "list jobs with `filch job list`; ended jobs are purged after the retention period",
            ),
            Refused::UnknownWorker(_) => {
                Self::not_found(title).help("list workers with `filch worker list`")
            }
            Refused::IdConflict(_) => Self::new(409, "id-conflict", title)
                .help("submit it under a new id, or repeat the first submit unchanged"),
            Refused::KeyConflict { holder, .. } => Self::new(409, "key-conflict", title).help(
                format!("`filch job show {}` shows the job that has the key", id::short(holder)),
            ),
            Refused::Cycle(_) | Refused::OwnParent(_) => Self::new(422, "cycle", title)
                .help("remove one of these dependencies: jobs in a cycle can never start"),
            Refused::ParentTwice { .. } => {
                Self::new(422, "parent-twice", title).help("name each parent once")
            }
            Refused::UnknownParent { .. } => Self::new(404, "unknown-parent", title)
                .help("submit the parent first, or in the same array"),
            Refused::WrongState { .. } => Self::new(409, "wrong-state", title),
            Refused::OutOfBounds { .. } => Self::new(422, "out-of-bounds", title),
            Refused::Busy => Self::new(503, "busy", title).help("retry in a second"),
        }
    }
}
