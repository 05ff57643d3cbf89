//! The command: where it listens, what it logs, and how it ends.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::json;

use super::client::{connect, get, post, read_reply, written};
use super::tiny;

struct Process {
    child: Child,
    address: SocketAddr,
    log: BufReader<ChildStderr>,
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    command.args(["serve", "--device", "cpu:1", "--listen", "127.0.0.1:0", "--model"]).arg(tiny("")).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Process {
    fn new(args: &[&str]) -> Process {
        let mut child = command(args).spawn().expect("it starts");
        let mut log = BufReader::new(child.stderr.take().expect("a pipe"));
        let address = loop {
            let mut line = String::new();
            assert_ne!(log.read_line(&mut line).expect("a line"), 0, "it says where it listens");
            if let Some((_, address)) = line.trim().split_once("listening at http://") {
                break address.parse().expect("an address");
            }
        };
        Process { child, address, log }
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().expect("kill runs").success());
    }

    /// Waits for its end; gives its exit code and the rest of its log.
    fn end(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).expect("UTF-8");
        (self.child.wait().expect("it ends").code(), rest)
    }
}

#[test]
fn sigterm_lets_a_running_stream_end_and_takes_no_other_request() {
    let process = Process::new(&[]);
    let body = json!({ "prompt": "In the beginning", "max_tokens": 300, "ignore_eos": true, "stream": true });
    let mut stream = connect(process.address);
    stream.write_all(written("/v1/completions", &body.to_string(), &[]).as_bytes()).expect("it is written");
    let mut begin = [0; 12];
    stream.peek(&mut begin).expect("a head");
    process.signal("TERM");
    let reply = read_reply(&mut stream);
    assert_eq!(reply.events().last().expect("chunks")["choices"][0]["finish_reason"], "length");
    let address = process.address;
    let (code, log) = process.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(std::net::TcpStream::connect(address).is_err(), "it listens no more");
}

#[test]
fn a_drain_that_takes_too_long_is_cut_and_ctrl_c_is_exit_code_130() {
    let process = Process::new(&["--drain", "0.1"]);
    let body = json!({ "prompt": "In the beginning", "max_tokens": 900, "n": 8, "ignore_eos": true, "stream": true });
    let mut stream = connect(process.address);
    stream.write_all(written("/v1/completions", &body.to_string(), &[]).as_bytes()).expect("it is written");
    stream.peek(&mut [0; 12]).expect("a head");
    process.signal("INT");
    let (code, log) = process.end();
    assert_eq!(code, Some(130), "{log}");
    assert!(log.contains("requests that still ran were ended"), "{log}");
}

#[test]
fn the_log_names_requests_and_has_no_text_of_prompts() {
    let process = Process::new(&["--name", "kjv"]);
    let secret = "Melchizedek";
    let body = json!({ "model": "kjv", "prompt": secret, "stop": secret, "max_tokens": 2, "user": "someone" });
    let reply = post(process.address, "/v1/completions", &body);
    let name = reply.header("x-request-id").expect("a name").to_owned();
    assert_eq!((reply.status, get(process.address, "/health").status), (200, 200));
    assert_eq!(post(process.address, "/v1/completions", &json!({ "prompt": [secret, 3] })).status, 400);
    thread::sleep(Duration::from_millis(20));
    process.signal("TERM");
    let (code, log) = process.end();
    assert_eq!(code, Some(0));
    assert!(log.contains(&name) && log.contains("someone") && log.contains("status=400"), "{log}");
    assert!(!log.contains(secret), "{log}");
}

#[test]
fn what_cannot_be_served_is_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let empty = folder.path().join("keys");
    fs::write(&empty, "# none\n").expect("a file");
    let empty = empty.to_str().expect("UTF-8");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("it listens");
    let taken = taken.local_addr().expect("an address").to_string();
    for (args, expected) in [
        (vec!["--api-key-file", empty], "has no API key"),
        (vec!["--api-key-file", "no/such/file"], "cannot be read"),
        (vec!["--listen", &taken], "cannot be listened at"),
    ] {
        let args: Vec<&str> = if args[0] == "--listen" { [&["--quiet"], &args[..]].concat() } else { args };
        let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
        let output = command
            .args(["serve", "--device", "cpu:1", "--model"])
            .arg(tiny(""))
            .args(&args)
            .output()
            .expect("it runs");
        let text = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(expected) && text.lines().count() == 1, "{text}");
    }
}
