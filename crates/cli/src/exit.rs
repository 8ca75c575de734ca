//! The exit codes of failed commands. Scripts depend on them.

use std::fmt;

use filch_api::client;
use filch_server::Stopped;
use filch_store::CommitError;

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
/// The server's store cannot be read or written.
pub(crate) const STORE_FAILED: u8 = 8;
/// A bug in the server itself.
pub(crate) const CRASHED: u8 = 9;
/// Another server has taken over the store.
pub(crate) const SUPERSEDED: u8 = 10;
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

/// The exit code of a server that ended by itself.
pub(crate) const fn code_of_end(stopped: &Stopped) -> u8 {
    match stopped {
        Stopped::Asked => 1,
        Stopped::Commit(CommitError::Superseded) => SUPERSEDED,
        Stopped::Read(_)
        | Stopped::Commit(
            CommitError::DiskFailed(_) | CommitError::DiskFull(_) | CommitError::Unknown,
        ) => STORE_FAILED,
        Stopped::Crashed(_) | Stopped::Commit(CommitError::Broken(_)) => CRASHED,
    }
}

#[cfg(test)]
mod tests {
    use filch_store::StoreError;

    use super::*;

    #[test]
    fn a_crash_and_a_store_error_have_exit_codes_of_their_own() {
        let unread = StoreError { doing: "look up jobs", source: "no such table".into() };
        for (stopped, code) in [
            (Stopped::Asked, 1),
            (Stopped::Commit(CommitError::Superseded), SUPERSEDED),
            (Stopped::Commit(CommitError::DiskFailed("I/O error".into())), STORE_FAILED),
            (Stopped::Read(unread.into()), STORE_FAILED),
            (Stopped::Commit(CommitError::Broken("commit 7: no job number 9".into())), CRASHED),
            (Stopped::Crashed("job 7 is in no queue".into()), CRASHED),
        ] {
            assert_eq!(code_of_end(&stopped), code, "{stopped}");
        }
    }
}
