//! Inputs that do not end, numbers out of range, and what `bench` announces.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{failure, fifo, run};

#[test]
fn a_fifo_without_a_writer_is_refused_and_another_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("fifo");
    fifo(&path);
    let name = path.to_str().expect("UTF-8");
    let line = failure(&["validate", name], b"");
    assert!(line.contains("it is a FIFO that no program has opened for writing within 2 s"), "{line}");

    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    let child = command.args(["validate", name]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts");
    fs::write(&path, "{}").expect("writes");
    let output = child.wait_with_output().expect("ends");
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(line.contains("is not a program") && output.status.code() == Some(2), "{line}");
    // A pipe of a shell is one whose writer is there.
    let line = failure(&["validate", "/dev/stdin"], b"[]");
    assert!(line.contains("is not a program"), "{line}");
}

/// Rows of results are read with the same limits everywhere: `--results`, `--peers`, `--tuned`,
/// `--resume`, `--out` of `tune`.
#[test]
fn fifos_as_results_resume_and_tuned_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rows.jsonl");
    fifo(&path);
    let name = path.to_str().expect("UTF-8");
    let begun = Instant::now();
    let bench = ["bench", "gemv", "--device", "sim", "--only", "n=1"];
    let out = folder.path().join("page.html");
    let out = out.to_str().expect("UTF-8");
    let folder_of_fifos = folder.path().to_str().expect("UTF-8");
    let model = crate::tiny("");
    let model = model.to_str().expect("UTF-8");
    let generate = ["generate", "--model", model, "--prompt", "a", "--device", "cpu:1", "--flow", "q-filter"];
    let refused = [
        vec!["layout", "check", name],
        vec!["flow", "map", name, "--svg", out],
        [&generate[..], &["--flow-parameters", name]].concat(),
        vec!["dashboard", "--out", out, "--results", name],
        vec!["dashboard", "--out", out, "--results", folder_of_fifos],
        [&bench[..], &["--peers", name]].concat(),
        [&bench[..], &["--tuned", name]].concat(),
    ];
    // Each waits for two seconds.
    std::thread::scope(|scope| {
        for args in &refused {
            scope.spawn(move || {
                let line = failure(args, b"");
                assert!(line.contains("it is a FIFO that no program has opened for writing within 2 s"), "{line}");
            });
        }
    });
    for args in
        [&[&bench[..], &["--out", name, "--resume"]].concat()[..], &["tune", "gemv", "--device", "sim", "--out", name]]
    {
        let line = failure(args, b"");
        assert!(line.contains("is not a regular file; rows are read from it and appended to it"), "{line}");
    }
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
}

/// A process that was killed leaves half a line; the next one drops it, says so, and goes on.
#[test]
fn an_unfinished_last_line_is_dropped_with_a_note() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rows.jsonl");
    let name = path.to_str().expect("UTF-8");
    let call = r#"{"call":{"id":"a","date":"2026-11-22","device":"D","command":"c"}}"#;
    let row = r#"{"suite":"gemv","who":"tilewright","shape":{"n":8},"variant":"µ","samples_us":[2.0]}"#;
    let bench = ["bench", "gemv", "--device", "sim", "--only", "n=1", "--out", name, "--resume"];
    let nothing = "note: nothing was measured: --only leaves no shape that is not measured already\n";
    // Within a character, within a number, after the first byte; and a complete line that lacks its
    // end.
    let cut = row.find('µ').expect("is there") + 1;
    for (rest, dropped) in [
        (&row.as_bytes()[..cut], true),
        (&row.as_bytes()[..row.len() - 4], true),
        (b"{", true),
        (row.as_bytes(), false),
    ] {
        fs::write(&path, [format!("{call}\n{row}\n").as_bytes(), rest].concat()).expect("writes");
        let output = run(&bench, b"");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let note = format!("note: line 3 of `{name}` is unfinished; it is removed\n");
        assert_eq!(said, if dropped { format!("{note}{nothing}") } else { nothing.to_owned() });
        assert!(output.status.success());
        let more = if dropped { String::new() } else { format!("{row}\n") };
        assert_eq!(fs::read_to_string(&path).expect("text"), format!("{call}\n{row}\n{more}"));
    }
    // A damaged line elsewhere is still an error.
    fs::write(&path, format!("{call}\n{{\n{row}\n")).expect("writes");
    assert!(failure(&bench, b"").contains("line 2 of `rows.jsonl` is neither a call nor a row"));
}

/// Times that would overflow or mean nothing are refused where they are given.
#[test]
fn times_and_rates_out_of_range_are_refused() {
    let requests = ["bench", "requests", "--device", "sim", "--config", "c"];
    for (option, value, words) in [
        ("--step-ms", "inf", "must be a positive number of milliseconds"),
        ("--step-ms", "0", "must be a positive number of milliseconds"),
        ("--step-ms", "-1", "must be a positive number of milliseconds"),
        ("--soak", "1e300", "must be a number of seconds, 0 or more"),
        ("--soak", "NaN", "must be a number of seconds, 0 or more"),
        ("--rate", "0", "must be a number above 0, at most 1e9"),
        ("--seats", "0", "0 is not in 1..=4096"),
        ("--beside", "18446744073709551615", "is not in 0..="),
    ] {
        let line = failure(&[&requests[..], &[option, value]].concat(), b"");
        assert!(line.contains(words) && line.ends_with("(see `tilewright bench requests --help`)\n"), "{line}");
    }
    let last = ["selftest", "--device", "sim", "--kernel", "saxpy", "--cases", "2", "--seed", "18446744073709551615"];
    assert!(failure(&last, b"").contains("leaves fewer than 2 seeds up to 2^64 - 1"));
}

