//! Usage errors: what is wrong with the command line, and what to write instead.

use std::fmt;

/// Ends the program with code 2.
#[derive(Debug)]
pub(crate) struct Usage {
    what: String,
    help: String,
}

impl Usage {
    pub(crate) fn new(what: impl Into<String>, help: impl Into<String>) -> Self {
        Self { what: what.into(), help: help.into() }
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}\n  help: {}", self.what, self.help)
    }
}

impl std::error::Error for Usage {}
