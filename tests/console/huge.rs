//! Sizes beyond sense: one line and exit code 2, or what was asked for; no abort where memory is
//! limited, and no panic.

use std::fs;
use std::process::{Command, Output};

use serde_json::{Value, json};

const HUGE: [&str; 4] = ["4294967296", "9223372036854775807", "18446744073709551615", "99999999999999999999"];

/// Runs the program in 4 GB of address space.
fn limited(args: &[&str]) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", r#"ulimit -v 4194304; exec "$0" "$@""#, env!("CARGO_BIN_EXE_tilewright")]);
    command.args(args).output().expect("runs")
}

/// The line of a refusal; measuring may be announced before it.
fn refused(args: &[&str]) -> String {
    let output = limited(args);
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
    let lines = text.lines().filter(|line| !line.starts_with("to measure: ") && !line.starts_with("note: "));
    let lines: Vec<&str> = lines.collect();
    assert!(lines.len() == 1 && lines[0].starts_with("error: "), "{args:?}: {text}");
    lines[0].to_owned()
}

fn config() -> String {
    crate::tiny("config.json").to_str().expect("UTF-8").to_owned()
}

#[test]
fn huge_batches_contexts_and_pages_of_programs_are_refused() {
    let config = config();
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("program.json");
    let compile = ["compile", "--config", &config, "--target", "h100", "--out", out.to_str().expect("UTF-8")];
    let plan = ["plan", "--config", &config, "--target", "h100"];
    for huge in HUGE {
        for option in ["--batch", "--context", "--page-tokens"] {
            let line = refused(&[&compile[..], &[option, huge]].concat());
            assert!(line.contains(huge), "{line}");
        }
        for option in ["--batch", "--context"] {
            let line = refused(&[&plan[..], &[option, huge]].concat());
            assert!(line.contains(huge), "{line}");
        }
    }
    assert!(!out.exists());
}

/// A configuration with the most layers would make a program of three million tasks.
#[test]
fn a_program_of_too_many_tasks_is_refused_before_it_is_there() {
    let mut wide: Value = serde_json::from_slice(&fs::read(config()).expect("is there")).expect("JSON");
    for (key, value) in [("num_hidden_layers", 4096), ("intermediate_size", 8192), ("hidden_size", 2048)] {
        wide[key] = json!(value);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let [config, out] = ["config.json", "program.json"].map(|name| folder.path().join(name));
    fs::write(&config, wide.to_string()).expect("writes");
    let [config, out] = [&config, &out].map(|path| path.to_str().expect("UTF-8"));
    let line = refused(&["compile", "--config", config, "--target", "h100", "--out", out]);
    assert!(line.contains("is beyond the 1048576 tasks that a program may have"), "{line}");
}

#[test]
fn huge_shapes_budgets_and_replays_of_a_search_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("tuned.jsonl");
    let tune = ["tune", "--device", "sim", "--out", out.to_str().expect("UTF-8"), "--suite"];
    let most = "2147483647";
    let shapes = [
        ("gemm", format!("m={most},n={most},k={most}"), "has an operand of 4611686014132420609 elements"),
        ("gemm", format!("m={most},n=1,k=1"), "has an operand of 2147483647 elements; at most 1073741824 are timed"),
        ("gemm", "m=1073741824,n=1,k=1".to_owned(), "error: "),
        ("gemv", format!("batch=1,n={most},k=1048576"), "has an operand of"),
        ("attention", format!("batch={most},tokens=1"), "has an operand of"),
        ("attention", format!("batch=1,tokens={most}"), "has an operand of"),
        ("attention", "batch=1,tokens=1048576".to_owned(), "memory"),
    ];
    for (suite, shape, words) in &shapes {
        let line = refused(&[&tune[..], &[suite, "--shape", shape]].concat());
        assert!(line.contains(words), "{line}");
    }
    for suite in [&tune[..], &["bench", "--device", "sim", "--suite"]] {
        assert!(refused(&[suite, &["gemv", "--replays", HUGE[2]]].concat()).contains(HUGE[2]));
    }
    // The longest time that can be said is a time.
    let args = ["bench", "--device", "sim", "--suite", "gemv", "--only", "n=1", "--budget", "18446744073709551615s"];
    assert!(limited(&args).status.success());
}

#[test]
fn huge_positions_and_rows_of_a_comparison_are_refused() {
    let config = config();
    let accuracy = ["accuracy", "--config", &config, "--random-weights", "--device", "sim"];
    for huge in HUGE {
        assert!(refused(&[&accuracy[..], &["--positions", huge]].concat()).contains(huge));
        assert!(refused(&[&accuracy[..], &["--positions", "0", "--batches", huge]].concat()).contains(huge));
    }
    assert!(refused(&[&accuracy[..], &["--batches", "0"]].concat()).contains("0 is not in 1..=4096"));
}

#[test]
fn results_and_logits_of_peers_that_do_not_end_are_refused_by_name() {
    let config = config();
    let zeros = "/dev/zero";
    let bench = ["bench", "--device", "sim", "--suite", "gemv", "--only", "n=1"];
    for option in ["--peers", "--tuned"] {
        let line = refused(&[&bench[..], &[option, zeros]].concat());
        assert!(line.contains("results `/dev/zero` have more than 268435456 bytes"), "{line}");
        let line = refused(&[&bench[..], &[option, "/nowhere"]].concat());
        assert!(line.contains("results `/nowhere` cannot be read"), "{line}");
    }
    let line = refused(&["dashboard", "--results", zeros, "--out", "/dev/null"]);
    assert!(line.contains("results `/dev/zero` have more than"), "{line}");
    let accuracy = ["accuracy", "--config", &config, "--random-weights", "--device", "sim", "--peer", zeros];
    let line = refused(&accuracy);
    assert!(line.contains("the peer's logits `/dev/zero` cannot be read: it has more than 1073741824 bytes"), "{line}");
}

#[test]
fn as_many_tokens_as_there_are_numbers_are_as_many_as_the_model_gives() {
    let model = crate::tiny("");
    let text = ["--prompt", "In the beginning", "--stop", "e", "--max-new-tokens", HUGE[2]];
    let output = limited(&[&["generate", "--model", model.to_str().expect("UTF-8")], &text[..]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
