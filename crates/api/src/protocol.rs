//! The version of the protocol between workers and servers, and how both sides compare it.
//!
//! Each side sends its version in the header [`HEADER`] when a WebSocket is opened: the worker with
//! its request, the server with its answer. Both must match; a peer without the header is refused.

use crate::problem::Problem;

/// Grows with every change that an older peer would misunderstand. A new optional field is not such
/// a change.
pub const NUMBER: u32 = 1;

/// The header that carries the version, in both directions.
pub const HEADER: &str = "filch-protocol";

/// The problem code if the versions differ.
pub const CODE: &str = "wrong-protocol";

/// How much of a peer's version an error quotes.
const QUOTED_CHARS: usize = 20;

/// Compares the worker's version with this server's.
///
/// # Errors
/// If they differ or the worker sent none.
pub fn check_worker(sent: Option<&[u8]>) -> Result<(), Problem> {
    compare(sent, "worker", "server")
}

/// Compares the server's version with this worker's.
///
/// # Errors
/// If they differ or the server sent none.
pub fn check_server(sent: Option<&[u8]>) -> Result<(), Problem> {
    compare(sent, "server", "worker")
}

fn compare(sent: Option<&[u8]>, peer: &str, own: &str) -> Result<(), Problem> {
    let Some(sent) = sent else {
        let title =
            format!("the {peer} sent no `{HEADER}` header; this {own} speaks protocol {NUMBER}");
        return Err(Problem::new(400, CODE, title).help(HELP));
    };
    let sent = String::from_utf8_lossy(sent);
    let sent = sent.trim();
    if sent.parse() == Ok(NUMBER) {
        return Ok(());
    }
    let quoted: String = sent.chars().take(QUOTED_CHARS).collect();
    let title =
        format!("protocol mismatch: the {peer} speaks {quoted}, and this {own} speaks {NUMBER}");
    Err(Problem::new(400, CODE, title).help(HELP))
}

const HELP: &str =
    "run the same version of filch on both sides; `filch --version` prints the version";

/// The error of a worker whose frame the server at `url` rejected although the versions match.
#[must_use]
pub fn not_understood(url: &str, reason: &str) -> Problem {
    let reason = if reason.is_empty() { "no reason given" } else { reason };
    Problem::new(400, CODE, format!("{url} rejected the frame: {reason}")).help(HELP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_version_is_accepted() {
        assert_eq!(check_worker(Some(NUMBER.to_string().as_bytes())), Ok(()));
        for sent in [&b"2"[..], b"0", b"", b"x", b"1.5", b"-1", b"\xff", b"99999999999"] {
            let problem = check_worker(Some(sent)).unwrap_err();
            assert_eq!((problem.status, problem.code.as_str()), (400, CODE));
            assert!(check_server(Some(sent)).is_err());
        }
        let problem = check_server(Some(b"2")).unwrap_err();
        assert_eq!(
            problem.title,
            "protocol mismatch: the server speaks 2, and this worker speaks 1"
        );
        let problem = check_worker(None).unwrap_err();
        assert_eq!(
            problem.title,
            "the worker sent no `filch-protocol` header; this server speaks protocol 1"
        );
        let problem = not_understood("http://a", "");
        assert_eq!(problem.title, "http://a rejected the frame: no reason given");
        let long = check_worker(Some(&[b'9'; 4_000])).unwrap_err();
        assert!(long.title.len() < 100, "{}", long.title);
    }
}
