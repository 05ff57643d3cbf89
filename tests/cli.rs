//! The command line as a user meets it: output, exit codes, one line for every failure, no partial
//! files.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tilewright::results::Results;

fn model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models").join(name)
}

fn tilewright(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
    // GPUs are hidden, so that the default device is the CPU.
    command.args(args).env("CUDA_VISIBLE_DEVICES", "").output().expect("the program starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

/// The one line of a failure with exit code 2.
fn failure(args: &[&str]) -> String {
    let output = tilewright(args);
    let text = String::from_utf8(output.stderr.clone()).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
    assert!(output.stdout.is_empty(), "{args:?} printed {}", stdout(&output));
    assert!(!text.contains("panicked"), "{text}");
    assert_eq!(text.lines().count(), 1, "{args:?}: {text}");
    text
}

fn generate<'a>(model: &'a str, prompt: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["generate", "--model", model, "--prompt", prompt], more].concat()
}

#[test]
fn generate_streams_the_reference_text() {
    for name in ["tiny-llama", "tiny-qwen3"] {
        let reference = fs::read_to_string(model(name).join("reference.json")).expect("reference");
        let reference: Value = serde_json::from_str(&reference).expect("JSON");
        let case = &reference["cases"][1];
        let dir = model(name);
        let dir = dir.to_str().expect("UTF-8 path");
        let prompt = case["prompt"].as_str().expect("text");
        let output = tilewright(&generate(dir, prompt, &["--max-new-tokens", "48"]));
        assert!(output.status.success());
        assert_eq!(stdout(&output), format!("{}\n", case["text"].as_str().expect("text")));
        assert!(output.stderr.is_empty(), "no progress bar away from a terminal");

        let output = tilewright(&generate(dir, prompt, &["--max-new-tokens", "48", "--json"]));
        let object: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
        assert_eq!(object["prompt_ids"], case["prompt_ids"]);
        assert_eq!(object["token_ids"], case["greedy_ids"]);
        assert_eq!(object["text"], case["text"]);
        assert!(object["tokens_per_second"].as_f64().expect("a number") > 0.0);
        assert!(object["first_token_seconds"].as_f64().expect("a number") > 0.0);
        assert_eq!(object["interrupted"], json!(false));
        // The host compiles none.
        assert_eq!(object["kernels"], json!({ "compiled": 0, "seconds": 0.0, "each": [] }));
        let keys: Vec<&str> = object.as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(keys.len(), 10, "{keys:?}");
    }
}

#[test]
fn generation_stops_at_the_end_of_sequence() {
    let dir = copy_of("tiny-llama");
    // 13 is the first comma of the reference's continuation; here it ends sequences.
    fs::write(dir.path().join("generation_config.json"), "{\"eos_token_id\": [1, 13]}").expect("writes");
    let output = tilewright(&generate(dir.path().to_str().expect("path"), "In the beginning", &["--json"]));
    let object: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(object["token_ids"], json!([270, 260, 281, 400, 273, 78, 270, 260, 468, 270, 388, 13]));
}

/// The reader left, as `head` does: nothing on standard error, and the exit code that shells give
/// for SIGPIPE.
#[test]
fn a_closed_pipe_is_silent() {
    let llama = model("tiny-llama");
    let llama = llama.to_str().expect("path");
    let show = ["layout", "show", "(4,8):(8,1)"];
    let list = ["flow", "list"];
    let picture = [&show[..], &["--svg", "/dev/stdout"]].concat();
    for args in [
        generate(llama, "And", &[]),
        generate(llama, "And", &["--json"]),
        vec!["--help"],
        vec![],
        vec!["ptx", "--kernel", "saxpy"],
        vec!["doctor", "--json"],
        vec!["completions", "bash"],
        show.to_vec(),
        list.to_vec(),
        picture,
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
        command.args(&args).env("CUDA_VISIBLE_DEVICES", "").stdout(writer).stderr(Stdio::piped());
        let output = command.spawn().expect("the program starts").wait_with_output().expect("ends");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{args:?}");
        assert_eq!(output.status.code(), Some(141), "{args:?}");
    }
}

