//! Whatever the other side says: an answer, no panic, and no wait beyond the patience.

use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use tilewright::engine::pipeline::{Message, MessageHead, Rows, Shape, Tcp, Transport};
use tilewright::engine::{Device, Engine, EngineError, Meeting, Request, Seat};
use tilewright_kernels::naive::Sampling;
use tilewright_megakernel::lower::LowerOptions;
use tilewright_megakernel::program::Span;

use crate::model;

const PATIENCE: Duration = Duration::from_secs(5);

/// Messages of any kind; steps are often nearly right.
fn messages() -> impl Strategy<Value = Message> {
    let shape = (1usize..200, prop::sample::select(vec![0usize, 16, 64, 1 << 40]), prop::option::of(0usize..20));
    let begin = (0u64..3, shape).prop_map(|(session, (context, page_tokens, pages))| {
        let options = LowerOptions { page_tokens, pages, ..LowerOptions::for_context(context) };
        MessageHead::Begin { session, shape: Shape::of(&options) }
    });
    let step = (0u64..3, 0u64..3, prop_oneof![1usize..4, any::<usize>()], prop::collection::vec(0usize..4, 0..3));
    let step =
        step.prop_map(|(session, step, rows, asked)| MessageHead::Step { session, step, rows, asked, by: Rows::Tcp });
    let logits = (0u64..2, 0u64..3).prop_map(|(session, step)| MessageHead::Logits { session, step });
    let other = prop_oneof![
        prop::sample::select(vec![MessageHead::Ready, MessageHead::Alive, MessageHead::Alive]),
        (0usize..4, ".{0,10}").prop_map(|(rank, why)| MessageHead::Failed { rank, why }),
        (0u64..3).prop_map(|session| MessageHead::End { session }),
    ];
    let words = prop_oneof![
        prop::collection::vec(any::<u32>(), 0..10),
        // One row of tiny-qwen3 at position 0, on a page that there is: 1 + 1 + 128 words.
        Just([vec![0, 0], vec![1f32.to_bits(); 128]].concat()),
        Just(vec![0; 1024]),
    ];
    (prop_oneof![3 => begin, 3 => step, 2 => logits, 1 => other], words)
        .prop_map(|(head, words)| Message { head, words })
}

fn engine() -> Engine {
    Engine::load(&model("tiny-qwen3"), Device::Cpu { workers: 1 }).expect("the model loads")
}

/// The result of a worker, rank 1 of 2, for these messages of a driver.
fn serve(said: Vec<Message>) -> Result<(), EngineError> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let worker = thread::spawn(move || {
        let engine = engine();
        Seat::join(&address, 1, 2, &engine.identity(), PATIENCE)?.serve(&engine)
    });
    let link = Tcp::new(listener.accept().expect("the worker calls").0, PATIENCE).expect("a connection");
    assert!(matches!(link.receive().expect("a hello").head, MessageHead::Hello { rank: 1, world: 2, .. }));
    let welcome = MessageHead::Welcome {
        layers: Span::new(1, 3),
        next: None::<SocketAddr>,
        token: 7,
        patience: 5000,
        ways: vec![],
    };
    link.send(&welcome.into()).expect("the worker listens");
    assert_eq!(link.receive().expect("an answer").head, MessageHead::Ready);
    for message in said.into_iter().chain([MessageHead::Bye.into()]) {
        // The worker may have ended.
        if link.send(&message).is_err() {
            break;
        }
    }
    let drain = thread::spawn(move || while link.receive().is_ok() {});
    let result = worker.join().expect("no panic");
    drain.join().expect("no panic");
    result
}

/// The result of a driver if its only worker sends these messages after each step.
fn drive(said: Vec<Message>) -> Result<(), EngineError> {
    let engine = engine();
    let identity = engine.identity();
    let meeting = Meeting::at("127.0.0.1:0", 2, PATIENCE).expect("a port");
    let address = meeting.address();
    let worker = thread::spawn(move || {
        let link = Tcp::new(std::net::TcpStream::connect(address).expect("a driver"), PATIENCE).expect("a connection");
        let hello = MessageHead::Hello { rank: 1, world: 2, model: identity, port: 1 };
        link.send(&hello.into()).expect("the driver listens");
        link.send(&MessageHead::Ready.into()).expect("the driver listens");
        let mut said = said.into_iter();
        while let Ok(message) = link.receive() {
            let is_step = matches!(message.head, MessageHead::Step { .. });
            let is_said = is_step && said.next().is_none_or(|next| link.send(&next).is_err() || said.len() == 0);
            if is_said || message.head == MessageHead::Bye {
                return;
            }
        }
    });
    let engine = engine.with_world(meeting)?;
    let request = Request { prompt_ids: vec![1, 2, 3], max_new_tokens: 3 };
    let result = engine.generate(&[request], Sampling::GREEDY, |_, _| ()).map(drop);
    drop(engine);
    worker.join().expect("no panic");
    result
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_worker_answers_whatever_a_driver_says(said in prop::collection::vec(messages(), 0..6)) {
        if let Err(error) = serve(said) {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A worker that says nothing right is an error that names its rank.
    #[test]
    fn a_driver_answers_whatever_a_worker_says(said in prop::collection::vec(messages(), 0..4)) {
        let error = drive(said).expect_err("three prompt tokens want logits of 1024 numbers").to_string();
        prop_assert!(error.contains("rank ") , "{}", error);
    }
}

/// The strategy reaches what it is for: a session and a step that a worker computes.
#[test]
fn a_step_that_is_right_is_computed() {
    let options = LowerOptions { page_tokens: 16, pages: Some(1), ..LowerOptions::for_context(16) };
    let words = [vec![0, 0], vec![1f32.to_bits(); 128]].concat();
    let begin = MessageHead::Begin { session: 0, shape: Shape::of(&options) };
    let step = |rows| Message {
        head: MessageHead::Step { session: 0, step: 0, rows, asked: vec![0], by: Rows::Tcp },
        words: words.clone(),
    };
    assert!(serve(vec![begin.clone().into(), step(1)]).is_ok());
    let error = serve(vec![begin.into(), step(2)]).expect_err("words for one row").to_string();
    assert_eq!(error, "rank 0 (the driver) is lost: 130 words came where 260 make sense");
    // Rows that come from a device, where there is no way from it.
    let head = MessageHead::Step { session: 0, step: 0, rows: 1, asked: vec![0], by: Rows::Nccl };
    let error = serve(vec![Message { head, words: vec![0, 0] }]).expect_err("no way").to_string();
    assert!(error.starts_with("rank 0 (the driver) is lost: a message came out of turn: Step"), "{error}");
}
