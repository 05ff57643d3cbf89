//! The command line on a console: files that are there already, standard input, chats, stop texts,
//! completions, colours.
#![cfg(target_os = "linux")]

mod batch;
mod generate;
mod huge;
mod inputs;
mod output;
mod plan;
mod shell;
mod tune;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A file of a shipped model.
fn tiny(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models/tiny-llama").join(file)
}

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo runs").success());
}

/// Whether a process has a handler of SIGINT, which is signal 2.
fn catches_interrupts(id: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{id}/status")).expect("the process is there");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("the signals that it catches");
    u64::from_str_radix(caught.trim(), 16).expect("a number") & 2 != 0
}

/// Runs the program with a text on its standard input. GPUs are hidden, so that the default device
/// is the CPU.
fn run(args: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    command
        .args(args)
        .env("CUDA_VISIBLE_DEVICES", "")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    // A program that fails before it reads closes the pipe.
    let _ = child.stdin.take().expect("a pipe").write_all(input);
    child.wait_with_output().expect("ends")
}

/// Standard output of a run that succeeds and says nothing else.
fn stdout(args: &[&str], input: &[u8]) -> String {
    let output = run(args, input);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{args:?}");
    assert!(output.status.success(), "{args:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The one line of a failure with exit code 2.
fn failure(args: &[&str], input: &[u8]) -> String {
    let output = run(args, input);
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
    assert!(output.stdout.is_empty() && text.lines().count() == 1, "{args:?}: {text}");
    text
}
