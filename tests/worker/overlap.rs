//! Chunks of a prompt are on their way together: the driver does not wait for one to come back
//! before it sends the next.

use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use tilewright::engine::pipeline::{Message, MessageHead, Tcp, Transport};
use tilewright::engine::{Device, Engine, Meeting, Request};
use tilewright_kernels::naive::Sampling;

use crate::model;

const PATIENCE: Duration = Duration::from_secs(10);
const VOCAB: usize = 1024;

/// Logits of a row that chooses a token.
fn choosing(token: usize) -> Vec<u32> {
    let mut words = vec![0; VOCAB];
    words[token] = 1f32.to_bits();
    words
}

/// The next step that comes: its number, and whether logits are wanted.
fn next_step(link: &Tcp) -> (u64, bool) {
    loop {
        if let MessageHead::Step { step, asked, .. } = link.receive().expect("a driver at work").head {
            return (step, !asked.is_empty());
        }
    }
}

/// A prompt of 130 tokens is four chunks of 32 rows and one of 2. The worker answers none before it
/// has four of them, and never holds more than the driver lets be on their way.
#[test]
fn a_prompts_chunks_are_sent_before_the_first_comes_back() {
    let engine = Engine::load(&model("tiny-qwen3"), Device::Cpu { workers: 1 }).expect("the model loads");
    let meeting = Meeting::at("127.0.0.1:0", 2, PATIENCE).expect("a port");
    let address = meeting.address();
    let identity = engine.identity();
    let worker = thread::spawn(move || {
        let link = Tcp::new(TcpStream::connect(address).expect("a driver"), PATIENCE).expect("a connection");
        let say = |head: MessageHead, words| link.send(&Message { head, words }).expect("the driver listens");
        say(MessageHead::Hello { rank: 1, world: 2, model: identity, port: 1 }, vec![]);
        say(MessageHead::Ready, vec![]);
        let held: Vec<(u64, bool)> = (0..4).map(|_| next_step(&link)).collect();
        assert_eq!(held, [(0, false), (1, false), (2, false), (3, false)]);
        held.into_iter().for_each(|(step, _)| say(MessageHead::Logits { session: 0, step }, vec![]));
        // The prompt's last step, and one token after it.
        for (expected, token) in [(4, 7), (5, 9)] {
            assert_eq!(next_step(&link), (expected, true));
            say(MessageHead::Logits { session: 0, step: expected }, choosing(token));
        }
        while link.receive().is_ok_and(|message| message.head != MessageHead::Bye) {}
    });
    let engine = engine.with_world(meeting).expect("the worker joins");
    let request = Request { prompt_ids: (0..130).collect(), max_new_tokens: 2 };
    let (completions, _) = engine.generate(&[request], Sampling::GREEDY, |_, _| ()).expect("an answer");
    assert_eq!(completions[0].token_ids, [7, 9]);
    drop(engine);
    worker.join().expect("no panic");
}
