//! The number of the protocol that workers and servers speak over a WebSocket, and how they compare it.
//!
//! Both say theirs in a header when a connection is made. Who says none is from before there was a number,
//! and is taken as it is.

use crate::problem::Problem;

/// Grows with every change that a peer without it would misunderstand; what may be left out or added freely
/// is no such change.
pub const NUMBER: u32 = 1;

/// The header that brings it, on both ways.
pub const HEADER: &str = "filch-protocol";

/// The code of the refusal if the numbers differ.
pub const CODE: &str = "wrong-protocol";

/// So much of another's number is repeated.
const SAID_CHARS: usize = 20;

/// Compares what the worker has said with this server's number.
///
/// # Errors
/// If it is another one.
pub fn check_worker(said: Option<&[u8]>) -> Result<(), Problem> {
    let number = NUMBER;
    compare(said, |said| format!("the worker speaks protocol {said}, and this server {number}"))
}

/// Compares what the server has said with this worker's number.
///
/// # Errors
/// If it is another one.
pub fn check_server(said: Option<&[u8]>) -> Result<(), Problem> {
    let number = NUMBER;
    compare(said, |said| format!("the server speaks protocol {said}, and this worker {number}"))
}

fn compare(said: Option<&[u8]>, title: impl Fn(&str) -> String) -> Result<(), Problem> {
    let Some(said) = said else { return Ok(()) };
    let said = String::from_utf8_lossy(said);
    let said = said.trim();
    if said.parse() == Ok(NUMBER) {
        return Ok(());
    }
    let beginning: String = said.chars().take(SAID_CHARS).collect();
    Err(Problem::new(400, CODE, title(&beginning)).help(HELP))
}

const HELP: &str =
    "run the same version of filch on both sides; `filch --version` says which it is";

/// What a worker says whose words the server at this address does not understand, though their numbers agree.
#[must_use]
pub fn not_understood(url: &str, reason: &str) -> Problem {
    let reason = if reason.is_empty() { "it does not say why" } else { reason };
    let title = format!("{url} makes nothing of what this worker says: {reason}");
    Problem::new(400, CODE, title).help(HELP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_number_is_refused() {
        assert_eq!(check_worker(None), Ok(()), "older ones say nothing");
        assert_eq!(check_worker(Some(NUMBER.to_string().as_bytes())), Ok(()));
        for said in [&b"2"[..], b"0", b"", b"x", b"1.5", b"-1", b"\xff", b"99999999999"] {
            let problem = check_worker(Some(said)).unwrap_err();
            assert_eq!((problem.status, problem.code.as_str()), (400, CODE));
            assert!(check_server(Some(said)).is_err());
        }
        let problem = check_server(Some(b"2")).unwrap_err();
        assert_eq!(problem.title, "the server speaks protocol 2, and this worker 1");
        let problem = not_understood("http://a", "");
        assert_eq!(
            problem.title,
            "http://a makes nothing of what this worker says: it does not say why"
        );
        let long = check_worker(Some(&[b'9'; 4_000])).unwrap_err();
        assert!(long.title.len() < 100, "{}", long.title);
    }
}
