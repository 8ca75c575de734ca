//! Malformed WebSocket frames, sent as if by workers.

use std::net::Ipv4Addr;

use filch_e2e::random::TestRandom;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

use super::mutate::mutate;
use crate::malformed::within;

/// Messages that a worker would send.
const VALID: &[&str] = &[
    r#"{"worker": "00000000000000b1", "session": 1, "number": 1, "messages": [{"hello": {
        "kind": "new", "slots": 2, "want": 3, "queues": ["q"], "started": [[7, 1]],
        "reports": [{"job": [7, 1], "ending": "finished", "result": {"a": 1}, "log": "text"}],
        "holds": [[7, 1], [8, 2]]}}]}"#,
    r#"{"worker": "00000000000000b1", "session": 1, "number": 2, "messages": ["heartbeat", {"want": 5},
        {"start": [7, 1]}, {"started": [7, 1]}, {"stopping": [7, 1]}, "drain"]}"#,
    r#"{"worker": "00000000000000b1", "session": 1, "number": 2, "messages": [{"report": {
        "job": [1, 1], "ending": "failed", "error": "no", "forever": true, "log": "x"}},
        {"finished": [[1, 1], [2, 1]]}, {"given": {"question": 1, "jobs": [[1, 1]]}},
        {"progress": {"job": [1, 1], "percent": 50}}]}"#,
    r#"{"worker": "00000000000000b1", "session": 1, "number": 2, "messages": [{"report": {
        "job": [1, 1], "ending": "snoozed", "wait": "5ms"}}, {"report": {"job": [2, 1],
        "ending": "interrupted"}}, "goodbye"]}"#,
    r#"{"worker": "00000000000000b1", "session": 1, "number": 0, "output": [{"job": [7, 1],
        "stream": "stdout", "text": "hello"}]}"#,
];

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;

/// Sends this many frames, each in its own connection: other frames before and after it do not
/// count. One source address does not have enough ports for all of them.
pub(super) async fn frames(address: &str, from: Ipv4Addr, mut random: TestRandom, count: u64) {
    for _ in 0..count {
        let mut bytes = Vec::new();
        if random.below(2) == 0 {
            frame(&mut bytes, TEXT, VALID[0].as_bytes());
        }
        for _ in 0..=random.below(4) {
            malformed(&mut random, &mut bytes);
        }
        within(send(address, from, &bytes)).await;
    }
}

/// Opens a WebSocket, sends all of this, and waits until the server has closed it.
async fn send(address: &str, from: Ipv4Addr, bytes: &[u8]) {
    let socket = TcpSocket::new_v4().expect("there are sockets");
    socket.bind((from, 0).into()).expect("a loopback address");
    let server = address.parse().expect("an address");
    let mut stream = socket.connect(server).await.expect("the server listens");
    let request = format!(
        "GET /v1/work HTTP/1.1\r\nhost: {address}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nfilch-protocol: 1\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("the server reads");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.expect("the server answers");
    assert_eq!(&answer, b"HTTP/1.1 101");
    // If the server has closed the connection, it has read enough.
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
}

/// One frame that is malformed, or that contains a malformed text.
fn malformed(random: &mut TestRandom, bytes: &mut Vec<u8>) {
    let valid = VALID[random.below(VALID.len() as u64) as usize];
    let text = mutate(random, valid);
    match random.below(12) {
        // A valid frame with a malformed text.
        0..=4 => frame(bytes, TEXT, &text),
        // Reserved bits and unknown opcodes.
        5 => raw(bytes, random.draw() as u8, Mask::Some, text.len() as u64, &text),
        // Without a mask.
        6 => raw(bytes, 0x80 | TEXT, Mask::None, valid.len() as u64, valid.as_bytes()),
        // A wrong length: what follows is read as part of it, or as a frame.
        7 => {
            let length = [0, 1, 125, 126, 65_535, 65_536, 1 << 20, 1 << 31, u64::MAX];
            let length = length[random.below(length.len() as u64) as usize];
            raw(bytes, 0x80 | TEXT, Mask::Some, length, &text);
        }
        // Fragments, perhaps with a ping between them, perhaps without an end or a beginning.
        8 => {
            let (one, other) = text.split_at(text.len() / 2);
            raw(bytes, TEXT, Mask::Some, one.len() as u64, one);
            if random.below(2) == 0 {
                frame(bytes, PING, b"?");
            }
            let opcode = [0x80, 0x00, 0x80 | TEXT][random.below(3) as usize];
            raw(bytes, opcode, Mask::Some, other.len() as u64, other);
        }
        // Control frames that are too long, or fragmented.
        9 => {
            let opcode = CLOSE + random.below(3) as u8;
            let opcode = if random.below(2) == 0 { opcode } else { 0x80 | opcode };
            raw(bytes, opcode, Mask::Some, text.len() as u64, &text);
        }
        // Invalid close frames.
        10 => {
            let code = (random.draw() as u16).to_be_bytes();
            let reason = &text[..text.len().min(100)];
            let whole = [&code, reason].concat();
            frame(bytes, CLOSE, &whole[..random.below(whole.len() as u64 + 1) as usize]);
        }
        _ => frame(bytes, BINARY, &text),
    }
}

enum Mask {
    Some,
    None,
}

fn frame(bytes: &mut Vec<u8>, opcode: u8, payload: &[u8]) {
    raw(bytes, 0x80 | opcode, Mask::Some, payload.len() as u64, payload);
}

/// A frame with any header.
fn raw(bytes: &mut Vec<u8>, first: u8, mask: Mask, length: u64, payload: &[u8]) {
    bytes.push(first);
    let bit = match mask {
        Mask::Some => 0x80,
        Mask::None => 0,
    };
    match length {
        0..126 => bytes.push(bit | length as u8),
        126..65_536 => {
            bytes.push(bit | 126);
            bytes.extend((length as u16).to_be_bytes());
        }
        _ => {
            bytes.push(bit | 127);
            bytes.extend(length.to_be_bytes());
        }
    }
    match mask {
        Mask::Some => {
            let key = [0x5a, 0xc3, 0x11, 0x7e];
            bytes.extend(key);
            bytes.extend(payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
        }
        Mask::None => bytes.extend(payload),
    }
}
