//! The workers' door, spoken to in bytes: what is no frame of a worker is answered with why, and
//! another protocol is not let in.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::client::Place;

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;

/// The header without which no worker is let in.
pub(crate) const PROTOCOL: &str = "filch-protocol: 1\r\n";

/// Asks for a WebSocket with these headers beside the usual ones; gives the head of the answer.
pub(crate) async fn ask(place: &Place, headers: &str) -> (TcpStream, String) {
    let address = place.server.address();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET /v1/work HTTP/1.1\r\nhost: {address}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    (stream, String::from_utf8(head).unwrap().to_ascii_lowercase())
}

/// A frame with a mask of zeros, which changes nothing.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    assert!(length < 126);
    [&[0x80 | opcode, 0x80 | length, 0, 0, 0, 0][..], payload].concat()
}

/// With which code and which words the server hangs up after this.
async fn farewell(place: &Place, said: &[u8]) -> (u16, String) {
    let (mut stream, _) = ask(place, PROTOCOL).await;
    stream.write_all(said).await.unwrap();
    let (first, length) = (stream.read_u8().await.unwrap(), stream.read_u8().await.unwrap());
    assert_eq!(first, 0x80 | CLOSE, "a close frame with the reason");
    let code = stream.read_u16().await.unwrap();
    let mut reason = vec![0; usize::from(length) - 2];
    stream.read_exact(&mut reason).await.unwrap();
    (code, String::from_utf8(reason).unwrap())
}

#[tokio::test]
async fn invalid_frames_are_answered_with_the_reason() {
    let place = Place::start().await;
    let who = r#""worker": "00000000000000a1", "session": 1, "number": 1"#;
    for (said, code, why) in [
        (frame(TEXT, b"hello"), 1007, "expected value at line 1 column 1"),
        (frame(TEXT, b"{\"worker\": 7}"), 1007, "invalid type: integer `7`"),
        (frame(TEXT, format!("{{{who}, \"x\": 1}}").as_bytes()), 1007, "unknown field `x`"),
        (
            frame(TEXT, br#"{"worker": "x", "session": 1}"#),
            1007,
            "a worker's id has 16 hexadecimal digits",
        ),
        (frame(BINARY, b"{}"), 1003, "it is binary, not text"),
        (frame(0x0b, b"?"), 1002, "invalid frame: "),
    ] {
        let (seen, reason) = farewell(&place, &said).await;
        assert_eq!(seen, code, "{reason}");
        assert!(reason.starts_with("invalid frame: ") && reason.contains(why), "{reason}");
        assert!(reason.len() <= 123, "{reason}");
    }
}

#[tokio::test]
async fn a_worker_without_the_servers_protocol_version_is_refused() {
    let place = Place::start().await;
    let (_, head) = ask(&place, PROTOCOL).await;
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    assert!(head.contains("\r\nfilch-protocol: 1\r\n"), "{head}");
    let numbers = ["2", "0", "one", ""].map(|number| format!("filch-protocol: {number}\r\n"));
    for header in numbers.into_iter().chain([String::new()]) {
        let (mut stream, head) = ask(&place, &header).await;
        assert!(head.starts_with("http/1.1 400 "), "{head}");
        stream.shutdown().await.unwrap();
        let mut body = String::new();
        stream.read_to_string(&mut body).await.unwrap();
        let problem: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(problem["code"], "wrong-protocol", "{problem}");
        assert!(problem["help"].as_str().unwrap().contains("same version of filch"), "{problem}");
    }
}
