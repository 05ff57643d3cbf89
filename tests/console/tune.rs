//! Searches for settings: what is measured once, what is kept, and who uses it.

use std::process::{Command, Output};

use tilewright::results::Results;
use tilewright::tuning::{KEPT, Tuned};

use crate::{failure, tiny};

const SIMULATED: &str = "simulated H100";

/// A search on the simulator, whose rows go to a file.
fn tune(out: &str, args: &[&str]) -> Output {
    let base = ["tune", "attention", "--device", "sim:3", "--replays", "1", "--commit", "a", "--out", out];
    crate::run(&[&base[..], args].concat(), b"")
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn every_configuration_is_a_row_at_once_and_no_search_measures_it_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("deep/tuned.jsonl");
    let out = path.to_str().expect("UTF-8");
    let shape = ["--shape", "batch=1,tokens=64"];
    // The space has twelve configurations, and there is time for all.
    let first = tune(out, &[&shape[..], &["--budget", "1h"]].concat());
    let measured = said(&first).lines().filter(|line| line.starts_with("measured: ")).count();
    assert_eq!(measured, 12 + 1, "{}", said(&first));
    let results = Results::open(&path).expect("rows");
    let kept: Vec<_> = results.rows.iter().filter(|(_, row)| row.verdict.as_deref() == Some(KEPT)).collect();
    assert_eq!((results.rows.len(), kept.len()), (13, 1));
    assert!(results.rows.iter().all(|(_, row)| row.error.is_some_and(|error| error < 1e-2)));
    let tuned = Tuned::of(&results);
    let shape_of_row = [("batch", 1), ("depth", 128), ("tokens", 64)];
    let settings = tuned.settings(SIMULATED, None, "attention", &shape_of_row).expect("settings");
    assert_eq!(settings.to_string(), kept[0].1.variant);
    assert!(String::from_utf8_lossy(&first.stdout).contains("batch=1 depth=128 tokens=64"));

    let second = said(&tune(out, &shape));
    assert!(second.contains("is tuned already; --again searches again") && !second.contains("measured:"), "{second}");
    let again = said(&tune(out, &[&shape[..], &["--again", "--budget", "1h"]].concat()));
    assert_eq!(again.lines().filter(|line| line.starts_with("measured: ")).count(), 1, "{again}");
    // Another build is another kernel.
    let other =
        ["tune", "attention", "--device", "sim:3", "--replays", "1", "--commit", "b", "--out", out, "--budget", "0s"];
    let other = said(&crate::run(&[&other[..], &shape].concat(), b""));
    assert!(other.lines().filter(|line| line.starts_with("measured: ")).count() >= 2, "{other}");
}

/// On a terminal a search shows the percentage, the rate and the time left; not with --quiet, and
/// not away from a terminal.
#[test]
fn a_search_shows_its_progress_on_a_terminal_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let args = |out: &str, more: &str| {
        let out = folder.path().join(out);
        format!(
            "tune attention --device sim:3 --replays 1 --commit a --shape batch=1,tokens=64 --try stages=3 --out {} {more}",
            out.display()
        )
    };
    // `script` gives the program a terminal.
    let on_terminal = |args: String| {
        let line = format!("{} {args}", env!("CARGO_BIN_EXE_tilewright"));
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).env("CUDA_VISIBLE_DEVICES", "").env("TERM", "xterm");
        let output = command.stdin(std::process::Stdio::null()).output().expect("`script` runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let shown = on_terminal(args("a.jsonl", ""));
    assert!(shown.contains("tuning ") && shown.contains(" 50 %  1 configuration, "), "{shown}");
    assert!(shown.contains("/s, ") && shown.contains(" left"), "{shown}");
    let quiet = on_terminal(args("b.jsonl", "--quiet"));
    assert!(!quiet.contains(" %") && quiet.contains("batch=1 depth=128 tokens=64"), "{quiet}");
    let piped = crate::run(&args("c.jsonl", "").split_whitespace().collect::<Vec<_>>(), b"");
    let piped = said(&piped);
    assert!(!piped.contains(" %") && piped.lines().all(|line| line.starts_with("measured: ")), "{piped}");
}

