//! A model in several processes on one host: the tokens are those of one process; a rank that dies,
//! hangs or does not fit is an error on all.
#![cfg(target_os = "linux")]

mod damage;
mod joining;
mod lost;
mod overlap;
mod tokens;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

fn model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models").join(name)
}

fn start(args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("starts")
}

/// The end of a process.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ended {
    /// The error that it ended with, which is its last line on standard error, with exit code 2.
    fn error(&self) -> &str {
        assert_eq!(self.code, Some(2), "{self:?}");
        let errors: Vec<&str> = self.stderr.lines().filter(|line| line.starts_with("error: ")).collect();
        match errors[..] {
            [error] if self.stderr.ends_with(&format!("{error}\n")) => error,
            _ => panic!("one line of error, the last: {self:?}"),
        }
    }
}

fn ended(mut child: Child, mut errors: BufReader<ChildStderr>) -> Ended {
    let mut stdout = String::new();
    let mut stderr = String::new();
    if let Some(mut out) = child.stdout.take() {
        out.read_to_string(&mut stdout).expect("UTF-8");
    }
    errors.read_to_string(&mut stderr).expect("UTF-8");
    Ended { code: child.wait().expect("ends").code(), stdout, stderr }
}

/// A process and its standard error.
struct Process {
    child: Child,
    errors: BufReader<ChildStderr>,
}

impl Process {
    fn start(args: &[&str]) -> Process {
        let mut child = start(args);
        let errors = BufReader::new(child.stderr.take().expect("a pipe"));
        Process { child, errors }
    }

    fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().expect("kill runs").success());
    }

    fn ended(self) -> Ended {
        ended(self.child, self.errors)
    }
}

/// A driver that waits for its workers, and its address.
fn driver(args: &[&str], world: usize, patience: &str) -> (Process, String) {
    driver_on("cpu:1", args, world, patience)
}

fn driver_on(device: &str, args: &[&str], world: usize, patience: &str) -> (Process, String) {
    let world = world.to_string();
    let more = ["--world", &world, "--join", "127.0.0.1:0", "--patience", patience, "--device", device];
    let mut driver = Process::start(&[args, &more].concat());
    let mut line = String::new();
    while !line.contains("worker(s) at ") {
        line.clear();
        let read = driver.errors.read_line(&mut line).expect("UTF-8");
        assert!(read > 0, "the driver ended: {:?}", driver.ended());
    }
    let address = line.trim().rsplit(' ').next().expect("an address").to_owned();
    (driver, address)
}

/// A worker of a model.
fn worker(name: &str, rank: usize, world: usize, address: &str, patience: &str) -> Process {
    worker_on("cpu:1", name, rank, world, address, patience)
}

fn worker_on(device: &str, name: &str, rank: usize, world: usize, address: &str, patience: &str) -> Process {
    let dir = model(name);
    let rank = rank.to_string();
    let world = world.to_string();
    let dir = dir.to_str().expect("UTF-8");
    let args = ["worker", "--model", dir, "--rank", &rank, "--world", &world, "--join", address];
    Process::start(&[&args[..], &["--patience", patience, "--device", device]].concat())
}

/// The workers of a world.
fn workers(name: &str, world: usize, address: &str, patience: &str) -> Vec<Process> {
    // In any order: the last comes first.
    let mut started: Vec<_> = (1..world).rev().map(|rank| worker(name, rank, world, address, patience)).collect();
    started.reverse();
    started
}
