//! Frames that make no sense, on the WebSockets of workers that nobody started.

use std::net::Ipv4Addr;

use filch_e2e::random::Random;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

use super::mangle::mangle;
use crate::storm::within;

/// What a worker would say.
const RIGHT: &[&str] = &[
    r#"{"worker": "00000000000000b1", "session": 1, "number": 1, "messages": [{"hello": {
        "kind": "new", "slots": 2, "want": 3, "queues": ["q"], "started": [[7, 1]],
        "reports": [{"job": [7, 1], "ending": "finished", "result": {"a": 1}, "log": "text"}],
        "holds": [[7, 1], [8, 2]]}}]}"#,
    r#"{"worker": "00000000000000b1", "session": 1, "number": 2, "messages": ["heartbeat", {"want": 5},
        {"start": [7, 1]}, {"started": [7, 1]}, {"stopping": [7, 1]}, "drain"]}"#,
    r#"{"worker": "00000000000000b1", "session": 1, "number": 2, "messages": [{"report": {
        "job": [1, 1], "ending": {"failed": {"error": "no", "forever": true}}, "log": "x"}},
        {"finished": [[1, 1], [2, 1]]}, {"given": {"question": 1, "jobs": [[1, 1]]}},
        {"progress": {"job": [1, 1], "percent": 50}}]}"#,
    r#"{"worker": "00000000000000b1", "session": 1, "number": 2, "messages": [{"report": {
        "job": [1, 1], "ending": {"snoozed": 5}}}, {"report": {"job": [2, 1],
        "ending": "interrupted"}}, "goodbye"]}"#,
    r#"{"worker": "00000000000000b1", "session": 1, "number": 0, "output": [{"job": [7, 1],
        "stream": "stdout", "text": "hello"}]}"#,
];

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;

/// Sends so many frames, each in a connection of its own: what comes behind one, or before it so that it is
/// listened to, does not count. There are not enough ports for all of them on one address.
pub(super) async fn frames(address: &str, from: Ipv4Addr, mut random: Random, count: u64) {
    for _ in 0..count {
        let mut bytes = Vec::new();
        if random.below(2) == 0 {
            frame(&mut bytes, TEXT, RIGHT[0].as_bytes());
        }
        for _ in 0..=random.below(4) {
            hostile(&mut random, &mut bytes);
        }
        within(say(address, from, &bytes)).await;
    }
}

/// Opens a WebSocket, says all of this, and waits until the server has heard it.
async fn say(address: &str, from: Ipv4Addr, bytes: &[u8]) {
    let socket = TcpSocket::new_v4().expect("there are sockets");
    socket.bind((from, 0).into()).expect("a loopback address");
    let server = address.parse().expect("an address");
    let mut stream = socket.connect(server).await.expect("the server listens");
    let request = format!(
        "GET /v1/work HTTP/1.1\r\nhost: {address}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.expect("the server reads");
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.expect("the server answers");
    assert_eq!(&answer, b"HTTP/1.1 101");
    // Who is hung up on has been heard.
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
}

/// One frame that is wrong in some way, or that says something wrong.
fn hostile(random: &mut Random, bytes: &mut Vec<u8>) {
    let right = RIGHT[random.below(RIGHT.len() as u64) as usize];
    let text = mangle(random, right);
    match random.below(12) {
        // A frame as it should be, with a text that is not.
        0..=4 => frame(bytes, TEXT, &text),
        // Bits that nobody has agreed upon, opcodes that there are not.
        5 => raw(bytes, random.draw() as u8, Mask::Some, text.len() as u64, &text),
        // Without a mask.
        6 => raw(bytes, 0x80 | TEXT, Mask::None, right.len() as u64, right.as_bytes()),
        // Another length than it says: what follows is read as part of it, or as a frame.
        7 => {
            let length = [0, 1, 125, 126, 65_535, 65_536, 1 << 20, 1 << 31, u64::MAX];
            let length = length[random.below(length.len() as u64) as usize];
            raw(bytes, 0x80 | TEXT, Mask::Some, length, &text);
        }
        // In pieces, perhaps with a question between them, perhaps without an end or a beginning.
        8 => {
            let (one, other) = text.split_at(text.len() / 2);
            raw(bytes, TEXT, Mask::Some, one.len() as u64, one);
            if random.below(2) == 0 {
                frame(bytes, PING, b"?");
            }
            let opcode = [0x80, 0x00, 0x80 | TEXT][random.below(3) as usize];
            raw(bytes, opcode, Mask::Some, other.len() as u64, other);
        }
        // Control frames that are too long, or in pieces.
        9 => {
            let opcode = CLOSE + random.below(3) as u8;
            let opcode = if random.below(2) == 0 { opcode } else { 0x80 | opcode };
            raw(bytes, opcode, Mask::Some, text.len() as u64, &text);
        }
        // Goodbyes that make no sense.
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

/// A frame of which everything can be a lie.
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
