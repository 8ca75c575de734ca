//! The exit codes of failed commands. Scripts depend on them.

use std::fmt;

use filch_api::client;

/// Ends the program with this code.
#[derive(Debug)]
pub(crate) struct Exit {
    pub(crate) code: u8,
    pub(crate) text: String,
}

/// A command line, file or value is invalid.
pub(crate) const USAGE: u8 = 2;
pub(crate) const NOT_FOUND: u8 = 3;
pub(crate) const CONFLICT: u8 = 4;
pub(crate) const NOT_PERMITTED: u8 = 5;
pub(crate) const UNREACHABLE: u8 = 6;
pub(crate) const OTHER_VERSION: u8 = 7;
/// A job that the command waited for has failed.
pub(crate) const JOB_FAILED: u8 = 100;
pub(crate) const JOB_CANCELLED: u8 = 102;
pub(crate) const WAIT_TIMED_OUT: u8 = 124;
/// `filch run` itself failed, not the command.
pub(crate) const OWN_FAULT: u8 = 125;
pub(crate) const INTERRUPTED: u8 = 130;

impl Exit {
    pub(crate) fn new(code: u8, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl std::error::Error for Exit {}

/// The exit code for a client error.
pub(crate) fn code_of(error: &client::Error) -> u8 {
    match error {
        client::Error::Unreachable { .. } | client::Error::Untrusted { .. } => UNREACHABLE,
        client::Error::Strange { .. } => OTHER_VERSION,
        client::Error::NoAccess(_) => USAGE,
        client::Error::Refused(problem) => match problem.status {
            404 => NOT_FOUND,
            409 => CONFLICT,
            401 | 403 => NOT_PERMITTED,
            400 | 413 | 415 | 422 => 2,
            _ => 1,
        },
    }
}