/// Chunks come in by a graph of launches, which GPUs run, and which has no ops of flows.
#[test]
fn chunks_of_prompts_that_nothing_feeds_are_refused() {
    let model = crate::tiny("");
    let model = model.to_str().expect("UTF-8");
    let generate = ["generate", "--model", model, "--prompt", "a", "--prompt-chunk", "32"];
    let line = failure(&[&generate[..], &["--device", "cpu"]].concat(), b"");
    assert!(line.contains("on cpu none is chosen"), "{line}");
    let many = ["--device", "sim", "--flow", "quest", "--prompt", "b", "--rows", "17"];
    let line = failure(&[&generate[..], &many].concat(), b"");
    assert!(line.contains("with a flow a step on a device has rows for 16"), "{line}");
}

/// The all-reduce is asked for if there are several devices; each gives the same text.
#[test]
fn an_exchange_is_of_several_devices() {
    let model = crate::tiny("");
    let model = model.to_str().expect("UTF-8");
    let generate = ["generate", "--model", model, "--prompt", "One day, a little", "--max-new-tokens", "2"];
    for device in ["cpu", "sim"] {
        let line = failure(&[&generate[..], &["--device", device, "--exchange", "nccl"]].concat(), b"");
        assert!(line.contains("an exchange is between GPUs that share a model"), "{line}");
    }
    let line = failure(&[&generate[..], &["--exchange", "mpi"]].concat(), b"");
    assert!(
        line.contains("`mpi` is not an exchange between devices; known are own, one-shot, two-shot and nccl"),
        "{line}"
    );
    let texts = ["own", "two-shot", "nccl"].map(|exchange| {
        let several = ["--device", "sim:1x2", "--prompt-chunk", "17", "--exchange", exchange];
        let output = run(&[&generate[..], &several].concat(), b"");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    });
    assert!(!texts[0].trim().is_empty() && texts.iter().all(|text| *text == texts[0]), "{texts:?}");
}

/// A configuration of a quantised model stands for random codes of its form, in results under the
/// form's name.
#[test]
fn a_quantised_configuration_is_timed_with_random_codes() {
    let tiny = fs::read_to_string(crate::tiny("config.json")).expect("a configuration");
    let mut config: Value = serde_json::from_str(&tiny).expect("JSON");
    config["num_hidden_layers"] = json!(1);
    config["quantization_config"] =
        json!({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": true, "sym": true});
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("config.json");
    fs::write(&path, config.to_string()).expect("writes");
    let short = ["--device", "sim", "--context", "4", "--tokens", "2", "--check", "1"];
    let args = ["bench", "--suite", "decode", "--config", path.to_str().expect("UTF-8")];
    let output = run(&[&args[..], &short].concat(), b"");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let row = "measured: decode batch=1 context=4 hidden=192 layers=1 weight_bits=4 launches of 2, GPTQ of 4 bits, act-order, ";
    assert!(said.contains(row) && output.status.success(), "{said}");
    let line = failure(&[&args[..], &short, &["--weights", "w4a16"]].concat(), b"");
    assert!(line.contains("the configuration has 7 quantised modules; --weights is for dense weights"), "{line}");
}

#[test]
fn a_bench_on_the_simulator_says_what_it_measures() {
    let args = ["bench", "--suite", "gemv", "--device", "sim", "--only", "n=1,k=1"];
    let output = run(&args, b"");
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(line, "note: nothing was measured: --only leaves no shape that is not measured already\n");
    assert!(output.status.success());
    let config = crate::tiny("config.json");
    let config = config.to_str().expect("UTF-8");
    let short = ["--context", "4", "--tokens", "2", "--check", "0"];
    let args = ["bench", "--suite", "decode", "--device", "sim", "--config", config, "--random-weights"];
    let output = run(&[&args[..], &short].concat(), b"");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("to measure: decode batch=1 context=4 "), "{said}");
    assert_eq!(said.lines().filter(|line| line.starts_with("measured: decode ")).count(), 2, "{said}");
    let short = ["--prompts", "21", "--prompt-chunk", "17", "--check-prompt", "18"];
    let args = ["bench", "--suite", "prefill", "--device", "sim", "--config", config, "--random-weights"];
    let output = run(&[&args[..], &short].concat(), b"");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("measured: prefill ") && said.contains("tokens=21") && output.status.success(), "{said}");
    let output = run(&[&args[..], &["--prompt-chunk", "16"]].concat(), b"");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        (said.as_str(), output.status.code()),
        ("error: --prompt-chunks has a chunk of 16 tokens; it must be 17 to 4096\n", Some(2))
    );
}
