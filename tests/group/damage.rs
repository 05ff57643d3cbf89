//! Whatever another rank with the secret sends: an answer, no panic, and no wait beyond the
//! timeout.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use tilewright::engine::pipeline::{LINK_ID_BYTES, Network};
use tilewright::engine::{Engine, EngineError, Request};
use tilewright_kernels::naive::Sampling;

use crate::{Launch, SECRET, engine, simulated};

const RECORD: usize = 256;
const REPLY: usize = 400;
const HELLO: usize = 116;

/// A record of a kind with these numbers and text.
fn record(kind: u8, numbers: [u64; 6], text: &[u8]) -> Vec<u8> {
    let mut record = vec![kind, 0, 0, 0, text.len() as u8, 0, 0, 0];
    record.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    record.extend(text);
    record.resize(RECORD, 0);
    record
}

fn begin(session: u64, context: u64, page_tokens: u64, pages: u64) -> Vec<u8> {
    record(1, [session, context, page_tokens, pages, u64::MAX, 0], b"f32")
}

fn step(session: u64, rows: u64, asked: u64) -> Vec<u8> {
    record(2, [session, rows, asked, 0, 0, 0], b"")
}

fn bye() -> Vec<u8> {
    record(5, [0; 6], b"")
}

/// The result of rank 1 of 2, to which a rank 0 of this test sends records. It holds the connection
/// for `hold` after them.
fn served(records: &[Vec<u8>], hold: Duration) -> Result<(), EngineError> {
    served_by(&Launch::new(2).timeout("4"), || engine("tiny-qwen3"), records, hold)
}

/// The same of a rank that has a shard of every layer.
fn shard_served(records: &[Vec<u8>], hold: Duration) -> Result<(), EngineError> {
    served_by(&Launch::new(2).timeout("4").sharded(), || simulated("tiny-llama", 1), records, hold)
}

fn served_by(
    launch: &Launch,
    engine: impl Fn() -> Engine + Sync,
    records: &[Vec<u8>],
    hold: Duration,
) -> Result<(), EngineError> {
    let listener = TcpListener::bind(("127.0.0.1", launch.port)).expect("the port is free");
    let ids = [launch.network.id().expect("an id"), launch.network.id().expect("an id")];
    thread::scope(|scope| {
        let stage = scope.spawn(|| launch.stage(1, engine())?.run());
        let (mut stream, _) = listener.accept().expect("rank 1 calls");
        let mut hello = [0; HELLO];
        stream.read_exact(&mut hello).expect("a hello");
        let tensor_parallel = launch.tensor_parallel as u8;
        assert!(hello.starts_with(b"twgroup2\x01\0\0\0\x02\0\0\0"), "{hello:?}");
        assert_eq!(hello[16..20], [tensor_parallel, 0, 0, 0]);
        let mut reply = b"twgroup2\0\0\0\0\0\0\0\0".to_vec();
        reply.extend(ids.as_flattened());
        reply.extend([0; LINK_ID_BYTES]);
        assert_eq!(reply.len(), REPLY);
        stream.write_all(&reply).expect("rank 1 reads");
        for record in records {
            // Rank 1 may have ended.
            if stream.write_all(record).is_err() {
                break;
            }
        }
        thread::sleep(hold);
        drop(stream);
        stage.join().expect("no panic")
    })
}