#[test]
fn what_was_kept_for_a_model_is_what_its_machines_are_made_with() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tuned.jsonl");
    let model = tiny("").to_str().expect("UTF-8").to_owned();
    let generate = |text: &str| {
        std::fs::write(&path, text).expect("writes");
        let args = ["--device", "sim", "--prompt", "Once", "--max-new-tokens", "1"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
        command.args(["generate", "--model", &model]).args(args).env("TILEWRIGHT_TUNED", &path);
        command.output().expect("runs")
    };
    let rows = |settings: &str| {
        let call = format!(r#"{{"call":{{"id":"a","date":"2026-11-22","device":"{SIMULATED}","command":"tune"}}}}"#);
        let shape = r#"{"batch":1,"context":64,"hidden":192,"layers":4}"#;
        let row = format!(
            r#"{{"suite":"decode","who":"tilewright","shape":{shape},"variant":"{settings}","verdict":"{KEPT}"}}"#
        );
        format!("{call}\n{row}\n")
    };
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let plain = generate(&rows("prefetch_stages=2 in_flight=2"));
    assert!(plain.status.success() && !text(&plain).is_empty(), "{}", String::from_utf8_lossy(&plain.stderr));
    // These reach the machine, which has no such stages.
    let wrong = generate(&rows("stage_bytes=100"));
    let line = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(wrong.status.code() == Some(2) && line.lines().count() == 1 && line.contains("stage"), "{line}");
    let unknown = generate(&rows("shelves=2"));
    let line = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(unknown.status.code() == Some(2) && line.contains("there is no setting `shelves`"), "{line}");
    let removed = generate(&rows("hold=2"));
    let line = String::from_utf8_lossy(&removed.stderr).into_owned();
    assert!(removed.status.code() == Some(2) && line.contains("it is `prefetch_stages` now"), "{line}");
    let damaged = generate("{");
    let line = String::from_utf8_lossy(&damaged.stderr).into_owned();
    assert!(damaged.status.code() == Some(2) && line.contains("the user's file of tuned settings"), "{line}");
}

#[test]
fn what_cannot_be_tuned_is_refused_and_leaves_no_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("deep/tuned.jsonl");
    let out = out.to_str().expect("UTF-8");
    let refused = |args: &[&str], words: &str| {
        let output = crate::run(&[&["tune"], args, &["--out", out]].concat(), b"");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && text.starts_with("error: ") && text.contains(words), "{text}");
    };
    refused(&["gemm", "--device", "cpu"], "kernels are timed on cuda:N or sim:SEED");
    let on_sim = |suite: &'static str, shape: &'static str| [suite, "--device", "sim", "--shape", shape];
    refused(&on_sim("gemm", "m=8,n=8"), "m=8,n=8 is not a shape of this suite, which has m, n, k");
    // The shape that the help of another suite shows.
    refused(&on_sim("gemv", "m=8,n=8,k=16"), "m=8,n=8,k=16 is not a shape of this suite, which has batch, n, k");
    refused(&on_sim("gemv", "batch=1,n=8,k=0"), "each from 1 to 2147483647");
    refused(&on_sim("decode", "batch=1"), "unexpected argument '--shape'");
    refused(&["gemv", "--device", "sim", "--shape", "batch=1,n=8,k=16", "--try", "warps"], "`warps` is not NAME=VALUE");
    refused(&["decode", "--device", "sim"], "give a model: --model DIR, or --config FILE");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "no file is left");
}

/// Each suite's help has a shape of its own, which it takes.
#[test]
fn the_shape_in_the_help_of_a_suite_is_one_of_it() {
    for (suite, shape) in [
        ("gemm", "m=4096,n=4096,k=4096"),
        ("gemv", "batch=1,n=4096,k=4096"),
        ("codes", "m=64,n=4096,k=4096"),
        ("attention", "batch=8,tokens=8192"),
    ] {
        assert!(crate::stdout(&["tune", suite, "--help"], b"").contains(shape), "{suite}");
        let line = failure(&["tune", suite, "--device", "cpu", "--shape", shape], b"");
        assert!(line.contains("kernels are timed on cuda:N or sim:SEED"), "{line}");
    }
    assert!(!crate::stdout(&["tune", "decode", "--help"], b"").contains("--shape"));
}
