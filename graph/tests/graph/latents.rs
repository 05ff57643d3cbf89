//! Attention to latent vectors computes what expanded keys and values give.

use serde_json::{Value, json};
use tilewright_graph::axis::Axis;
use tilewright_graph::op::Op;
use tilewright_graph::passes::absorb_latents;
use tilewright_graph::{Graph, models};

use super::checkpoint::{cases, config, error_of, folder, weights};

const CHECKPOINTS: [&str; 2] = ["graph/tests/data/families/deepseek-v2", "graph/tests/data/families/deepseek-v3"];

fn absorbed(config: &Value) -> Graph {
    absorb_latents(&models::graph(config).expect("a graph")).expect("a valid graph")
}

#[test]
fn logits_by_latent_vectors_equal_the_reference() {
    for name in CHECKPOINTS {
        let folder = folder(name);
        let (weights, cases) = (weights(&folder), cases(&folder));
        let graph = absorbed(&config(&folder));
        let whole = error_of(&graph, &weights, &cases, usize::MAX);
        assert!(whole <= 1e-5, "{name}: {whole:.2e}");
        for step in [1, 5] {
            assert_eq!(error_of(&graph, &weights, &cases, step), whole, "{name} in steps of {step}");
        }
    }
}

#[test]
fn a_cache_holds_one_latent_vector_of_a_token_and_what_rotates() {
    for name in CHECKPOINTS {
        let config = config(&folder(name));
        let number = |key: &str| config[key].as_u64().expect("a number");
        let layers = number("num_hidden_layers") as usize;
        let graph = absorbed(&config);
        let mut appends = 0;
        for step in graph.steps() {
            let Op::CacheAppend { v, .. } = step.op else { continue };
            let dims = &step.results[0].shape.0;
            assert_eq!((dims[1].size(), v), (Some(1), &None));
            assert_eq!(dims[2].size(), Some(number("kv_lora_rank") + number("qk_rope_head_dim")));
            appends += 1;
        }
        assert_eq!(appends, layers);
        // No product has keys or values of all heads.
        let expanded =
            |op: &Op| matches!(op, Op::Linear { out, .. } if out[0].axis == Axis::KvHeads && out[0].size() > Some(1));
        assert!(!graph.steps().any(|step| expanded(step.op)));
        assert_eq!(graph.steps().filter(|step| matches!(step.op, Op::HeadLinear { .. })).count(), 2 * layers);
        // The result has nothing more to absorb.
        assert_eq!(absorb_latents(&graph).expect("a valid graph"), graph);
    }
}

/// Where something else reads a part, or there are biases, keys and values stay expanded.
#[test]
fn other_graphs_stay_as_they_are() {
    let llama = json!({
        "model_type": "llama", "vocab_size": 32, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1,
        "num_attention_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
    });
    let plain = models::graph(&llama).expect("a graph");
    assert!(
        !absorb_latents(&plain).expect("a valid graph").steps().any(|step| matches!(step.op, Op::HeadLinear { .. }))
    );
    let folder = folder(CHECKPOINTS[0]);
    let mut parts = models::graph(&config(&folder)).expect("a graph").parts().clone();
    // An output reads the expanded keys and values.
    let expanded =
        |op: &Op| matches!(op, Op::Linear { out, .. } if out[0].axis == Axis::KvHeads && out[0].size() > Some(1));
    let read = Graph::check(parts.clone()).expect("valid").steps().find(|step| expanded(step.op)).expect("one").first;
    parts.outputs.push(read);
    let kept = absorb_latents(&Graph::check(parts).expect("valid")).expect("a valid graph");
    assert_eq!(kept.steps().filter(|step| expanded(step.op)).count(), 1);
}
