//! Version mismatches between worker and server, made by a proxy that changes the protocol version.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::server::{Running, Server, interrupt, until};

/// What the proxy does to the bytes of one direction.
#[derive(Clone)]
enum ProxyMode {
    /// Passes everything.
    Open,
    /// Replaces the protocol header.
    Changed(&'static str),
    /// Passes only the head.
    Cut,
    /// Passes everything until the flag is set, then sends this frame instead and nothing more.
    InvalidFrame(Arc<AtomicBool>, Vec<u8>),
}

/// Starts a proxy in front of a server, and returns its URL.
fn proxy(server: &Server, request: ProxyMode, answer: ProxyMode) -> String {
    let behind = server.url.trim_start_matches("http://").to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let own = listener.local_addr().expect("it listens").to_string();
    let url = format!("http://{own}");
    std::thread::spawn(move || {
        for front in listener.incoming() {
            let Ok(front) = front else { return };
            let Ok(back) = TcpStream::connect(&behind) else { return };
            let (Ok(to_front), Ok(to_back)) = (front.try_clone(), back.try_clone()) else { return };
            // The server accepts only its own `Host`.
            let names = (own.clone(), behind.clone());
            let (request, answer) = (request.clone(), answer.clone());
            std::thread::spawn(move || pass(front, to_back, &request, Some(names)));
            std::thread::spawn(move || pass(back, to_front, &answer, None));
        }
    });
    url
}

/// `names` are the addresses of the proxy and of the server.
fn pass(mut from: TcpStream, mut to: TcpStream, mode: &ProxyMode, names: Option<(String, String)>) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && from.read(&mut byte).is_ok_and(|count| count == 1) {
        head.push(byte[0]);
    }
    let mut head = String::from_utf8(head).expect("a head is text");
    if let Some((own, behind)) = names {
        head = head.replace(&own, &behind);
    }
    if let ProxyMode::Changed(instead) = mode {
        assert!(head.contains(OURS), "no {OURS:?} in {head}");
        head = head.replace(OURS, instead);
    }
    let _ = to.write_all(head.as_bytes());
    match mode {
        ProxyMode::Open | ProxyMode::Changed(_) => drop(std::io::copy(&mut from, &mut to)),
        ProxyMode::Cut => {}
        ProxyMode::InvalidFrame(inject, frame) => inject_frame(&mut from, &mut to, inject, frame),
    }
    let _ = to.shutdown(Shutdown::Both);
}

fn inject_frame(from: &mut TcpStream, to: &mut TcpStream, inject: &AtomicBool, frame: &[u8]) {
    let mut bytes = [0; 4_096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if inject.load(Ordering::SeqCst) {
            let _ = to.write_all(frame);
            // Keep the connection open until the server's response has been read.
            let _ = std::io::copy(from, &mut std::io::sink());
            return;
        }
        if to.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}

const OURS: &str = "filch-protocol: 1";

fn worker(server: &Server, url: &str) -> Running {
    let words = ["worker", "start", "--slots", "1", "--grace", "1d", "--server", url];
    Running::start(&mut server.command(&words))
}

#[test]
fn a_worker_with_another_protocol_version_or_none_exits_with_help() {
    let server = Server::idle();
    let none = ProxyMode::Changed("x-nothing: 1");
    let other = ProxyMode::Changed("filch-protocol: 2");
    for (request, answer, why) in [
        (
            other.clone(),
            ProxyMode::Open,
            "protocol mismatch: the worker speaks 2, and this server speaks 1",
        ),
        (
            ProxyMode::Open,
            other,
            "protocol mismatch: the server speaks 2, and this worker speaks 1",
        ),
        (
            none.clone(),
            ProxyMode::Open,
            "the worker sent no `filch-protocol` header; this server speaks protocol 1",
        ),
        (
            ProxyMode::Open,
            none,
            "the server sent no `filch-protocol` header; this worker speaks protocol 1",
        ),
    ] {
        let mut worker = worker(&server, &proxy(&server, request, answer));
        assert_eq!(worker.code(), Some(7), "{}", worker.kill_and_read_stderr());
        let said = worker.kill_and_read_stderr();
        assert!(said.contains(&format!("error: {why}\n")), "{said}");
        assert!(!said.contains("retrying"), "a retry would not help: {said}");
        assert!(said.contains("  help: run the same version of filch on both sides"), "{said}");
    }
}

#[test]
fn a_worker_reports_a_closed_connection() {
    let server = Server::idle();
    let url = proxy(&server, ProxyMode::Open, ProxyMode::Cut);
    let mut worker = worker(&server, &url);
    assert!(worker.next_stderr_line().starts_with("working for "));
    let why = "the server closed the connection before its first message";
    worker.stderr_line_with(&format!("connection to {url} closed: {why}"));
}

#[test]
fn a_disconnected_worker_without_jobs_exits_on_interrupt() {
    let server = Server::idle();
    let mut worker = worker(&server, &proxy(&server, ProxyMode::Open, ProxyMode::Cut));
    assert!(worker.next_stderr_line().starts_with("working for "));
    worker.stderr_line_with("connection to ");
    interrupt(&worker);
    // If it waited for the grace period, this would not return.
    assert_eq!(worker.code(), Some(0), "{}", worker.kill_and_read_stderr());
}

/// A WebSocket frame with a mask of zeros.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).expect("it is short");
    [&[0x80 | opcode, 0x80 | length, 0, 0, 0, 0], payload].concat()
}

#[test]
fn a_worker_whose_frame_is_rejected_exits_with_the_reason() {
    let server = Server::idle();
    for (frame, why) in [
        (frame(1, b"hello"), "invalid frame: expected value at line 1 column 1"),
        (frame(2, b"{}"), "invalid frame: it is binary, not text"),
        (frame(11, b"?"), "invalid frame: "),
    ] {
        let inject = Arc::new(AtomicBool::new(true));
        let url = proxy(&server, ProxyMode::InvalidFrame(inject, frame), ProxyMode::Open);
        let mut worker = worker(&server, &url);
        assert_eq!(worker.code(), Some(7), "{}", worker.kill_and_read_stderr());
        let said = worker.kill_and_read_stderr();
        let why = format!("error: {url} rejected the frame: {why}");
        assert!(said.contains(&why), "{said}");
        assert!(said.contains("  help: run the same version of filch on both sides"), "{said}");
    }
}

#[test]
fn jobs_of_a_worker_whose_frame_is_rejected_are_stopped_and_requeued() {
    let server = Server::idle();
    let inject = Arc::new(AtomicBool::new(false));
    let mode = ProxyMode::InvalidFrame(Arc::clone(&inject), frame(1, b"hello"));
    let mut worker = worker(&server, &proxy(&server, mode, ProxyMode::Open));
    let script = "echo $$ > pid.new && mv pid.new pid && exec sleep 600";
    let id = server.id(&["submit", "--", "sh", "-c", script]);
    until("it runs", || server.job(&id)["state"] == "running");
    // The state changes before the script has executed its first line.
    let pid = server.folder().join("pid");
    until("it has begun", || pid.exists());
    let pid = std::fs::read_to_string(pid).expect("it was moved there whole");
    inject.store(true, Ordering::SeqCst);
    assert_eq!(worker.code(), Some(7), "{}", worker.kill_and_read_stderr());
    until("the process is gone", || !std::path::Path::new("/proc").join(pid.trim()).exists());
    until("its lease has expired", || server.job(&id)["state"] == "queued");
}
