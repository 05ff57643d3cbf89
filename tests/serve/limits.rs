//! Limits: what clients send, how long they take, and how many there are.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tilewright::engine::BatchOptions;
use tilewright::serve::ApiKeys;

use super::client::{connect, exchange, get, post, post_with, read_reply, written};
use super::{TestServer, server, tiny};

const PATH: &str = "/v1/completions";

/// A request that runs for about a second.
fn long() -> Value {
    json!({ "prompt": "In the beginning", "max_tokens": 900, "ignore_eos": true, "stream": true })
}

fn short() -> Value {
    json!({ "prompt": "In the beginning", "max_tokens": 4, "temperature": 0 })
}

/// Sends a request whose answer is a stream, and waits for its head.
fn begun(server: &TestServer, body: &Value) -> TcpStream {
    let mut stream = connect(server.address);
    stream.write_all(written(PATH, &body.to_string(), &[]).as_bytes()).expect("it is written");
    let mut begin = [0; 12];
    stream.read_exact(&mut begin).expect("a head");
    assert_eq!(&begin, b"HTTP/1.1 200");
    stream
}

/// A server with one seat and a queue of one.
fn narrow() -> TestServer {
    TestServer::new(&tiny(""), |options| {
        options.batch = BatchOptions { rows: 1, ..BatchOptions::for_context(1024) };
        options.limits.queue = 1;
    })
}

#[test]
fn a_full_queue_refuses_and_a_client_that_hangs_up_makes_room() {
    let server = narrow();
    let first = begun(&server, &long());
    let second = begun(&server, &long());
    let refused = post(server.address, PATH, &short());
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")), "{}", refused.text());
    assert_eq!(refused.error()["type"], "rate_limit_error");
    server.until(|load| (load.running, load.waiting) == (1, 1));
    drop((first, second));
    server.settle();
    assert!(server.monitor.load().statistics.tokens < 1800, "what was cancelled did not run to its end");
    assert_eq!(post(server.address, PATH, &short()).status, 200);
}

#[test]
fn a_client_that_hangs_up_before_an_answer_that_does_not_stream_cancels_it() {
    let server = narrow();
    let mut body = long();
    body["stream"] = false.into();
    let mut stream = connect(server.address);
    stream.write_all(written(PATH, &body.to_string(), &[]).as_bytes()).expect("it is written");
    server.until(|load| load.running == 1);
    drop(stream);
    server.settle();
    assert!(server.monitor.load().statistics.tokens < 900);
}

#[test]
fn requests_of_one_seat_are_answered_in_the_order_of_their_arrival() {
    let server = TestServer::new(&tiny(""), |options| options.batch.rows = 1);
    let mut body = short();
    body["max_tokens"] = 40.into();
    body["stream"] = true.into();
    let streams: Vec<TcpStream> = (0..4).map(|_| begun(&server, &body)).collect();
    let done = streams.into_iter().map(|mut stream| {
        thread::spawn(move || {
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).expect("an answer");
            Instant::now()
        })
    });
    let ends: Vec<Instant> = done.collect::<Vec<_>>().into_iter().map(|done| done.join().expect("an end")).collect();
    assert!(ends.is_sorted(), "{ends:?}");
}

#[test]
fn a_request_ends_at_its_deadline() {
    let server = TestServer::new(&tiny(""), |options| {
        options.batch = BatchOptions::for_context(1024);
        options.limits.request = Duration::from_millis(40);
    });
    let mut body = long();
    let events = post(server.address, PATH, &body).events();
    assert_eq!(events.last().expect("an event")["error"]["type"], "timeout_error");
    body["stream"] = false.into();
    assert_eq!(post(server.address, PATH, &body).status, 504);
    server.settle();
}

#[test]
fn a_client_that_reads_nothing_does_not_hold_up_others() {
    let server = TestServer::new(&tiny(""), |options| options.batch = BatchOptions::for_context(1024));
    let mut body = long();
    body["n"] = 4.into();
    let silent = begun(&server, &body);
    let expected = post(super::server().address, PATH, &short()).json()["choices"].clone();
    for _ in 0..5 {
        let begin = Instant::now();
        assert_eq!(post(server.address, PATH, &short()).json()["choices"], expected);
        assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    }
    drop(silent);
    server.settle();
}

