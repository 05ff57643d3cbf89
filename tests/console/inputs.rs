//! What `validate` and `bench` do with files that do not end and shapes that take long.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::{failure, fifo, run};

#[test]
fn a_fifo_that_nobody_writes_to_is_refused_and_another_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("fifo");
    fifo(&path);
    let name = path.to_str().expect("UTF-8");
    let line = failure(&["validate", name], b"");
    assert!(line.contains("it is a FIFO that nobody has opened to write for 2 s"), "{line}");

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

/// What adds up the parts of several devices is asked for where there are several; the text is the same by each.
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

/// A configuration of a quantised model stands for random codes of its form, in results under the form's name.
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
        ("error: a chunk of 16 tokens is asked for; it has 17 to 4096\n", Some(2))
    );
}