/// The error of rank 0 if rank 1 joins and then sends these bytes.
fn driven(bytes: &[u8]) -> String {
    let launch = Launch::new(2).timeout("4");
    let driver = engine("tiny-qwen3");
    let mut hello = b"twgroup2\x01\0\0\0\x02\0\0\0\x01\0\0\0".to_vec();
    hello.extend(SECRET.as_bytes());
    hello.resize(HELLO - 32, 0);
    hello.extend(bytemuck::bytes_of(&driver.identity()));
    thread::scope(|scope| {
        let rank = scope.spawn(|| {
            let mut stream = loop {
                match TcpStream::connect(("127.0.0.1", launch.port)) {
                    Ok(stream) => break stream,
                    Err(_) => thread::sleep(Duration::from_millis(2)),
                }
            };
            stream.write_all(&hello).expect("rank 0 reads");
            let mut reply = [0; REPLY];
            stream.read_exact(&mut reply).expect("a reply");
            // Rank 0 may have ended.
            let _ = stream.write_all(bytes);
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let request = Request { prompt_ids: vec![1, 2, 3], max_new_tokens: 3 };
        let result = launch.driver(driver).and_then(|driver| {
            let result = driver.generate(&[request], Sampling::GREEDY, |_, _| ());
            result.map(drop)
        });
        let error = result.expect_err("rank 1 computes nothing").to_string();
        rank.join().expect("no panic");
        error
    })
}

#[test]
fn a_lost_rank_0_is_named() {
    let closed = served(&[], Duration::ZERO).expect_err("rank 0 is gone").to_string();
    assert_eq!(closed, "rank 0 is lost: it closed the connection");
    let hung = served(&[], Duration::from_secs(4)).expect_err("rank 0 hangs").to_string();
    assert_eq!(hung, "rank 0 is lost: it sent nothing for 2 s");
    assert!(served(&[bye()], Duration::from_secs(1)).is_ok(), "a farewell is no loss");
}

#[test]
fn steps_that_make_no_sense_are_named() {
    let error = |records: &[Vec<u8>]| served(records, Duration::from_secs(1)).expect_err("no sense").to_string();
    assert!(error(&[step(0, 1, 1)]).contains("a step of session 0, which has not begun"));
    let begun = begin(0, 16, 16, 1);
    assert_eq!(
        error(&[begun.clone(), step(0, 0, 0)]),
        "rank 0 is lost: it sent a step of 0 rows; a step has 1 to 4096"
    );
    assert!(error(&[begun.clone(), step(0, 1 << 40, 0)]).contains("it sent a step of 1099511627776 rows"));
    assert!(error(&[begun, step(0, 2, 3)]).contains("logits of row 3"));
    assert!(error(&[record(9, [0; 6], b"")]).contains("an unknown message (9)"));
    assert!(error(&[record(1, [0, 16, 16, 1, 0, 0], b"f8")]).contains("it sent `f8` as the type of keys and values"));
    assert_eq!(error(&[record(4, [3, 0, 0, 0, 0, 0], b"a reason\n")]), "rank 3 failed: a reason ");
}

/// A shard refuses what a stage refuses, before it computes or waits for a sum.
#[test]
fn steps_of_shards_that_make_no_sense_are_named() {
    let error = |records: &[Vec<u8>]| shard_served(records, Duration::from_secs(1)).expect_err("no sense").to_string();
    assert!(error(&[step(0, 1, 1)]).contains("a step of session 0, which has not begun"));
    let begun = record(1, [0, 64, 64, 1, 1, 0], b"bf16");
    assert!(error(&[begun.clone(), step(0, 0, 0)]).contains("it sent a step of 0 rows"));
    assert!(error(&[begun.clone(), step(0, 2, 3)]).contains("logits of row 3"));
    assert!(error(&[record(1, [0, 64, 64, 1, 1, 0], b"f8")]).contains("it sent `f8` as the type of keys and values"));
    assert!(error(&[record(1, [0, 1 << 40, 64, 1, 1, 0], b"bf16")]).len() > 10, "more positions than the model has");
    assert_eq!(error(&[begun, record(4, [3, 0, 0, 0, 0, 0], b"a reason")]), "rank 3 failed: a reason");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Rank 1 ends with the farewell, or with an error that says why.
    #[test]
    fn a_stage_answers_whatever_rank_0_sends(
        kinds in prop::collection::vec((0u8..8, any::<[u64; 6]>(), 0u64..3, 0u64..40), 0..5),
    ) {
        let records = kinds.into_iter().map(|(kind, numbers, session, size)| match kind {
            6 => begin(session, size, 16, size),
            7 => step(session, numbers[1], numbers[2]),
            kind => record(kind, numbers, b"bf16"),
        });
        let records: Vec<_> = records.chain([bye()]).collect();
        if let Err(error) = served(&records, Duration::from_millis(300)) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    /// A rank that sends nothing valid, or nothing at all, is an error that names it.
    #[test]
    fn rank_0_answers_whatever_a_rank_sends(bytes in prop::collection::vec(any::<u8>(), 0..600), kind in 0u8..8) {
        let bytes = if bytes.len() > 300 { [record(kind, [1, 0, 0, 0, 0, 0], b"why"), bytes].concat() } else { bytes };
        let error = driven(&bytes);
        prop_assert!(error.contains("rank 1 "), "{}", error);
    }
}
