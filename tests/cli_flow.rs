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
    // Two rows of 128 numbers in bf16 for each block, and the scores between the two groups, in f32.
    assert!(text.contains("a block reads 512 B, writes 4 B"), "{text}");
    assert!(success(&["flow", "show", "quest", "--unfused"]).lines().count() > text.lines().count());
    assert!(success(&["flow", "show", "quest", "--dot"]).starts_with("digraph \"quest\" {"));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("quest.svg");
    let path = file.to_str().expect("a path");
    assert_eq!(success(&["flow", "show", "quest", "--svg", path]), "");
    let svg = std::fs::read_to_string(&file).expect("the image");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
}

#[test]
fn what_cannot_be_shown_is_one_line() {
    let line = failure(&["flow", "show", "quests"]);
    assert!(line.starts_with("error: there is no flow `quests`; there are block-sparse, "), "{line}");
    let line = failure(&["flow", "show", "lserve", "--block", "8"]);
    assert!(line.contains("asks for B a multiple of 16, but the model has 8 and 16"), "{line}");
    let line = failure(&["flow", "show", "quest", "--group", "0"]);
    assert!(line.contains("extent G is 0 or too large"), "{line}");
}

#[test]
fn a_flow_generates_on_the_host() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/models/tiny-llama");
    let generate =
        ["generate", "--model", model, "--prompt", "In the beginning", "--max-new-tokens", "12", "--device", "cpu:2"];
    let dense = success(&generate);
    assert_eq!(success(&[&generate[..], &["--flow", "quest", "--budget", "64"]].concat()), dense);
    // Blocks of four tokens, two of them chosen: another text, but a text.
    let few = success(&[&generate[..], &["--flow", "quest", "--budget", "2", "--flow-block", "4"]].concat());
    assert!(!few.trim().is_empty());
    for (wrong, line) in [
        (&["--flow", "quests"][..], "there is no flow `quests`; there are block-sparse, "),
        (&["--flow", "quest", "--budget", "0"], "budget: top_k is 0; give at least 1"),
        (&["--flow", "quest", "--flow-block", "5"], "pages of 16 tokens are not whole blocks of 5"),
        (&["--flow", "q-filter"], "given for 0 layers"),
        (&["--flow", "quest", "--logprobs", "1", "--json"], "leave the flow out"),
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
    generate.extend(["--flow", "quest", "--budget", "2", "--flow-block", "4", "--dump-selection", &file]);
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
    assert!(failure(&["flow", "map", &file, "--layer", "4", "--svg", &svg]).contains("has no selection of that layer"));
}
