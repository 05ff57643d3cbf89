//! Ranks that die, hang or are interrupted in the middle of a text.

use std::io::Read;
use std::thread;
use std::time::{Duration, Instant};

use crate::{Process, driver, model, workers};

const WORLD: usize = 4;

/// A world of four in the middle of a long text.
fn at_work(patience: &str) -> (Process, Vec<Process>) {
    let dir = model("tiny-llama");
    let long = ["--max-new-tokens", "1000", "--temperature", "1"];
    let args = ["generate", "--model", dir.to_str().expect("UTF-8"), "--prompt", "In the beginning"];
    let (mut driver, address) = driver(&[&args[..], &long].concat(), WORLD, patience);
    let workers = workers("tiny-llama", WORLD, &address, "30");
    let mut begun = [0; 12];
    driver.child.stdout.as_mut().expect("a pipe").read_exact(&mut begun).expect("text streams while it is generated");
    (driver, workers)
}

/// Each rank, one after the other: the driver and the other workers name it.
#[test]
fn a_worker_that_dies_is_named_by_all() {
    for lost in 1..WORLD {
        let (driver, mut workers) = at_work("30");
        let begun = Instant::now();
        let gone = workers.remove(lost - 1);
        gone.signal("-KILL");
        let ended = driver.ended();
        assert!(ended.error().starts_with(&format!("error: rank {lost} ")), "{ended:?}");
        for worker in workers {
            let ended = worker.ended();
            assert!(ended.error().starts_with(&format!("error: rank {lost} ")), "{ended:?}");
        }
        assert!(begun.elapsed() < Duration::from_secs(15), "long before the patience is over: {:?}", begun.elapsed());
        gone.ended();
    }
}

/// A process that is stopped says nothing; its connections stay.
#[test]
fn a_worker_that_hangs_is_an_error_within_the_patience() {
    for lost in [1, 2, 3] {
        let (driver, mut workers) = at_work("1");
        let hung = workers.remove(lost - 1);
        let begun = Instant::now();
        hung.signal("-STOP");
        let ended = driver.ended();
        let error = ended.error();
        assert!(error.starts_with(&format!("error: rank {lost} ")), "{error}");
        assert!(error.contains("has said nothing for 1 s"), "{error}");
        for worker in workers {
            let ended = worker.ended();
            assert!(ended.error().starts_with(&format!("error: rank {lost} ")), "{ended:?}");
        }
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
        hung.signal("-KILL");
        hung.ended();
    }
}

#[test]
fn workers_end_with_an_error_when_their_driver_dies_or_hangs() {
    for signal in ["-KILL", "-STOP"] {
        let (driver, workers) = at_work("1");
        driver.signal(signal);
        for worker in workers {
            let ended = worker.ended();
            assert!(ended.error().starts_with("error: rank 0 (the driver) is lost: it "), "{ended:?}");
        }
        driver.signal("-KILL");
        driver.ended();
    }
}

/// Ctrl-C at the driver ends the text in good order, and its workers.
#[test]
fn an_interrupt_of_the_driver_ends_the_world() {
    let (driver, workers) = at_work("30");
    driver.signal("-INT");
    let ended = driver.ended();
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(130), ""));
    assert!(ended.stdout.ends_with('\n'));
    for worker in workers {
        let ended = worker.ended();
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
}

/// Ctrl-C at a worker is an error elsewhere.
#[test]
fn an_interrupt_of_a_worker_is_told() {
    let (driver, mut workers) = at_work("30");
    let interrupted = workers.remove(1);
    interrupted.signal("-INT");
    assert_eq!(driver.ended().error(), "error: rank 2 failed: the work was aborted");
    for worker in workers {
        assert_eq!(worker.ended().error(), "error: rank 2 failed: the work was aborted");
    }
    let ended = interrupted.ended();
    assert_eq!(ended.code, Some(130), "{ended:?}");
}

/// Whatever the moment, joining among them: all others end with an error that names the rank.
/// `TILEWRIGHT_LONG` is 200 moments.
#[test]
fn a_rank_that_dies_at_any_moment_is_named_by_all() {
    let dir = model("tiny-llama");
    let args = ["generate", "--model", dir.to_str().expect("UTF-8"), "--prompt", "In the beginning"];
    let long = ["--max-new-tokens", "1000", "--temperature", "1"];
    let mut random = 0x9e37_79b9_u64;
    for _ in 0..if std::env::var_os("TILEWRIGHT_LONG").is_some() { 200 } else { 8 } {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let lost = (random >> 33) as usize % WORLD;
        let moment = (random >> 40) % 200;
        let (driver, address) = driver(&[&args[..], &long].concat(), WORLD, "2");
        let mut all = vec![driver];
        all.extend(workers("tiny-llama", WORLD, &address, "2"));
        thread::sleep(Duration::from_millis(moment));
        let gone = all.remove(lost);
        gone.signal("-KILL");
        let names = if lost == 0 { "driver".to_owned() } else { format!("rank {lost}") };
        for process in all {
            let ended = process.ended();
            // Who calls when the driver has ended already is told nothing.
            let is_late = !ended.stderr.contains("note: rank") && ended.error().contains("driver");
            assert!(ended.error().contains(&names) || is_late, "rank {lost} after {moment} ms: {ended:?}");
        }
        gone.ended();
    }
}
