//! Many clients at a time, most of them badly behaved: afterwards nothing runs, waits or is held.
//!
//! `TILEWRIGHT_LONG=1` sends 10,000 requests.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tilewright::engine::BatchOptions;

use super::client::{connect, get, post, written};
use super::{TestServer, tiny};

const PATH: &str = "/v1/completions";
/// Clients at a time.
const CLIENTS: usize = 12;

/// What a client does.
#[derive(Clone, Copy, Debug)]
enum Conduct {
    /// Reads its whole answer, which must be right.
    Whole,
    /// Reads its whole stream.
    Stream,
    /// Reads some bytes of a stream, then hangs up.
    HangUp,
    /// Hangs up before the answer.
    Leave,
    /// Sends a part of a request.
    Half,
    /// Sends bytes that are no request.
    Garbage,
    /// Reads a stream with pauses.
    Slow,
    /// Sends a request that is refused.
    Wrong,
}

const CONDUCTS: [Conduct; 8] = [
    Conduct::Whole,
    Conduct::Stream,
    Conduct::HangUp,
    Conduct::Leave,
    Conduct::Half,
    Conduct::Garbage,
    Conduct::Slow,
    Conduct::Wrong,
];

struct Client<'s> {
    server: &'s TestServer,
    random: u64,
    answered: usize,
}

impl Client<'_> {
    /// The next random number below `end`: xorshift, the same for each client in every run.
    fn below(&mut self, end: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 20) as usize % end
    }

    fn act(&mut self, prompts: &[Value], answers: &[Value]) {
        let conduct = CONDUCTS[self.below(CONDUCTS.len())];
        let at = self.below(prompts.len());
        let mut body = prompts[at].clone();
        body["stream"] = (!matches!(conduct, Conduct::Whole | Conduct::Leave)).into();
        let bytes = written(PATH, &body.to_string(), &[]).into_bytes();
        let address = self.server.address;
        match conduct {
            Conduct::Whole => {
                let reply = post(address, PATH, &body);
                assert_eq!(reply.json()["choices"], answers[at], "{}", reply.text());
                self.answered += 1;
            }
            Conduct::Stream => {
                let events = post(address, PATH, &body).events();
                let text: String = events.iter().filter_map(|event| event["choices"][0]["text"].as_str()).collect();
                assert_eq!(json!(text), answers[at][0]["text"]);
                self.answered += 1;
            }
            Conduct::HangUp | Conduct::Slow => {
                let mut stream = connect(address);
                stream.write_all(&bytes).expect("it is written");
                for _ in 0..self.below(6) {
                    if matches!(conduct, Conduct::Slow) {
                        thread::sleep(Duration::from_millis(2));
                    }
                    // The stream may end before.
                    let _ = stream.read(&mut [0; 150]);
                }
            }
            Conduct::Leave => connect(address).write_all(&bytes).expect("it is written"),
            Conduct::Half => {
                let end = self.below(bytes.len());
                connect(address).write_all(&bytes[..end]).expect("it is written");
            }
            Conduct::Garbage => {
                let garbage: Vec<u8> = (0..self.below(300)).map(|_| self.below(256) as u8).collect();
                let mut stream = connect(address);
                // The server may close the connection while bytes are on their way.
                let _ = stream.write_all(&garbage);
            }
            Conduct::Wrong => {
                body["temperature"] = "hot".into();
                assert_eq!(post(address, PATH, &body).status, 400);
            }
        }
    }
}

#[test]
fn a_crowd_leaves_nothing_behind() {
    let is_long = std::env::var_os("TILEWRIGHT_LONG").is_some();
    let requests = if is_long { 10_000 } else { 300 };
    let server = TestServer::new(&tiny(""), |options| {
        // Fewer pages than the requests would hold: some are preempted.
        options.batch = BatchOptions { rows: 8, pages: Some(24), ..BatchOptions::for_context(128) };
        options.limits.queue = 10_000;
    });
    let prompt = |(at, text): (usize, &str)| json!({ "prompt": text, "max_tokens": 6 + 5 * at, "temperature": 0 });
    let texts = ["In the beginning", "And God said, Let there be", "And the LORD spake unto Moses,", "Blessed are"];
    let prompts: Vec<Value> = texts.into_iter().enumerate().map(prompt).collect();
    let answers: Vec<Value> =
        prompts.iter().map(|body| post(server.address, PATH, body).json()["choices"].clone()).collect();
    let next = AtomicUsize::new(0);
    let answered: usize = thread::scope(|scope| {
        let clients = (0..CLIENTS).map(|number| {
            let (server, next, prompts, answers) = (&server, &next, &prompts, &answers);
            scope.spawn(move || {
                let random = 0x9e37_79b9_7f4a_7c15 + number as u64;
                let mut client = Client { server, random, answered: 0 };
                while next.fetch_add(1, Ordering::Relaxed) < requests {
                    client.act(prompts, answers);
                }
                client.answered
            })
        });
        clients.collect::<Vec<_>>().into_iter().map(|client| client.join().expect("no client fails")).sum()
    });
    assert!(answered > requests / 8, "{answered}");
    server.settle();
    let open = || {
        let page = get(server.address, "/metrics");
        let line = page.text().lines().find(|line| line.starts_with("tilewright:connections_open{"));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<usize>().ok()).expect("a number")
    };
    // The one that asks is open; others may take a moment to close.
    let closes = (0..200).any(|_| {
        thread::sleep(Duration::from_millis(10));
        open() == 1
    });
    assert!(closes, "{} connections are open", open());
}