/// Whether a process has a handler of SIGINT, which is signal 2.
#[cfg(target_os = "linux")]
fn catches_interrupts(id: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{id}/status")).expect("the process is there");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("the signals that it catches");
    u64::from_str_radix(caught.trim(), 16).expect("a number") & 2 != 0
}

/// Ctrl-C, in the middle of a generation: what there is by then, on a line of its own, and exit
/// code 130.
#[cfg(target_os = "linux")]
#[test]
fn an_interrupt_ends_with_what_was_generated() {
    let dir = model("tiny-llama");
    let dir = dir.to_str().expect("path");
    let whole = stdout(&tilewright(&generate(dir, "In the beginning", &["--max-new-tokens", "64"])));
    for json in [false, true] {
        let more = ["--max-new-tokens", "1000", "--temperature", "1", "--device", "cpu:1", "--json"];
        let args = generate(dir, "In the beginning", &more[..if json { 7 } else { 6 }]);
        let mut command = Command::new(env!("CARGO_BIN_EXE_tilewright"));
        let mut child = command.args(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
        let mut out = child.stdout.take().expect("a pipe");
        let mut begun = vec![0; if json { 0 } else { 12 }];
        out.read_exact(&mut begun).expect("text streams while it is generated");
        // An interrupt before there is a handler would end the process at once.
        let id = child.id().to_string();
        while !catches_interrupts(&id) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(Command::new("kill").args(["-INT", &id]).status().expect("kill runs").success());
        let mut rest = String::new();
        out.read_to_string(&mut rest).expect("UTF-8");
        let output = child.wait_with_output().expect("ends");
        assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        if json {
            let object: Value = serde_json::from_str(&rest).expect("one JSON object");
            let tokens = object["token_ids"].as_array().expect("tokens").len();
            assert!(object["interrupted"] == json!(true) && tokens < 1000, "{object}");
        } else {
            assert!(rest.ends_with('\n') && rest.len() < 10 * whole.len(), "{rest}");
        }
    }
}

#[test]
fn logits_are_written_as_safetensors() {
    let dir = TempDir::new().expect("a folder");
    let out = dir.path().join("logits.safetensors");
    let llama = model("tiny-llama");
    let args = [
        "logits",
        "--model",
        llama.to_str().expect("path"),
        "--prompt-ids",
        "1,2, 3",
        "--out",
        out.to_str().expect("path"),
    ];
    let output = tilewright(&args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bytes = fs::read(&out).expect("written");
    let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    let logits = tensors.tensor("logits").expect("logits");
    assert_eq!((logits.dtype(), logits.shape()), (safetensors::Dtype::F32, &[3, 2048][..]));
    assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 1, "no temporary file stays");
}

#[test]
fn compile_then_validate() {
    let dir = TempDir::new().expect("a folder");
    let out = dir.path().join("program.json");
    let out = out.to_str().expect("path");
    let qwen = model("tiny-qwen3");
    let config = qwen.join("config.json");
    for source in [
        vec!["--model", qwen.to_str().expect("path")],
        vec!["--config", config.to_str().expect("path")],
        vec!["--config", config.to_str().expect("path"), "--random-weights"],
        vec!["--config", config.to_str().expect("path"), "--sampling"],
    ] {
        let output =
            tilewright(&[&["compile"], &source[..], &["--target", "h100", "--batch", "2", "--out", out]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let output = tilewright(&["validate", out]);
        assert_eq!(output.status.code(), Some(0));
        assert!(stdout(&output).starts_with("[VALID]"), "{}", stdout(&output));
        let output = tilewright(&["validate", out, "--json"]);
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!((&report["valid"], &report["errors"]), (&json!(true), &json!([])));
        let text = fs::read_to_string(out).expect("written");
        let chooses = if source.contains(&"--sampling") { "sample" } else { "argmax" };
        assert!(text.contains(&format!("\"{chooses}\":{{")), "{chooses}");
    }

    // The same program without one wait is rejected, with the reason, and exit code 1.
    let mut program: Value = serde_json::from_slice(&fs::read(out).expect("written")).expect("JSON");
    let tasks = program["program"]["tasks"].as_array_mut().expect("tasks");
    let victim = tasks.iter_mut().find(|t| t["label"] == "layers.0.o[3]").expect("an o task");
    victim.as_object_mut().expect("a task").remove("waits");
    fs::write(out, program.to_string()).expect("writes");
    let output = tilewright(&["validate", out]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("layers.0.o[3]"), "{}", stdout(&output));
    let output = tilewright(&["validate", out, "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["valid"], json!(false));
}

#[test]
fn bad_arguments_are_one_line_and_exit_code_2() {
    let llama = model("tiny-llama");
    let llama = llama.to_str().expect("path");
    let dir = TempDir::new().expect("a folder");
    let unwritable = dir.path().join("missing/logits.safetensors");
    let unwritable = unwritable.to_str().expect("path");
    let folder = dir.path().to_str().expect("path");
    let cases: Vec<(Vec<&str>, &str)> = vec![
        (generate("no/such/folder", "x", &[]), "no/such/folder"),
        (generate(llama, "", &[]), "prompt is empty"),
        (generate(llama, "x", &["--temperature", "NaN"]), "temperature"),
        (generate(llama, "x", &["--temperature", "-1"]), "temperature"),
        (generate(llama, "x", &["--temperature", "1", "--top-p", "0"]), "top-p"),
        (generate(llama, "x", &["--temperature", "1", "--top-k", "0"]), "top-k"),
        (generate(llama, "x", &["--logprobs", "2"]), "--logprobs needs --json with one prompt"),
        (vec!["logits", "--model", llama, "--prompt-ids", "", "--out", "x"], "prompt is empty"),
        (vec!["logits", "--model", llama, "--prompt-ids", "1,2048", "--out", "x"], "2048"),
        (vec!["logits", "--model", llama, "--prompt-ids", "1", "--out", unwritable], "cannot write"),
        (vec!["logits", "--model", llama, "--prompt-ids", "1", "--out", folder], "cannot write"),
        (vec!["validate", "no/such/file.json"], "no/such/file.json"),
        (vec!["validate", "Cargo.toml"], "Cargo.toml"),
    ];
    for (args, expected) in cases {
        let line = failure(&args);
        assert!(line.contains(expected), "{args:?}: {line}");
    }
    assert_eq!(fs::read_dir(dir.path()).expect("a folder").count(), 0, "nothing was written");
}

#[test]
fn usage_errors_exit_with_2_and_help_with_0() {
    for args in [
        &["generate"][..],
        &["generate", "--model", "x", "--prompt", "y", "--device", "tpu"],
        &["compile", "--config", "x", "--target", "abacus", "--out", "y"],
        &["logits", "--model", "x", "--prompt-ids", "1,-2", "--out", "y"],
        &["logits", "--model", "x", "--prompt-ids", "one", "--out", "y"],
        &["frobnicate"],
    ] {
        let line = failure(args);
        assert!(line.starts_with("error: ") && line.contains("--help"), "{args:?}: {line}");
    }
    for args in [&["--help"][..], &["generate", "--help"], &["compile", "--help"], &["validate", "--help"]] {
        let output = tilewright(args);
        assert!(output.status.success() && stdout(&output).contains("Usage"), "{args:?}");
    }
}

/// The help, on standard output, is what a newcomer sees first.
#[test]
fn the_bare_program_prints_its_help() {
    let bare = tilewright(&[]);
    assert!(bare.status.success() && bare.stderr.is_empty());
    assert_eq!(stdout(&bare), stdout(&tilewright(&["-h"])));
    let help = stdout(&bare);
    for group in ["Run a model:", "Prepare a model:", "Measure:", "Kernels and layouts:", "This installation:"] {
        assert!(help.lines().any(|line| line == group), "{help}");
    }
    assert!(
        help.contains("\n  generate     Continue a prompt") && help.contains("\nExamples:\n  tilewright generate "),
        "{help}"
    );
    for group in ["layout", "flow", "bench", "tune"] {
        let output = tilewright(&[group]);
        assert!(output.status.success() && stdout(&output).contains("Commands:"), "{group}");
    }
}

#[test]
fn the_tip_of_a_usage_error_has_its_own_line() {
    let said = |args: &[&str]| {
        let output = tilewright(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
        String::from_utf8(output.stderr).expect("UTF-8")
    };
    let lines = "error: unexpected argument '--promt' found (see `tilewright generate --help`)\n\
                 tip: a similar argument exists: '--prompt'\n";
    assert_eq!(said(&["generate", "--model", "x", "--promt", "y"]), lines);
    let lines = "error: unrecognized subcommand 'generat' (see `tilewright --help`)\n\
                 tip: a similar subcommand exists: 'generate'\n";
    assert_eq!(said(&["generat"]), lines);
    assert!(said(&["layout", "eval"]).ends_with("(see `tilewright layout eval --help`)\n"));
}

/// Each suite has its own flags and no others; older command lines name a suite by `--suite`.
#[test]
fn a_suite_shows_its_own_flags_only() {
    let help = |suite: &str| stdout(&tilewright(&["bench", suite, "--help"]));
    let has = |suite: &str, flag: &str| help(suite).lines().any(|line| line.trim_start().starts_with(flag));
    for (flag, suites) in [
        ("--replays", &["gemm", "gemv", "codes", "attention", "all"][..]),
        ("--model", &["decode", "prefill", "requests", "speculate"]),
        ("--batch", &["decode"]),
        ("--prompts", &["prefill"]),
        ("--rate", &["requests"]),
        ("--device", &["decode", "prefill", "requests", "speculate", "gemm", "gemv", "codes", "attention", "all"]),
    ] {
        for suite in ["decode", "prefill", "requests", "speculate", "gemm", "gemv", "codes", "attention", "all"] {
            assert_eq!(has(suite, flag), suites.contains(&suite), "{suite} {flag}");
        }
    }
    for args in [&["bench", "gemv"][..], &["bench", "--suite", "gemv"], &["bench", "--suite=gemv"]] {
        let output = tilewright(&[args, &["--device", "sim", "--only", "n=1"]].concat());
        assert!(output.status.success(), "{args:?}");
    }
    let output = tilewright(&["bench", "--suite", "gemv", "--tokens", "3"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("unexpected argument '--tokens'"));
}

/// Notes are for people: --quiet drops them. Where a command runs is said to a person, or with
/// --verbose.
#[test]
fn quiet_and_verbose_decide_what_standard_error_has() {
    let dir = model("quant/tiny-llama-fp8block");
    let dir = dir.to_str().expect("UTF-8 path");
    let said = |more: &[&str]| {
        let output = tilewright(&[&generate(dir, "In the beginning", &["--max-new-tokens", "1"]), more].concat());
        assert!(output.status.success());
        (stdout(&output), String::from_utf8(output.stderr).expect("UTF-8"))
    };
    let ((text, normal), (quiet_text, quiet), (verbose_text, verbose)) = (said(&[]), said(&["--quiet"]), said(&["-v"]));
    assert!(text == quiet_text && text == verbose_text);
    assert!(normal.starts_with("note: ") && normal.lines().count() == 1, "{normal}");
    assert_eq!(quiet, "");
    assert!(verbose.starts_with("note: running on cpu: ") && verbose.contains(&normal), "{verbose}");
    assert!(verbose.contains("info: finished after "), "{verbose}");
    assert!(!said(&["-v", "--device", "cpu"]).1.contains("running on"), "a device that was given is not announced");
    assert!(failure(&["-q", "-v", "doctor"]).contains("cannot be used with"));
    // An error is printed all the same.
    assert!(failure(&["validate", "no/such/file", "--quiet"]).starts_with("error: "));
}

/// Without a GPU: what needs one says so and names the simulator; what does not runs on the CPU.
#[test]
fn the_default_device_is_a_gpu_or_the_cpu() {
    let config = model("tiny-llama").join("config.json");
    let config = config.to_str().expect("UTF-8 path");
    for args in [
        &["bench", "gemm"][..],
        &["timeline", "--config", config],
        &["accuracy", "--config", config],
        &["tune", "gemm"],
    ] {
        let line = failure(args);
        assert!(line.starts_with("error: this command needs a GPU, and ") && line.contains("--device sim"), "{line}");
    }
    let output = tilewright(&["selftest", "--kernel", "saxpy", "--cases", "1", "--seed", "1"]);
    assert!(stdout(&output).starts_with("sim:0 (simulated H100), sm_90a; 1 cases"), "{}", stdout(&output));
}

#[test]
fn doctor_says_what_runs_here_and_why_not() {
    let output = tilewright(&["doctor"]);
    assert!(output.status.success() && output.stderr.is_empty());
    let text = stdout(&output);
    for start in ["tilewright ", "CUDA driver ", "NCCL ", "Kernel cache ", "Tuned settings ", "Runs here:"] {
        assert!(text.lines().any(|line| line.starts_with(start)), "{start}: {text}");
    }
    assert!(text.contains("  yes  models on the CPU (--device cpu)\n"), "{text}");
    assert!(text.contains("  no   models on a GPU (--device cuda:0): "), "{text}");
    let object: Value = serde_json::from_slice(&tilewright(&["doctor", "--json"]).stdout).expect("one JSON object");
    assert_eq!(object["version"], json!(env!("CARGO_PKG_VERSION")));
    let runs = object["runs"].as_array().expect("features");
    assert!(runs.iter().all(|run| run["runs"].as_bool().expect("a flag") == run["why"].is_null()), "{object}");
}

#[test]
fn a_prompt_beyond_the_positions_is_refused() {
    let llama = model("tiny-llama");
    let ids = vec!["5"; 1025].join(",");
    let line = failure(&["logits", "--model", llama.to_str().expect("path"), "--prompt-ids", &ids, "--out", "x"]);
    assert!(line.contains("1025") && line.contains("1024"), "{line}");
    assert!(!Path::new("x").exists());
}

/// A copy of a model that a test may break.
fn copy_of(name: &str) -> TempDir {
    let dir = TempDir::new().expect("a folder");
    for file in ["config.json", "generation_config.json", "tokenizer.json", "model.safetensors"] {
        fs::copy(model(name).join(file), dir.path().join(file)).expect("copies");
    }
    dir
}

/// Breaks one file of a copy of tiny-llama.
fn broken(file: &str, change: impl FnOnce(Vec<u8>) -> Vec<u8>) -> TempDir {
    let dir = copy_of("tiny-llama");
    let path = dir.path().join(file);
    let bytes = fs::read(&path).expect("reads");
    fs::write(path, change(bytes)).expect("writes");
    dir
}

/// Replaces text in a JSON file, or in the header of a safetensors file, whose length stays.
fn replaced(from: &'static str, to: &'static str) -> impl FnOnce(Vec<u8>) -> Vec<u8> {
    move |mut bytes| {
        let at = bytes.windows(from.len()).position(|w| w == from.as_bytes()).expect("the text is there");
        bytes.splice(at..at + from.len(), to.bytes());
        bytes
    }
}

#[test]
fn broken_checkpoints_are_one_line_and_leave_no_output() {
    let missing = copy_of("tiny-llama");
    fs::remove_file(missing.path().join("model.safetensors")).expect("removes");
    let layer = ["model.layers.0.mlp.up_proj.weight"];
    let cases: Vec<(TempDir, &[&str])> = vec![
        (
            broken("config.json", |mut b| {
                b.truncate(100);
                b
            }),
            &["config.json"],
        ),
        (broken("config.json", replaced("\"silu\"", "\"gelu\"")), &["hidden_act", "gelu"]),
        (broken("config.json", replaced("\"use_cache\"", "\"logit_scale\"")), &["logit_scale"]),
        (broken("config.json", replaced("\"vocab_size\": 2048", "\"vocab_size\": 1024")), &["1024"]),
        (
            broken("model.safetensors", |mut b| {
                b.truncate(3_000_000);
                b
            }),
            &["model.safetensors"],
        ),
        (
            broken("model.safetensors", |mut b| {
                b[4] = 1;
                b
            }),
            &["model.safetensors", "header"],
        ),
        (broken("model.safetensors", replaced("up_proj", "sp_proj")), &layer),
        (broken("model.safetensors", replaced("[192,512]", "[512,192]")), &["[192, 512]", "[512, 192]"]),
        (broken("model.safetensors", replaced("\"BF16\"", "\"BF15\"")), &["BF15"]),
        (
            broken("tokenizer.json", |mut b| {
                b.truncate(5000);
                b
            }),
            &["tokenizer.json"],
        ),
        (missing, &["model.safetensors"]),
    ];
    for (dir, expected) in cases {
        let folder = dir.path().to_str().expect("path");
        let before = fs::read_dir(dir.path()).expect("lists").count();
        let out = dir.path().join("logits.safetensors");
        let out = out.to_str().expect("path");
        for args in [
            generate(folder, "In the beginning", &["--json"]),
            vec!["logits", "--model", folder, "--prompt-ids", "1,2", "--out", out],
            vec!["compile", "--model", folder, "--target", "h100", "--out", out],
        ] {
            let line = failure(&args);
            for text in expected {
                assert!(line.contains(text), "{args:?}: `{text}` is not in: {line}");
            }
        }
        assert_eq!(fs::read_dir(dir.path()).expect("lists").count(), before, "no output was left");
    }
}

#[test]
fn a_device_that_is_not_there_is_one_line() {
    let dir = model("tiny-llama");
    let dir = dir.to_str().expect("path");
    let text = failure(&generate(dir, "And", &["--device", "tpu"]));
    assert!(text.contains("cuda:N") && text.contains("sim:SEED"), "{text}");
    // No machine has a hundred GPUs; many have no driver.
    let text = failure(&generate(dir, "And", &["--device", "cuda:99"]));
    assert!(text.contains("no CUDA driver") || text.contains("cuda:99"), "{text}");
    let config = model("tiny-llama").join("config.json");
    let config = config.to_str().expect("path");
    let text = failure(&["timeline", "--config", config, "--device", "cpu"]);
    assert!(text.contains("runs on a GPU"), "{text}");
    let text = failure(&["bench", "decode", "--device", "sim"]);
    assert!(text.contains("--model DIR, or --config FILE"), "{text}");
}

#[test]
fn generate_on_a_simulated_gpu_gives_the_reference_text() {
    let reference = fs::read_to_string(model("tiny-qwen3").join("reference.json")).expect("reference");
    let reference: Value = serde_json::from_str(&reference).expect("JSON");
    let case = &reference["cases"][0];
    let dir = model("tiny-qwen3");
    let dir = dir.to_str().expect("path");
    let prompt = case["prompt"].as_str().expect("text");
    let more = ["--max-new-tokens", "3", "--json", "--device", "sim:4"];
    let output = tilewright(&generate(dir, prompt, &more));
    let object: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let expected = case["greedy_ids"].as_array().expect("ids");
    assert_eq!(object["token_ids"].as_array().expect("ids")[..], expected[..3]);
}

#[test]
fn a_timeline_and_a_bench_write_what_they_say() {
    let folder = TempDir::new().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("path").to_owned();
    let trace = path("t.json");
    let svg = path("t.svg");
    let rows = path("b.json");
    let steps = path("steps.jsonl");
    let dir = model("tiny-qwen3");
    let dir = dir.to_str().expect("path");
    let run = ["--device", "sim", "--context", "16", "--steps", "2", "--out", &trace, "--svg", &svg, "--json", &steps];
    let output = tilewright(&[&["timeline", "--model", dir], &run[..]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let table = stdout(&output);
    for level in ["embed", "qkv", "rope", "attention", "down", "logits", "argmax", "step"] {
        assert!(table.lines().any(|line| line.starts_with(level)), "{table}");
    }
    let trace: Value = serde_json::from_str(&fs::read_to_string(trace).expect("a trace")).expect("JSON");
    assert!(trace["traceEvents"].as_array().is_some_and(|events| events.len() > 20));
    assert!(fs::read_to_string(svg).expect("a picture").starts_with("<svg"));
    let levels = Results::open(Path::new(&steps)).expect("rows").rows;
    let together: f64 = levels.iter().filter_map(|(_, row)| row.values.get("together_us")).sum();
    let step = levels.last().and_then(|(_, row)| row.median_us).expect("the step");
    assert!((together - step).abs() < 0.01 * step, "levels of {together} µs in a step of {step} µs");

    let config = model("tiny-qwen3").join("config.json");
    let config = config.to_str().expect("path");
    let run = ["--device", "sim", "--context", "8", "--tokens", "3", "--check", "1", "--json", &rows];
    let output = tilewright(&[&["bench", "decode", "--config", config, "--random-weights"], &run[..]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(rows).expect("rows");
    let call: Value = serde_json::from_str(text.lines().next().expect("a call")).expect("JSON");
    assert!(call["call"]["command"].as_str().is_some_and(|command| command.contains("bench decode")), "{call}");
    for row in text.lines().skip(1) {
        let row: Value = serde_json::from_str(row).expect("JSON");
        assert_eq!((&row["suite"], &row["shape"]["context"]), (&json!("decode"), &json!(8)));
        assert!(
            row["median_us"].as_f64().is_some_and(|us| us > 0.0)
                && row["samples_us"][0].is_f64()
                && row["error"].as_f64().is_some_and(|e| e < 2e-2)
        );
    }
    assert_eq!(text.lines().count(), 3);
}

#[test]
fn accuracy_is_measured_at_every_position_and_against_a_peer() {
    let folder = TempDir::new().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("path").to_owned();
    let config = model("tiny-qwen3").join("config.json");
    let config = config.to_str().expect("path");
    let rows = path("a.json");
    let peer = path("peer.safetensors");
    let sub = ["accuracy", "--config", config, "--device", "sim", "--positions", "1,70", "--batches", "3"];
    let output = tilewright(&[&sub[..], &["--json", &rows]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(rows).expect("rows");
    let mut results = Results::default();
    results.add(&text, "rows").expect("results");
    let variants: Vec<&str> = results.rows.iter().map(|(_, row)| row.variant.as_str()).collect();
    assert_eq!(variants, ["positions 1", "positions 70", "positions 1 70 2"]);
    for (_, row) in &results.rows {
        let errors: Vec<f64> =
            row.values.iter().filter(|(name, _)| name.starts_with("error")).map(|(_, e)| *e).collect();
        assert_eq!(errors.len() as u64, row.shape["rows"]);
        assert!(errors.iter().all(|error| *error > 0.0 && *error < 2e-2), "{row:?}");
        assert_eq!(row.verdict.as_deref(), Some("right"));
    }

    // A peer whose logits are all 1: a device is nearer to the reference, but what the peer calls
    // f32 is not.
    let row = 1f32.to_le_bytes().repeat(1024);
    let position = 1f32.to_le_bytes();
    let tensors = ["positions.0", "bf16.0", "f32.0", "positions.1", "bf16.1", "f32.1"].map(|name| {
        let data = if name.starts_with("positions") { &position[..] } else { &row };
        let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![data.len() / 4], data);
        (name, view.expect("as many bytes as the shape says"))
    });
    fs::write(&peer, safetensors::serialize(tensors, None).expect("bytes")).expect("a file");
    let beside = |position| {
        let sub = ["accuracy", "--config", config, "--device", "sim", "--batches", "1", "--peer", &peer];
        tilewright(&[&sub[..], &["--positions", position]].concat())
    };
    let output = beside("1");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stdout(&output).matches("WRONG").count(), 2, "{}", stdout(&output));
    let output = beside("2");
    assert_eq!(output.status.code(), Some(2), "the file has other steps");
    assert!(String::from_utf8_lossy(&output.stderr).contains("position"));
}

#[test]
fn quantised_checkpoints_run() {
    let dir = model("quant/tiny-llama-fp8block");
    let dir = dir.to_str().expect("UTF-8 path");
    let output = tilewright(&generate(dir, "In the beginning", &["--max-new-tokens", "2"]));
    let note = "note: the checkpoint wants activations quantised as well; they are computed in bf16 or f32 here\n";
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), note));
}

#[test]
fn quantize_writes_a_folder_that_generates_or_none() {
    let out = TempDir::new().expect("a folder");
    let made = out.path().join("made");
    let dense = model("tiny-qwen3");
    let [made, dense] = [&made, &dense].map(|path| path.to_str().expect("UTF-8 path"));
    let args = ["quantize", "--model", dense, "--out", made, "--scheme", "w8a16"];
    let output = tilewright(&args);
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout(&output).starts_with("21 modules, "), "{}", stdout(&output));
    assert!(tilewright(&generate(made, "In the beginning", &["--max-new-tokens", "2"])).status.success());
    assert!(failure(&args).contains("exists and is not an empty folder"));
    assert!(failure(&[&args[..6], &["int3"]].concat()).contains("`int3` is not a scheme"));
    assert_eq!(fs::read_dir(out.path()).expect("the folder").count(), 1, "nothing is left of what failed");
}
