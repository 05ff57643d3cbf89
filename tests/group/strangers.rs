//! Callers of rank 0's port that do not belong to the group, and ranks that do not fit.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use crate::{Launch, engine};

/// Connects, once rank 0 listens.
fn connect(port: u16) -> TcpStream {
    let begun = Instant::now();
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return stream,
            Err(error) if begun.elapsed() > Duration::from_secs(30) => panic!("rank 0 does not listen: {error}"),
            Err(_) => thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// Two ranks join while strangers call; the second joins half a second after them. The time counts
/// from when rank 0 listens.
fn joins_beside(stranger: impl Fn(u16, &AtomicBool) + Sync) {
    let launch = Launch::new(2);
    let (first, second) = (engine("tiny-llama"), engine("tiny-llama"));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let driver = scope.spawn(|| launch.driver(first));
        drop(connect(launch.port));
        let begun = Instant::now();
        scope.spawn(|| stranger(launch.port, &is_over));
        thread::sleep(Duration::from_millis(500));
        let stage = launch.stage(1, second).expect("rank 1 joins");
        let driver = driver.join().expect("no panic").expect("rank 0 has all ranks");
        is_over.store(true, Ordering::Relaxed);
        // Far below the timeout of 60 s.
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        let stage = scope.spawn(move || stage.run());
        drop(driver);
        stage.join().expect("no panic").expect("the stage ends with rank 0");
    });
}

#[test]
fn a_byte_a_second_holds_up_no_rank() {
    joins_beside(|port, is_over| {
        let mut stream = connect(port);
        for byte in b"twgroup2".iter().cycle() {
            if is_over.load(Ordering::Relaxed) || stream.write_all(&[*byte]).is_err() {
                return;
            }
            thread::sleep(Duration::from_secs(1));
        }
    });
}

#[test]
fn a_hundred_silent_connections_hold_up_no_rank() {
    joins_beside(|port, is_over| {
        let silent: Vec<_> = (0..100).map(|_| connect(port)).collect();
        while !is_over.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(silent.len(), 100);
    });
}

/// 256 MiB of any bytes: rank 0 reads the first 116.
#[test]
fn garbage_holds_up_no_rank() {
    joins_beside(|port, is_over| {
        let garbage = vec![0x5a; 1 << 20];
        let mut stream = connect(port);
        for _ in 0..256 {
            if stream.write_all(&garbage).is_err() {
                // Rank 0 has closed the connection; the rest goes to further ones.
                stream = match TcpStream::connect(("127.0.0.1", port)) {
                    Ok(stream) => stream,
                    Err(_) if is_over.load(Ordering::Relaxed) => return,
                    Err(_) => continue,
                };
            }
        }
        let _ = stream.shutdown(Shutdown::Both);
    });
}

/// A process with another secret is told so, and the rank whose number it has joins.
#[test]
fn another_secret_is_refused_and_changes_nothing() {
    let launch = Launch::new(2);
    let (first, second) = (engine("tiny-llama"), engine("tiny-llama"));
    thread::scope(|scope| {
        let driver = scope.spawn(|| launch.driver(first));
        for secret in ["a secret of no rank!!", "a secret of all rankt", "a secret of all ranks and more"] {
            let other = Launch { secret: secret.to_owned(), ..launch.clone() };
            let error = stage_error(&other, 1);
            assert_eq!(error, "rank 0 refuses rank 1: its secret is another one");
        }
        let stage = launch.stage(1, second).expect("rank 1 joins");
        let driver = driver.join().expect("no panic").expect("rank 0 has all ranks");
        let stage = scope.spawn(move || stage.run());
        drop(driver);
        stage.join().expect("no panic").expect("the stage ends with rank 0");
    });
}

fn stage_error(launch: &Launch, rank: usize) -> String {
    stage_error_of(launch, rank, "tiny-llama")
}

fn stage_error_of(launch: &Launch, rank: usize, name: &str) -> String {
    launch.stage(rank, engine(name)).err().map(|error| error.to_string()).expect("the rank is refused")
}

/// The errors of rank 0 and of a rank that it refuses.
fn refused(size: usize, refused: impl FnOnce(&Launch) -> String) -> [String; 2] {
    let launch = Launch::new(size);
    thread::scope(|scope| {
        let driver = scope.spawn(|| launch.driver(engine("tiny-llama")));
        let refused = refused(&launch);
        let error = driver.join().expect("no panic").err().expect("rank 0 fails");
        [error.to_string(), refused]
    })
}

#[test]
fn a_rank_that_does_not_fit_is_named_on_both_sides() {
    let [driver, rank] = refused(2, |launch| stage_error_of(launch, 1, "tiny-qwen3"));
    assert!(driver.starts_with("rank 1 cannot join: its model is another one"), "{driver}");
    assert!(rank.starts_with("rank 0 refuses rank 1: its model is another one"), "{rank}");
    let [driver, rank] = refused(3, |launch| stage_error(&Launch { size: 2, ..launch.clone() }, 1));
    assert_eq!(driver, "rank 1 cannot join: it was started in a group of 2 processes, rank 0 in one of 3");
    assert!(rank.ends_with("it was started in a group of 2 processes, rank 0 in one of 3"), "{rank}");
    let [driver, rank] = refused(3, |launch| {
        let first = launch.stage(1, engine("tiny-llama")).expect("rank 1 joins");
        let again = stage_error(launch, 1);
        let told = first.run().expect_err("rank 0 has failed").to_string();
        assert!(told.starts_with("rank 0 failed: rank 1 cannot join: two processes have this rank"), "{told}");
        again
    });
    assert_eq!(driver, "rank 1 cannot join: two processes have this rank");
    assert_eq!(rank, "rank 0 refuses rank 1: two processes have this rank");
}

#[test]
fn an_absent_rank_is_named() {
    let launch = Launch::new(4).timeout("1");
    thread::scope(|scope| {
        let driver = scope.spawn(|| launch.driver(engine("tiny-llama")));
        let stage = launch.stage(2, engine("tiny-llama")).expect("rank 2 joins");
        let told = stage.run().expect_err("rank 0 has failed").to_string();
        let error = driver.join().expect("no panic").err().expect("two ranks are absent").to_string();
        let expected = "rank 1, rank 3 did not join within 1 s; start every rank, or raise TILEWRIGHT_GROUP_TIMEOUT";
        assert_eq!(error, expected);
        assert_eq!(told, format!("rank 0 failed: {expected}"));
    });
}

#[test]
fn a_rank_without_rank_0_names_the_address() {
    let launch = Launch::new(2).timeout("0.3");
    let error = stage_error(&launch, 1);
    let port = launch.port;
    let expected =
        format!("rank 0 did not answer at 127.0.0.1:{port} for 0.3 s; check MASTER_ADDR, and that rank 0 runs");
    assert_eq!(error, expected);
}

#[test]
fn more_ranks_than_layers_are_refused_before_any_joins() {
    let error = Launch::new(5).driver(engine("tiny-llama")).err().expect("four layers").to_string();
    assert_eq!(error, "5 processes cannot share a model of 4 layers; a stage has at least one, start fewer");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// Any bytes of a caller, also after the right magic, change nothing.
    #[test]
    fn any_first_message_changes_nothing(bytes in prop::collection::vec(any::<u8>(), 0..200), is_magic: bool) {
        joins_beside(|port, _| {
            let mut stream = connect(port);
            let magic: &[u8] = if is_magic { b"twgroup2" } else { b"" };
            let _ = stream.write_all(&[magic, &bytes].concat());
        });
    }
}
