//! `tilewright chat` and `run`, with a server, a checkpoint and a model of the Hugging Face cache.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::process::{Command, Output, Stdio};

use super::TestServer;
use super::script::Script;

/// Says `It is noon.` in the first answer of a conversation, and `noon.` later.
const NOON: Script = Script {
    template: "{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}\
        {% if messages | length > (2 if messages[0].role == 'system' else 1) %}It is {% else %}<|reply|>{% endif %}",
    pieces: &["It is ", "noon."],
    special: &[],
};

const INPUT: &str = "What time is it?\nAnd \\\nnow?\n/reset\n\"\"\"\nWhat time\nis it?\n\"\"\"\n/what\n/quit\nno more";
const EXPECTED: &str = "It is noon.\nnoon.\nIt is noon.\n";

fn chat(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    command.arg("chat").args(args);
    answer(command)
}

fn answer(mut command: Command) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    // A program that fails before it reads closes the pipe.
    let _ = child.stdin.take().expect("a pipe").write_all(INPUT.as_bytes());
    child.wait_with_output().expect("it ends")
}

fn talks(args: &[&str]) {
    talked(chat(args));
}

fn talked(output: Output) {
    let log = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(String::from_utf8(output.stdout).expect("UTF-8"), EXPECTED, "{log}");
    assert!(output.status.success() && log.contains("/what is not a command"), "{log}");
}

#[test]
fn a_conversation_with_a_checkpoint_or_a_server() {
    let folder = NOON.folder();
    let path = folder.path().to_str().expect("UTF-8");
    talks(&["--model", path, "--device", "cpu:1", "--temperature", "0"]);
    let server = TestServer::new(folder.path(), |_| ());
    let url = format!("http://{}/v1", server.address);
    talks(&["--url", &url]);
    talks(&["--url", &url, "--name", "tiny", "--system", "Be brief.", "--template-var", "a={\"b\": [1]}"]);
    let refused = chat(&["--url", &url, "--name", "other"]);
    let line = String::from_utf8(refused.stderr).expect("UTF-8");
    assert_eq!(refused.status.code(), Some(2));
    assert!(line.contains("status 404: the model \"other\" is not served here") && line.lines().count() == 1, "{line}");
    let nowhere = chat(&["--url", "http://127.0.0.1:1"]);
    assert!(String::from_utf8_lossy(&nowhere.stderr).contains("127.0.0.1:1 cannot be reached"));
}

#[test]
fn a_name_is_looked_for_in_the_hugging_face_cache() {
    let folder = NOON.folder();
    let cache = tempfile::tempdir().expect("a folder");
    let repository = cache.path().join("hub/models--org--noon");
    fs::create_dir_all(repository.join("refs")).expect("a folder");
    fs::create_dir_all(repository.join("snapshots")).expect("a folder");
    fs::write(repository.join("refs/main"), "0a1b").expect("writes");
    symlink(folder.path(), repository.join("snapshots/0a1b")).expect("links");
    let command = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
        command.args(args).args(["--device", "cpu:1", "--temperature", "0"]);
        command.env_remove("HF_HUB_CACHE").env("HF_HOME", cache.path());
        answer(command)
    };
    talked(command(&["run", "org/noon"]));
    talked(command(&["chat", "--model", "org/noon"]));
    let absent = command(&["run", "org/other"]);
    let line = String::from_utf8(absent.stderr).expect("UTF-8");
    assert_eq!((absent.status.code(), line.lines().count()), (Some(2), 1), "{line}");
    assert!(line.contains("`hf download org/other` downloads it") && line.contains("/hub;"), "{line}");
}
