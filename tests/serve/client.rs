//! A client of HTTP/1.1 that can also do what no client should.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// An answer.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    head: String,
    body: Vec<u8>,
}

impl Reply {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("UTF-8")
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(self.text()).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The events of a stream without the last, which says that it is complete.
    pub fn events(&self) -> Vec<Value> {
        assert_eq!(self.header("content-type"), Some("text/event-stream"));
        let events = self.text().strip_suffix("data: [DONE]\n\n").unwrap_or_else(|| panic!("{}", self.text()));
        let data = |event: &str| event.strip_prefix("data: ").unwrap_or_else(|| panic!("{event}")).to_owned();
        let events = events.split("\n\n").filter(|event| !event.is_empty()).map(data);
        events.map(|event| serde_json::from_str(&event).expect("JSON")).collect()
    }

    /// OpenAI's error object.
    pub fn error(&self) -> Value {
        let error = self.json()["error"].clone();
        for key in ["message", "type", "param", "code"] {
            assert!(error.get(key).is_some(), "{key} of {error}");
        }
        error
    }
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    stream
}

/// The bytes of a request with a JSON body.
pub fn written(path: &str, body: &str, headers: &[&str]) -> String {
    let more: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nhost: tiny\r\nconnection: close\r\ncontent-length: {length}\r\n{more}\r\n{body}")
}

pub fn post_with(address: SocketAddr, path: &str, body: &Value, headers: &[&str]) -> Reply {
    exchange(address, written(path, &body.to_string(), headers).as_bytes())
}

pub fn post(address: SocketAddr, path: &str, body: &Value) -> Reply {
    post_with(address, path, body, &[])
}

pub fn get(address: SocketAddr, path: &str) -> Reply {
    exchange(address, format!("GET {path} HTTP/1.1\r\nhost: tiny\r\nconnection: close\r\n\r\n").as_bytes())
}

/// Sends bytes and reads until the server closes the connection.
pub fn exchange(address: SocketAddr, bytes: &[u8]) -> Reply {
    let mut stream = connect(address);
    stream.write_all(bytes).expect("it is written");
    read_reply(&mut stream)
}

pub fn read_reply(stream: &mut TcpStream) -> Reply {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("an answer");
    let end = all.windows(4).position(|window| window == b"\r\n\r\n").expect("a head") + 4;
    let body = all.split_off(end);
    let head = String::from_utf8(all).expect("UTF-8");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let is_chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    Reply { status, head, body: if is_chunked { unchunked(&body) } else { body } }
}

fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|window| window == b"\r\n") {
        let size = std::str::from_utf8(&body[..end]).expect("a size");
        let size = usize::from_str_radix(size, 16).expect("a number");
        whole.extend_from_slice(&body[end + 2..][..size]);
        body = &body[end + 2 + size + 2..];
    }
    whole
}
