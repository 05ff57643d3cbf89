//! The interpreter's logits of every family against those of transformers.

use std::fs;
use std::path::PathBuf;

use crate::checkpoint::{cases, config, error_of, folder, graph, weights};
use serde_json::{Value, json};
use tilewright_graph::models;

/// Relative L2 distance that is accepted. The references were computed in float32, whose rounding,
/// 6e-8 for each operation, adds up over some hundred sums to about 1e-6; the interpreter's own
/// error is below 1e-12.
const BOUND: f64 = 1e-5;

/// Folders of checkpoints with references.
fn folders() -> Vec<PathBuf> {
    let small = ["tests/data/families", "graph/tests/data/families"].map(folder);
    let entries = small.into_iter().flat_map(|small| fs::read_dir(small).expect("families"));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut folders: Vec<PathBuf> = paths.filter(|path| path.is_dir()).collect();
    folders.extend(["models/tiny-llama", "models/tiny-qwen3"].map(folder));
    folders
}

#[test]
fn logits_of_every_family_equal_the_reference() {
    let folders = folders();
    assert!(folders.len() >= 13);
    for folder in folders {
        let error = error_of(&graph(&folder), &weights(&folder), &cases(&folder), usize::MAX);
        println!("{}: relative L2 error {error:.2e}", folder.display());
        assert!(error <= BOUND, "{}: {error:.2e}", folder.display());
    }
}

#[test]
fn every_family_of_the_list_has_a_checkpoint() {
    let tried: Vec<Value> = folders().iter().map(|folder| config(folder)["model_type"].clone()).collect();
    for family in models::families() {
        assert!(tried.contains(&json!(family)), "{family} has no checkpoint with a reference");
    }
}

#[test]
fn a_prompt_in_steps_gives_the_reference_too() {
    let folder = folder("tests/data/families/gemma2");
    let graph = graph(&folder);
    let weights = weights(&folder);
    let cases = cases(&folder);
    let whole = error_of(&graph, &weights, &cases, usize::MAX);
    for step in [1, 7, 74] {
        assert_eq!(error_of(&graph, &weights, &cases, step), whole, "steps of {step}");
    }
}

/// The bound of the test above notices each of these: a model computed slightly wrong is far
/// outside of it.
#[test]
fn a_key_that_is_ignored_shows() {
    let full = "full_attention";
    let sliding = "sliding_attention";
    let changes = [
        ("tests/data/families/gemma2", "attn_logit_softcapping", json!(null)),
        ("tests/data/families/gemma2", "final_logit_softcapping", json!(3.01)),
        ("tests/data/families/gemma2", "query_pre_attn_scalar", json!(25)),
        ("tests/data/families/gemma2", "sliding_window", json!(9)),
        ("tests/data/families/gemma2", "layer_types", json!([full, sliding, full, sliding])),
        ("tests/data/families/gemma2", "rms_norm_eps", json!(1e-2)),
        ("tests/data/families/gemma2", "rope_parameters", json!({"rope_theta": 1000.0, "rope_type": "default"})),
        ("tests/data/families/mistral-gqa3-f16", "sliding_window", json!(2)),
    ];
    for (path, key, value) in changes {
        let folder = folder(path);
        let mut config = config(&folder);
        config[key] = value;
        let graph = models::graph(&config).expect("a sound configuration");
        let error = error_of(&graph, &weights(&folder), &cases(&folder), usize::MAX);
        assert!(error > 10.0 * BOUND, "{path} with another {key}: {error:.2e} would pass unnoticed");
    }
}
