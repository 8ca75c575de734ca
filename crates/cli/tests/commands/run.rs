//! `filch run`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};

use crate::server::{Running, interrupt, program};

/// The first line of a request, and its body.
fn request(stream: &TcpStream) -> (String, String) {
    let mut reader = BufReader::new(stream);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).expect("a request");
    for line in reader.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty()) {
        if let Some((_, said)) = line.split_once("content-length: ") {
            length = said.parse().expect("a number");
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("its body");
    (first, String::from_utf8(body).expect("it is UTF-8"))
}

/// A server that never answers a submit but answers everything else. Reports the requests it gets.
fn slow_to_answer(asked: Sender<(String, String)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let url = format!("http://{}", listener.local_addr().expect("it listens"));
    std::thread::spawn(move || {
        let mut unanswered = Vec::new();
        for mut stream in listener.incoming().map_while(Result::ok) {
            let (first, body) = request(&stream);
            let is_submit = first.starts_with("POST /v1/jobs ");
            // The test may have ended.
            let _ = asked.send((first, body));
            if is_submit {
                unanswered.push(stream);
            } else {
                let _ = stream.write_all(
                    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}",
                );
            }
        }
    });
    url
}

#[test]
fn an_interrupted_run_cancels_its_job_before_the_response_has_arrived() {
    let (requests, received) = channel();
    let url = slow_to_answer(requests);
    let mut running = Running::start(program().args(["run", "--server", &url, "--", "true"]));
    let (first, body) = received.recv().expect("the submit");
    assert!(first.starts_with("POST /v1/jobs "), "{first}");
    interrupt(&running);
    assert_eq!(running.code(), Some(130));
    let (first, _) = received.recv().expect("another request");
    let id = first.strip_prefix("POST /v1/jobs/").and_then(|rest| rest.split_once("/cancel "));
    let (id, _) = id.unwrap_or_else(|| panic!("a cancel: {first}"));
    assert!(body.contains(id), "{id} is in {body}");
}
