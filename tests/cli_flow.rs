//! The command that shows flows: `flow list`, `flow show`.

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
