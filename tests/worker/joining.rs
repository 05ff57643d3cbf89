//! A worker that does not fit is told so, and the driver names it.

use std::io::Write;
use std::net::TcpStream;

use crate::{Ended, Process, driver, model, worker, workers};

fn small(dir: &str) -> [&str; 7] {
    ["generate", "--model", dir, "--prompt", "In the beginning", "--max-new-tokens", "4"]
}

/// A driver of tiny-llama.
fn waiting(world: usize, patience: &str) -> (Process, String) {
    let dir = model("tiny-llama");
    driver(&small(dir.to_str().expect("UTF-8")), world, patience)
}

fn failure(args: &[&str]) -> String {
    let ended: Ended = Process::start(args).ended();
    assert!(ended.stdout.is_empty() && ended.stderr.lines().count() == 1, "{ended:?}");
    ended.error().to_owned()
}

#[test]
fn another_model_is_refused_on_both_sides() {
    let (driver, address) = waiting(2, "30");
    let stranger = worker("tiny-qwen3", 1, 2, &address, "30").ended();
    let error = stranger.error();
    assert!(
        error.starts_with("error: the driver refuses rank 1: its model is another one: config and tensors are "),
        "{error}"
    );
    let ended = driver.ended();
    assert!(ended.error().starts_with("error: rank 1 cannot take part: its model is another one"), "{ended:?}");
}

#[test]
fn another_kind_of_device_is_refused() {
    let (driver, address) = waiting(2, "30");
    let dir = model("tiny-llama");
    let args = ["worker", "--model", dir.to_str().expect("UTF-8"), "--rank", "1", "--world", "2", "--join", &address];
    let simulated = Process::start(&[&args[..], &["--device", "sim"]].concat()).ended();
    assert!(simulated.error().contains("refuses rank 1: its device is a gpu, the driver's a cpu"), "{simulated:?}");
    let ended = driver.ended();
    assert!(ended.error().contains("rank 1 cannot take part: its device is a gpu"), "{ended:?}");
}

/// Rows go from device to device between NVIDIA GPUs alone: told before anybody is called or waited
/// for.
#[test]
fn rows_from_device_to_device_are_refused_where_there_are_none() {
    let dir = model("tiny-llama");
    let dir = dir.to_str().expect("UTF-8");
    let expected = "error: rows go from device to device between NVIDIA GPUs, one a process; give --rows-by tcp, or a device such as cuda:0";
    for device in ["cpu:1", "sim:1", "sim:1x2"] {
        let more = ["--world", "2", "--join", "127.0.0.1:0", "--rows-by", "nccl", "--device", device];
        assert_eq!(failure(&[&small(dir)[..], &more].concat()), expected);
        let more = ["--rank", "1", "--world", "2", "--join", "127.0.0.1:1", "--rows-by", "nccl", "--device", device];
        assert_eq!(failure(&[&["worker", "--model", dir][..], &more].concat()), expected);
    }
    let usage =
        Process::start(&["worker", "--model", dir, "--rank", "1", "--world", "2", "--join", "h:1", "--rows-by", "ip"]);
    assert!(usage.ended().stderr.contains("`ip` is no way for rows; give tcp or nccl"));
}

/// Ranks with one model, as codes on one side and bf16 on the other, are refused.
#[test]
fn other_weights_are_refused_and_those_who_wait_are_told() {
    let (driver, address) = waiting(3, "30");
    let second = worker("tiny-llama", 2, 3, &address, "30");
    let dir = model("tiny-llama");
    let args = ["worker", "--model", dir.to_str().expect("UTF-8"), "--rank", "1", "--world", "3", "--join", &address];
    let quantised = Process::start(&[&args[..], &["--weights", "w4a16"]].concat()).ended();
    assert!(quantised.error().contains("the driver refuses rank 1: its "), "{quantised:?}");
    let ended = driver.ended();
    assert!(ended.error().starts_with("error: rank 1 cannot take part: its "), "{ended:?}");
    let told = second.ended();
    assert!(told.error().contains("rank 1 cannot take part"), "{told:?}");
}

