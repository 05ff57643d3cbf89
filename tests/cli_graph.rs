//! `tilewright graph show`: the ops of a checkpoint's model with their axes, as text and as a
//! picture.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn graph(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tilewright"))
        .args(["graph", "show"])
        .args(args)
        .output()
        .expect("the program starts")
}

fn model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

#[test]
fn ops_are_printed_with_their_axes() {
    let shown = text(&graph(&["--model", model("models/tiny-qwen3").to_str().expect("UTF-8")]));
    let norms = shown.lines().filter(|line| line.contains("self_attn.q_norm.weight")).count();
    let attentions: Vec<&str> = shown.lines().filter(|line| line.contains(" = attention ")).collect();
    assert!(norms > 0 && attentions.len() == norms, "{shown}");
    assert!(attentions.iter().all(|line| line.contains("f32[rows, heads ")), "{attentions:?}");
}

/// A family that no back end runs yet has a graph, which needs no weights.
#[test]
fn gemma_2_has_soft_caps_and_windows() {
    let shown = text(&graph(&["--model", model("tests/data/families/gemma2").to_str().expect("UTF-8")]));
    assert!(shown.contains("soft_cap") && shown.contains("window"), "{shown}");
}

#[test]
fn a_picture_is_written_whole_and_a_refusal_leaves_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let picture = folder.path().join("graph.svg");
    let svg = picture.to_str().expect("UTF-8");
    text(&graph(&["--model", model("models/tiny-llama").to_str().expect("UTF-8"), "--svg", svg]));
    let drawn = fs::read_to_string(&picture).expect("a picture");
    assert!(drawn.starts_with("<svg") && drawn.trim_end().ends_with("</svg>"));

    fs::write(folder.path().join("config.json"), r#"{"model_type": "gpt2"}"#).expect("a file");
    let none = folder.path().join("none.svg");
    let refused = graph(&["--model", folder.path().to_str().expect("UTF-8"), "--svg", none.to_str().expect("UTF-8")]);
    let line = String::from_utf8(refused.stderr).expect("UTF-8");
    assert_eq!(refused.status.code(), Some(2), "{line}");
    assert_eq!(
        line,
        "error: configuration cannot be used: model_type is \"gpt2\"; the families known are llama, mistral, qwen2, qwen3, gemma2, olmo2, \
         granite, smollm3, phi3, gemma3_text, glm4, cohere2, starcoder2, mixtral, qwen2_moe, qwen3_moe, gpt_oss, \
         deepseek_v2, deepseek_v3, qwen3_next\n"
    );
    assert!(!none.exists());
}
