//! Flows on the command line: `flow list`, `flow show`, `generate --flow`.

use std::process::{Command, Output};

fn tilewright(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tilewright")).args(args).output().expect("the program starts")
}

fn success(args: &[&str]) -> String {
    let output = tilewright(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The one line of a failure with exit code 2.
fn failure(args: &[&str]) -> String {
    let output = tilewright(args);
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
    assert_eq!(text.lines().count(), 1, "{args:?}: {text}");
    text
}

#[test]
fn flows_are_listed_and_shown() {
    let list = success(&["flow", "list"]);
    assert_eq!(list.lines().count(), tilewright_flow::algorithms::ALL.len());
    assert!(
        list.contains("quest              upper bound of the logits from the keys' box; keeps max [1, D], min [1, D]"),
        "{list}"
    );
    let text = success(&["flow", "show", "quest"]);
    assert!(text.starts_with("quest: G = 4, D = 128, B = 16, 8 key heads\n"), "{text}");
    // Two rows of 128 numbers in bf16 for each block, and the scores between the two tasks, in f32.
    assert!(text.contains("a block reads 512 B, writes 4 B"), "{text}");
    assert!(success(&["flow", "show", "quest", "--dot"]).starts_with("digraph \"quest\" {"));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("quest.svg");
    let path = file.to_str().expect("a path");
    assert_eq!(success(&["flow", "show", "quest", "--svg", path]), "");
    let svg = std::fs::read_to_string(&file).expect("the image");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
}

/// The list names the requirements of a flow besides its name: a block size, a parameter file.
#[test]
fn the_list_says_what_a_flow_needs() {
    let list = success(&["flow", "list"]);
    let line = |name: &str| list.lines().find(|line| line.starts_with(&format!("{name} "))).expect("a flow").to_owned();
    assert!(line("h2o-tokens").contains("; needs B = 1 (--flow-block)"), "{}", line("h2o-tokens"));
    assert!(line("lserve").contains("; needs B a multiple of 16 (--flow-block)"), "{}", line("lserve"));
    let file = "; needs --flow-parameters FILE, from `tilewright flow calibrate q-filter`";
    assert!(line("q-filter").ends_with(file), "{}", line("q-filter"));
    assert!(!line("quest").contains("needs"), "{}", line("quest"));
}

/// Every flow without parameters runs by its name alone: the default size of blocks is the flow's
/// own.
#[test]
fn flows_run_with_their_own_default_block() {
    let generate =
        ["generate", "--model", MODEL, "--prompt", TEXT, "--max-new-tokens", "3", "--device", "cpu:2", "--flow"];
    for flow in ["h2o-tokens", "lserve", "quest"] {
        assert!(!success(&[&generate[..], &[flow]].concat()).trim().is_empty(), "{flow}");
    }
    for algorithm in tilewright_flow::algorithms::ALL {
        assert!(success(&["flow", "show", algorithm.name]).starts_with(algorithm.name));
    }
}

#[test]
fn what_cannot_be_shown_is_one_line() {
    let line = failure(&["flow", "show", "quests"]);
    assert!(line.starts_with("error: there is no flow `quests`; there are block-sparse, "), "{line}");
    let line = failure(&["flow", "show", "lserve", "--block", "8"]);
    assert!(line.contains("asks for B a multiple of 16, but the model has 8 and 16"), "{line}");
    let line = failure(&["flow", "show", "quest", "--group", "0"]);
    assert!(line.contains("extent G is 0 or too large"), "{line}");
    // Extents are bounded, so that no product of them wraps.
    let line = failure(&["flow", "show", "quest", "--group", "1000000000", "--head-dim", "1000000000"]);
    assert!(line.contains("1000000000 is not in 0..=65536"), "{line}");
}

/// Numbers that leave nothing to measure are refused before a model is read.
#[test]
fn keeps_refuses_zeros() {
    for flag in ["--block", "--steps", "--tokens", "--budgets"] {
        let output = tilewright(&["flow", "keeps", "--model", MODEL, flag, "0"]);
        let text = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(2), "{flag}: {text}");
        assert!(text.contains("0 is not in 1.."), "{flag}: {text}");
    }
}

#[test]
fn a_flow_generates_on_the_host() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/models/tiny-llama");
    let generate =
        ["generate", "--model", model, "--prompt", "In the beginning", "--max-new-tokens", "12", "--device", "cpu:2"];
    let dense = success(&generate);
    assert_eq!(success(&[&generate[..], &["--flow", "quest", "--flow-budget", "64"]].concat()), dense);
    // Blocks of four tokens, two of them chosen: another text, but a text.
    let few = success(&[&generate[..], &["--flow", "quest", "--flow-budget", "2", "--flow-block", "4"]].concat());
    assert!(!few.trim().is_empty());
    for (wrong, line) in [
        (&["--flow", "quests"][..], "there is no flow `quests`; there are block-sparse, "),
        (&["--flow", "quest", "--flow-budget", "0"], "budget: top_k is 0; give at least 1"),
        (&["--flow", "quest", "--flow-block", "5"], "pages of 16 tokens are not whole blocks of 5"),
        (&["--flow", "q-filter"], "flow `q-filter` has parameters; give --flow-parameters"),
        (&["--flow", "quest", "--flow-parameters", "x"], "flow `quest` has no parameters; leave `x` out"),
        (&["--flow", "q-filter", "--flow-parameters", "none/x"], "flow parameters `none/x` cannot be read"),
    ] {
        let error = failure(&[&generate[..], wrong].concat());
        assert!(error.contains(line), "{error}");
    }
}

