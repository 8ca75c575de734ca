//! Which server a command talks to, and the exit codes for error responses.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

use crate::server::{DATA, Server, end, filch, program};

/// A server that answers every request with this.
pub(crate) fn stub_server(status: &'static str, body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let url = format!("http://{}", listener.local_addr().expect("it listens"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let head = BufReader::new(&stream).lines().map_while(Result::ok);
            head.take_while(|line| !line.is_empty()).for_each(drop);
            let length = body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
        }
    });
    url
}

#[test]
fn each_error_response_has_its_exit_code() {
    for (status, body, code, said) in [
        ("200 OK", "<html>hello</html>", 7, "is not a filch server, or it has another version"),
        ("404 Not Found", "nothing here", 7, "it answered 404 Not Found"),
        (
            "403 Forbidden",
            r#"{"status": 403, "code": "c", "title": "you may not", "help": "get a token"}"#,
            5,
            "error: you may not\n  help: get a token\n",
        ),
        (
            "401 Unauthorized",
            r#"{"status": 401, "code": "c", "title": "who are you"}"#,
            5,
            "who are you",
        ),
        (
            "422 Unprocessable Content",
            r#"{"status": 422, "code": "c", "title": "\u001b[2J", "help": "\u009b2J\u202e"}"#,
            2,
            "error: \\u001b[2J\n  help: \\u009b2J\\u202e\n",
        ),
        ("409 Conflict", r#"{"status": 409, "code": "c", "title": "no"}"#, 4, "error: no\n"),
        (
            "503 Service Unavailable",
            r#"{"status": 503, "code": "c", "title": "no"}"#,
            1,
            "error: no\n",
        ),
    ] {
        let url = stub_server(status, body);
        filch(&["queue", "list", "--server", &url]).refused(code, said);
    }
}

#[test]
fn the_server_is_found_by_its_data_directory() {
    let server = Server::idle();
    let id = server.id(&["submit", "--", "true"]);
    let data = server.folder().join(DATA);
    let found = filch(&["wait", "--timeout", "1ms", "--data", data.to_str().unwrap(), &id]);
    found.refused(124, "timed out waiting");
    // The data directory from a variable, or the current one.
    let words = ["job", "list"];
    for command in
        [program().args(words).env("FILCH_DATA", &data), program().args(words).current_dir(&data)]
    {
        assert_eq!(end(command, "").fine().rows()[0][0], &id[28..]);
    }
}