#[test]
fn silent_and_half_requests_are_cut_and_others_are_served_meanwhile() {
    let server = TestServer::new(&tiny(""), |options| options.limits.read = Duration::from_millis(600));
    let half = written(PATH, &short().to_string(), &[]);
    let silent: Vec<TcpStream> = (0..60)
        .map(|at| {
            let mut stream = connect(server.address);
            stream.write_all(&half.as_bytes()[..at * 4 % half.len()]).expect("it is written");
            stream
        })
        .collect();
    assert_eq!(post(server.address, PATH, &short()).status, 200);
    for mut stream in silent {
        // The server says why, or closes the connection.
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        let text = String::from_utf8_lossy(&rest);
        assert!(rest.is_empty() || text.starts_with("HTTP/1.1 408"), "{text}");
    }
    server.settle();
}

#[test]
fn long_bodies_and_heads_are_refused() {
    let server = TestServer::new(&tiny(""), |options| options.limits.body = 1000);
    let head = |length: &str| format!("POST {PATH} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{length}\r\n\r\n");
    let huge = exchange(server.address, head("content-length: 100000000000").as_bytes());
    assert_eq!((huge.status, huge.error()["type"].clone()), (413, json!("invalid_request_error")));
    let chunk = format!("{:x}\r\n{}\r\n0\r\n\r\n", 2000, " ".repeat(2000));
    let chunked = exchange(server.address, (head("transfer-encoding: chunked") + &chunk).as_bytes());
    assert_eq!(chunked.status, 413);
    let headers: String = (0..100).map(|at| format!("x-{at}: 1\r\n")).collect();
    let many = exchange(server.address, format!("GET /health HTTP/1.1\r\nhost: a\r\n{headers}\r\n").as_bytes());
    assert_eq!(many.status, 431);
    assert_eq!(post(server.address, PATH, &short()).status, 200);
}

#[test]
fn bodies_that_are_no_json_are_refused() {
    let bodies =
        ["", "{", "[]", "null", "{\"prompt\": \"a\"} x", "{\"prompt\": \"a\", \"prompt\": \"b\"}", "\u{0}", "\u{e9}"];
    let deep = format!("{{\"logit_bias\": {}", "[".repeat(100_000));
    for body in bodies.into_iter().chain([deep.as_str()]) {
        let reply = exchange(server().address, written(PATH, body, &[]).as_bytes());
        assert_eq!(reply.status, 400, "{body:.20}: {}", reply.text());
        assert_eq!(reply.error()["type"], "invalid_request_error");
    }
}

#[test]
fn keys_are_needed_where_there_are_some() {
    let server = TestServer::new(&tiny(""), |options| options.keys = ApiKeys::of_text("first\nsecond\n"));
    for path in [PATH, "/v1/chat/completions", "/tokenize", "/detokenize", "/nowhere"] {
        let refused = post(server.address, path, &short());
        assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("Bearer")), "{path}");
        assert_eq!(refused.error()["code"], "invalid_api_key");
    }
    assert_eq!(get(server.address, "/v1/models").status, 401);
    assert_eq!((get(server.address, "/health").status, get(server.address, "/metrics").status), (200, 200));
    assert_eq!(post_with(server.address, PATH, &short(), &["authorization: Bearer third"]).status, 401);
    assert_eq!(post_with(server.address, PATH, &short(), &["authorization: Bearer second"]).status, 200);
}

#[test]
fn answers_have_the_name_of_their_request() {
    let reply = post_with(server().address, PATH, &short(), &["x-request-id: mine-1"]);
    assert_eq!(reply.header("x-request-id"), Some("mine-1"));
    for headers in [&[][..], &["x-request-id: a b"], &["x-request-id: \"quoted\""]] {
        let reply = post_with(server().address, PATH, &short(), headers);
        assert!(reply.header("x-request-id").is_some_and(|name| name.starts_with("req-")), "{reply:?}");
    }
}

#[test]
fn a_connection_serves_one_request_after_another() {
    let mut stream = connect(server().address);
    let kept = written("/tokenize", "{\"prompt\": \"a\"}", &[]).replace("connection: close\r\n", "");
    for _ in 0..3 {
        stream.write_all(kept.as_bytes()).expect("it is written");
        let mut begin = [0; 12];
        stream.read_exact(&mut begin).expect("an answer");
        assert_eq!(&begin, b"HTTP/1.1 200");
        let mut rest = Vec::new();
        while !rest.ends_with(b"}") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("an answer");
            rest.extend(byte);
        }
    }
    stream.write_all(written("/tokenize", "{\"prompt\": \"a\"}", &[]).as_bytes()).expect("it is written");
    assert_eq!(read_reply(&mut stream).status, 200);
}