#[test]
fn what_a_flow_chose_is_written_and_drawn() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/models/tiny-llama");
    let folder = tempfile::tempdir().expect("a folder");
    let [file, svg] =
        ["chosen.jsonl", "map.svg"].map(|name| folder.path().join(name).to_str().expect("a path").to_owned());
    let prompt = "In the beginning God created the heaven and the earth. And the earth was without form, and void";
    let mut generate =
        vec!["generate", "--model", model, "--prompt", prompt, "--max-new-tokens", "5", "--device", "cpu:2"];
    generate.extend(["--flow", "quest", "--flow-budget", "2", "--flow-block", "4", "--dump-selection", &file]);
    success(&generate);
    let text = std::fs::read_to_string(&file).expect("the choices");
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    // Four layers of two key heads; the first new token is the prompt's.
    assert_eq!(lines.len(), 4 * 4 * 2);
    let newest = |line: &serde_json::Value| line["position"].as_u64().expect("a position") / 4;
    for line in &lines {
        let blocks: Vec<u64> = line["blocks"].as_array().expect("blocks").iter().filter_map(|b| b.as_u64()).collect();
        assert_eq!((blocks.len(), blocks[0], blocks[3]), (4, 0, newest(line)), "{line}");
    }
    assert_eq!(success(&["flow", "map", &file, "--layer", "1", "--svg", &svg]), "");
    let image = std::fs::read_to_string(&svg).expect("the image");
    assert!(image.starts_with("<svg ") && image.ends_with("</svg>\n"));
    for part in ["<title>", "position of the token that attends", "prefers-color-scheme: dark"] {
        assert!(image.contains(part), "the picture has no `{part}`");
    }
    assert!(
        failure(&["flow", "map", &file, "--layer", "4", "--svg", &svg])
            .contains("has no selection of that request, layer")
    );
}

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/tiny-llama");
const TEXT: &str = "In the beginning God created the heaven and the earth. And the earth was without form, and void";