#[test]
fn a_rank_that_is_there_already_and_another_world_are_refused() {
    let (first, address) = waiting(3, "30");
    let there = worker("tiny-llama", 1, 3, &address, "30");
    let again = worker("tiny-llama", 1, 3, &address, "30");
    let ends = [there.ended(), again.ended()];
    assert!(ends.iter().any(|ended| ended.error().ends_with("refuses rank 1: two workers have this rank")), "{ends:?}");
    assert!(first.ended().error().ends_with("rank 1 cannot take part: two workers have this rank"));
    let (second, address) = waiting(3, "30");
    let told = "it was told of a world of 2 processes, the driver of 3";
    assert!(worker("tiny-llama", 1, 2, &address, "30").ended().error().ends_with(told));
    assert!(second.ended().error().ends_with(told));
}

#[test]
fn who_does_not_come_is_named() {
    let (driver, address) = waiting(4, "0.5");
    let second = worker("tiny-llama", 2, 4, &address, "30");
    let missing = "rank 1, rank 3 did not join within 0.5 s; start one worker for each rank";
    assert_eq!(driver.ended().error(), format!("error: {missing}"));
    assert!(second.ended().error().ends_with(missing));
}

#[test]
fn a_worker_without_a_driver_says_where_it_looked() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = free.local_addr().expect("an address").to_string();
    drop(free);
    let error = worker("tiny-llama", 1, 2, &address, "0.2").ended().error().to_owned();
    assert!(
        error.starts_with(&format!("error: the driver did not answer at {address} for 0.2 s; start rank 0")),
        "{error}"
    );
}

/// Callers that are not workers are ignored; a worker of another version, or a damaged word, is
/// not.
#[test]
fn strangers_do_not_disturb_and_other_versions_do() {
    let (driver, address) = waiting(2, "30");
    let mut browser = TcpStream::connect(&address).expect("the driver listens");
    browser.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("bytes are taken");
    drop(TcpStream::connect(&address).expect("the driver listens"));
    let workers = workers("tiny-llama", 2, &address, "30");
    let ended = driver.ended();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(workers.into_iter().map(|worker| worker.ended().code).collect::<Vec<_>>(), [Some(0)]);
    for (header, expected) in [
        (*b"TWpl\x01\0\0\0", "it speaks version 1 of the protocol, this build speaks 2"),
        (*b"TWpl\x02\0\0\0", "a message was damaged on its way"),
    ] {
        let (driver, address) = waiting(2, "30");
        let mut other = TcpStream::connect(&address).expect("the driver listens");
        other.write_all(&[&header[..], &[0; 16]].concat()).expect("bytes are taken");
        let ended = driver.ended();
        assert!(ended.error().contains(" cannot take part: ") && ended.error().contains(expected), "{ended:?}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_before_anybody_joins() {
    let dir = model("tiny-llama");
    let dir = dir.to_str().expect("UTF-8");
    let driver = |more: &[&str]| failure(&[&small(dir)[..], more].concat());
    let worker = |more: &[&str]| failure(&[&["worker", "--model", dir][..], more].concat());
    assert!(driver(&["--world", "2"]).contains("--join"));
    assert!(driver(&["--world", "1", "--join", "127.0.0.1:0"]).contains("a world of 1 processes"));
    assert!(driver(&["--world", "2", "--join", "nowhere"]).contains("`nowhere` is no address"));
    assert!(
        driver(&["--world", "2", "--join", "127.0.0.1:0", "--patience", "-1"])
            .contains("must be a number of seconds, 0 or more")
    );
    assert!(worker(&["--rank", "0", "--world", "2", "--join", "127.0.0.1:1"]).contains("rank 0 is no worker's"));
    assert!(worker(&["--rank", "2", "--world", "2", "--join", "127.0.0.1:1"]).contains("rank 2 is no worker's"));
}

/// Errors that are found once the driver listens.
#[test]
fn a_world_that_cannot_share_the_model_is_refused() {
    let dir = model("tiny-llama");
    let dir = dir.to_str().expect("UTF-8");
    let refused = |world, more: &[&str]| {
        let (driver, _) = driver(&[&small(dir)[..], more].concat(), world, "30");
        driver.ended().error().to_owned()
    };
    assert!(refused(5, &[]).contains("5 processes cannot share a model of 4 layers"));
    assert!(refused(2, &["--flow", "quest"]).contains("a flow chooses blocks for layers of one process"));
}
