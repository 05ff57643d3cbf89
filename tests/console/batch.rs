//! `generate` with many prompts, and with what only a batch has.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::{catches_interrupts, failure, stdout, tiny};

fn args<'a>(model: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["generate", "--model", model], more].concat()
}

fn model() -> String {
    tiny("").to_str().expect("UTF-8").to_owned()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// Twenty prompts, of which sixteen run at a time: a line each, with the tokens that each gets
/// alone.
#[test]
fn each_line_of_a_file_is_a_prompt_and_each_ending_a_line() {
    let model = model();
    let prompts: Vec<String> = (0..20).map(|at| format!("And {at} said unto")).collect();
    let input = format!("{}\n\n{}\n", prompts[..7].join("\n"), prompts[7..].join("\r\n"));
    let more = ["--prompt-file", "-", "--each-line", "--max-new-tokens", "5"];
    let found = lines(&stdout(&args(&model, &more), input.as_bytes()));
    let by_prompt: BTreeMap<u64, &Value> = found.iter().map(|l| (l["prompt"].as_u64().expect("a number"), l)).collect();
    assert_eq!((found.len(), by_prompt.len()), (20, 20));
    for at in [0, 6, 7, 19] {
        let line = by_prompt[&at];
        let more = ["--prompt", &prompts[at as usize], "--max-new-tokens", "5", "--json"];
        let alone = &lines(&stdout(&args(&model, &more), b""))[0];
        for key in ["prompt_ids", "token_ids", "text"] {
            assert_eq!(line[key], alone[key], "prompt {at}");
        }
        assert_eq!((&line["finish_reason"], &line["interrupted"]), (&json!("length"), &json!(false)));
    }
}

#[test]
fn repeated_prompts_draw_each_by_its_own_row_and_stop_texts_end_each() {
    let model = model();
    let more = ["--prompt", "And", "--prompt", "And", "--temperature", "1", "--seed", "3", "--max-new-tokens", "12"];
    let text = stdout(&args(&model, &more), b"");
    let found = lines(&text);
    assert_eq!(found.len(), 2);
    assert_ne!(found[0]["token_ids"], found[1]["token_ids"]);
    // The first draws as it does alone.
    let alone = lines(&stdout(&args(&model, &[&more[..2], &more[4..], &["--json"]].concat()), b""));
    let first = found.iter().find(|line| line["prompt"] == json!(0)).expect("a line");
    assert_eq!(first["token_ids"], alone[0]["token_ids"]);
    let stop: String = first["text"].as_str().expect("text").chars().skip(4).take(2).collect();
    let found = lines(&stdout(&args(&model, &[&more[..], &["--stop", &stop]].concat()), b""));
    let stopped = found.iter().find(|line| line["prompt"] == json!(0)).expect("a line");
    assert_eq!(stopped["finish_reason"], json!("stop"));
    assert_eq!(stopped["stop"], json!({"kind": "stop_text", "text": stop}));
    assert!(first["text"].as_str().expect("text").starts_with(stopped["text"].as_str().expect("text")));
}

#[test]
fn a_text_is_the_same_with_proposals_and_at_one_width() {
    let model = model();
    let more = ["--prompt", "And God said, Let there be light: and God said, Let", "--max-new-tokens", "32"];
    let plain = stdout(&args(&model, &more), b"");
    assert_eq!(stdout(&args(&model, &[&more[..], &["--speculate"]].concat()), b""), plain);
    assert_eq!(stdout(&args(&model, &[&more[..], &["--deterministic"]].concat()), b""), plain);
    let object = &lines(&stdout(&args(&model, &[&more[..], &["--speculate", "--json"]].concat()), b""))[0];
    let of = |key: &str| object["speculation"][key].as_u64().expect("a number");
    assert!(of("accepted") <= of("proposed") && of("steps") > 0, "{object}");
    assert_eq!(format!("{}\n", object["text"].as_str().expect("text")), plain);
}

#[test]
fn log_probabilities_and_penalties_are_on_the_command_line() {
    let model = model();
    let more = ["--prompt", "In the beginning", "--max-new-tokens", "6", "--logprobs", "2", "--json"];
    let object = &lines(&stdout(&args(&model, &more), b""))[0];
    let logprobs = object["logprobs"].as_array().expect("a list");
    assert_eq!(logprobs.len(), 6);
    for (found, token) in logprobs.iter().zip(object["token_ids"].as_array().expect("ids")) {
        for key in ["id", "token", "bytes", "logprob"] {
            assert_eq!(found["top"][0][key], found[key], "greedy decoding takes the likeliest");
        }
        assert_eq!((&found["id"], found["top"].as_array().map(Vec::len)), (token, Some(2)));
        assert!(found["logprob"].as_f64().expect("a number") <= 0.0);
    }
    let bytes = |found: &Value| serde_json::from_value::<Vec<u8>>(found["bytes"].clone()).expect("bytes");
    let text = String::from_utf8(logprobs.iter().flat_map(bytes).collect()).expect("UTF-8");
    assert_eq!(object["text"], json!(text), "the bytes of the tokens are the text");
    let more = ["--prompt", "In the beginning", "--max-new-tokens", "24"];
    let plain = stdout(&args(&model, &more), b"");
    assert_ne!(stdout(&args(&model, &[&more[..], &["--repetition-penalty", "5"]].concat()), b""), plain);
    let refused = |more: &[&str]| failure(&args(&model, &[&["--prompt", "a"], more].concat()), b"");
    assert!(
        refused(&["--repetition-penalty", "0"]).contains("the repetition penalty is 0; it must be a finite number")
    );
    assert!(refused(&["--presence-penalty", "NaN"]).contains("presence penalty is NaN"));
    assert!(refused(&["--prompt", ""]).contains("the prompt is empty"));
    assert!(refused(&["--each-line"]).contains("cannot be used with"));
}

/// Ctrl-C after the first line: a line for each prompt that is left, with what there is, and exit
/// code 130.
#[test]
fn an_interrupt_leaves_a_line_for_each_prompt() {
    let model = model();
    let mut more = vec!["--max-new-tokens", "900", "--temperature", "1.5", "--device", "cpu:1", "--stop", "e"];
    // Every text has an `e` soon; 40 of them take a while on one core.
    (0..40).for_each(|_| more.extend(["--prompt", "And God said"]));
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    let mut child =
        command.args(args(&model, &more)).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut text = String::new();
    out.read_line(&mut text).expect("a line");
    while !catches_interrupts(child.id()) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.expect("kill runs").success());
    out.read_to_string(&mut text).expect("UTF-8");
    let output = child.wait_with_output().expect("ends");
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(130), ""));
    let found = lines(&text);
    let prompts: std::collections::BTreeSet<u64> = found.iter().filter_map(|line| line["prompt"].as_u64()).collect();
    assert_eq!((found.len(), prompts.len()), (40, 40));
    assert!(found.iter().any(|line| line["interrupted"] == json!(true) && line["finish_reason"].is_null()));
    assert!(found.iter().any(|line| line["finish_reason"] == json!("stop")));
}