/// Files of parameters are written, taken, and refused by what is wrong with them.
#[test]
fn parameters_are_calibrated_and_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a path").to_owned();
    let calibrate = |name: &str, to: &str| {
        success(&["flow", "calibrate", name, "--model", MODEL, "--prompt", TEXT, "--out", to]);
        std::fs::read(to).expect("the file")
    };
    let generate = |flow: &str, file: &str| {
        let all = ["generate", "--model", MODEL, "--prompt", TEXT, "--max-new-tokens", "8", "--device", "cpu:2"];
        let flow = ["--flow", flow, "--flow-parameters", file, "--flow-block", "4", "--flow-budget"];
        [&all[..], &flow[..]].concat().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let run = |flow: &str, file: &str, budget: &str, then: &dyn Fn(&[&str]) -> String| {
        let args = [generate(flow, file), vec![budget.to_owned()]].concat();
        then(&args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let dense =
        success(&["generate", "--model", MODEL, "--prompt", TEXT, "--max-new-tokens", "8", "--device", "cpu:2"]);
    for flow in ["q-filter", "double-sparsity"] {
        let file = path(flow);
        let first = calibrate(flow, &file);
        assert_eq!(calibrate(flow, &file), first, "the same each time");
        assert_eq!(run(flow, &file, "64", &success), dense, "{flow}");
        assert!(!run(flow, &file, "2", &success).trim().is_empty(), "{flow}");
    }
    let q_filter = path("q-filter");
    let broken = path("broken");
    let refused = |flow: &str, file: &str| run(flow, file, "2", &failure);
    assert!(refused("double-sparsity", &q_filter).contains("has the parameters of flow `q-filter`"));
    assert!(
        failure(&["flow", "calibrate", "quest", "--model", MODEL, "--prompt", TEXT, "--out", &broken])
            .contains("flow `quest` has no parameters")
    );
    assert!(!std::path::Path::new(&broken).exists(), "a file is whole or absent");
    for (tensors, line) in broken_files(&std::fs::read(&q_filter).expect("the file")) {
        std::fs::write(&broken, tensors).expect("a file");
        let error = refused("q-filter", &broken);
        assert!(error.contains(line), "{error}");
    }
}

/// Files of which one thing is wrong, and what is said of it.
fn broken_files(file: &[u8]) -> Vec<(Vec<u8>, &'static str)> {
    use safetensors::tensor::{TensorView, serialize};
    use safetensors::{Dtype, SafeTensors};
    let whole = SafeTensors::deserialize(file).expect("a file");
    let all = whole.tensors().into_iter().filter(|(name, _)| name != "layers.3.filter");
    let last = whole.tensor("layers.3.filter").expect("a layer");
    let nan = f32::NAN.to_le_bytes();
    let data = last.data();
    let shape = last.shape().to_vec();
    let spoiled = [&data[..8], &nan, &data[12..]].concat();
    let flat = [1, data.len() / 4];
    let with = |name: &str, dtype, shape: &[usize], data: &[u8]| {
        let view = TensorView::new(dtype, shape.to_vec(), data).expect("a tensor");
        let others = whole.tensors().into_iter().filter(|(name, _)| name != "layers.3.filter");
        let others = others.map(|(name, view)| (name, view.shape().to_vec(), view.dtype(), view.data().to_vec()));
        let others: Vec<_> = others.collect();
        let others = others.iter().map(|(name, shape, dtype, data)| {
            (name.clone(), TensorView::new(*dtype, shape.clone(), data).expect("a tensor"))
        });
        serialize(others.chain([(name.to_owned(), view)]), None).expect("a file")
    };
    vec![
        (serialize(all, None).expect("a file"), "lacks tensor `layers.3.filter`"),
        (
            with("layers.4.filter", Dtype::F32, &shape, data),
            "has a tensor `layers.4.filter`, which flow `q-filter` does not know",
        ),
        (with("layers.3.filter", Dtype::F32, &flat, data), "takes F32 [2, 1, "),
        (with("layers.3.filter", Dtype::I32, &shape, data), "is I32 [2, 1, "),
        (with("layers.3.filter", Dtype::F32, &shape, &spoiled), "not a finite number, at 2"),
        (file[..file.len() - 1].to_vec(), "are no safetensors file"),
        (b"{}".to_vec(), "are no safetensors file"),
    ]
}

#[test]
fn a_flow_that_is_unknown_is_told_before_anything_is_tuned_or_timed() {
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/models/shapes/llama-3.2-1b.json");
    let args = ["--suite", "decode", "--config", config, "--random-weights", "--device", "sim", "--flow", "quests"];
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("tuned.jsonl");
    let tune = ["tune", "--out", out.to_str().expect("a path")];
    for command in [&tune[..], &["bench"]] {
        let error = failure(&[command, &args[..]].concat());
        assert!(error.contains("there is no flow `quests`"), "{command:?}: {error}");
    }
    assert!(!out.exists(), "a file is begun when there is something to keep");
}

/// Several prompts with a flow: each gets the text that it gets alone, and what was chosen is told
/// apart.
#[test]
fn prompts_are_batched_with_a_flow() {
    let folder = tempfile::tempdir().expect("a folder");
    let [file, svg] =
        ["chosen.jsonl", "map.svg"].map(|name| folder.path().join(name).to_str().expect("a path").to_owned());
    let flow = [
        "--model",
        MODEL,
        "--max-new-tokens",
        "6",
        "--device",
        "cpu:2",
        "--flow",
        "running-average",
        "--flow-budget",
        "2",
    ];
    let flow = [&["generate", "--json"], &flow[..], &["--flow-block", "4"]].concat();
    let ids = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["token_ids"].clone();
    let alone = [TEXT, "And God said"].map(|prompt| ids(&success(&[&flow[..], &["--prompt", prompt]].concat())));
    let both = ["--prompt", TEXT, "--prompt", "And God said", "--dump-selection", &file];
    let text = success(&[&flow[..], &both].concat());
    for line in text.lines() {
        let object: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let prompt = object["prompt"].as_u64().expect("a number") as usize;
        assert_eq!(object["token_ids"], alone[prompt], "{line}");
    }
    assert_eq!(text.lines().count(), 2);
    let chosen = std::fs::read_to_string(&file).expect("the choices");
    let of = |request: usize| chosen.lines().filter(|line| line.contains(&format!("\"request\":{request},"))).count();
    // Five steps of four layers and two key heads each.
    assert_eq!([of(0), of(1)], [40, 40]);
    success(&["flow", "map", &file, "--request", "1", "--svg", &svg]);
    assert!(failure(&["flow", "map", &file, "--request", "2", "--svg", &svg]).contains("no selection of that request"));
}
