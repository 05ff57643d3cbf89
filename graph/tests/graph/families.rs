//! The interpreter's logits of every family against those of transformers.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;

use crate::checkpoint::{cases, cases_of, config, error_of, folder, weights};
use half::bf16;
use serde_json::{Value, json};
use tilewright_graph::axis::{Axis, Type};
use tilewright_graph::graph::{Body, HeadOrder, Parts, ValueId};
use tilewright_graph::models::{self, Accept, KNOWN, Model, keys::Keys};
use tilewright_graph::op::{NormKind, Op, RopePairs, RouteKind};
use tilewright_graph::passes::{clean, fold_factors, halve_rotations, repeat_norms};
use tilewright_graph::{Graph, GraphErrors};

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

/// The graph of a configuration, as the reference computed it: that of gpt-oss had been loaded in
/// bf16, which rounded the frequencies too.
fn graph(config: &Value) -> Graph {
    let graph = models::graph(config).expect("a sound configuration of a family of the list");
    if config["model_type"] != "gpt_oss" {
        return graph;
    }
    let mut parts = Parts::from(graph);
    let frequencies = parts.ropes.iter_mut().flat_map(|table| &mut table.frequencies);
    frequencies.for_each(|frequency| *frequency = bf16::from_f32(*frequency).to_f32());
    Graph::check(parts).expect("a valid graph")
}

#[test]
fn logits_of_every_family_equal_the_reference() {
    let folders = folders();
    assert!(folders.len() >= 28);
    for folder in folders {
        let error = error_of(&graph(&config(&folder)), &weights(&folder), &cases(&folder), usize::MAX);
        println!("{}: relative L2 error {error:.2e}", folder.display());
        assert!(error <= BOUND, "{}: {error:.2e}", folder.display());
    }
}

/// The rotation of texts within the length of the first training differs from that of longer ones.
#[test]
fn a_graph_for_short_texts_has_the_short_factors() {
    let folder = folder("graph/tests/data/families/phi4-longrope");
    let within = |max_context: Option<usize>| {
        let mut keys = Keys::new("", config(&folder).as_object().cloned().expect("an object"));
        let model = Model::read(&mut keys, &Accept { max_context, ..Accept::ALL }).expect("a family of the list");
        assert_eq!(keys.finish(KNOWN), []);
        model.graph().expect("a graph")
    };
    let short = cases_of(&folder, "short.safetensors");
    let errors = [Some(10), Some(32), Some(33), None]
        .map(|max_context| error_of(&within(max_context), &weights(&folder), &short, usize::MAX));
    assert!(errors[..2].iter().all(|error| *error <= BOUND), "{errors:?}");
    assert!(errors[2..].iter().all(|error| *error > 10.0 * BOUND), "{errors:?}");
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
    let graph = graph(&config(&folder));
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
        shows(path, &[(key, value)]);
    }
}

/// Fails where a configuration with other values would pass for the reference.
fn shows(path: &str, changes: &[(&str, Value)]) {
    let folder = folder(path);
    let mut config = config(&folder);
    for (key, value) in changes {
        config[*key] = value.clone();
    }
    let error = error_of(&graph(&config), &weights(&folder), &cases(&folder), usize::MAX);
    assert!(error > 10.0 * BOUND, "{path} with {changes:?}: {error:.2e} would pass unnoticed");
}

#[test]
fn a_feature_that_is_left_out_shows() {
    let [full, sliding] = ["full_attention", "sliding_attention"];
    let theta = |theta: f64| json!({"rope_theta": theta, "rope_type": "default"});
    let partial = |part: f64| json!({"rope_theta": 10000.0, "rope_type": "default", "partial_rotary_factor": part});
    let changed = |path: &str, key: &str, value: Value| {
        let mut rope = config(&folder(&format!("graph/tests/data/families/{path}")))["rope_parameters"].clone();
        rope[key] = value;
        rope
    };
    let long = "phi4-longrope";
    let changes = [
        ("mistral-window", "sliding_window", json!(9)),
        ("mistral-window", "sliding_window", json!(null)),
        ("olmo2", "rms_norm_eps", json!(1e-2)),
        ("olmo2", "rope_parameters", theta(9000.0)),
        ("granite", "embedding_multiplier", json!(12.5)),
        ("granite", "attention_multiplier", json!(0.12)),
        ("granite", "residual_multiplier", json!(0.221)),
        ("granite", "logits_scaling", json!(4.01)),
        ("smollm3", "no_rope_layers", json!([1, 1, 1, 1, 1])),
        ("smollm3", "no_rope_layers", json!([1, 1, 0, 1, 1])),
        ("smollm3", "rope_parameters", theta(1e4)),
        ("phi3", "sliding_window", json!(25)),
        (long, "rope_parameters", changed(long, "attention_factor", json!(1.0))),
        (long, "rope_parameters", changed(long, "long_factor", json!(vec![2.0; 12]))),
        (long, "max_position_embeddings", json!(1024)),
        (long, "max_position_embeddings", json!(32)),
        ("gemma3", "sliding_window", json!(9)),
        ("gemma3", "query_pre_attn_scalar", json!(17)),
        ("gemma3", "final_logit_softcapping", json!(30.0)),
        ("gemma3", "layer_types", json!([sliding, full, sliding, sliding, full, sliding])),
        ("gemma3", "rope_parameters", json!({full: theta(1e4), sliding: theta(1e4)})),
        ("gemma3", "rope_parameters", json!({full: theta(1e6), sliding: theta(1e6)})),
        ("glm4", "rope_parameters", partial(1.0)),
        ("glm4", "rms_norm_eps", json!(1e-3)),
        ("deepseek-v2", "routed_scaling_factor", json!(1.001)),
        ("deepseek-v2", "num_experts_per_tok", json!(1)),
        ("deepseek-v3", "rope_interleave", json!(false)),
        ("deepseek-v3", "norm_topk_prob", json!(false)),
        ("deepseek-v3", "topk_group", json!(2)),
        ("qwen3-next", "norm_topk_prob", json!(false)),
        ("qwen3-next", "rope_parameters", partial(0.5)),
        ("qwen3-next", "rms_norm_eps", json!(1e-3)),
        ("cohere2", "logit_scale", json!(0.2501)),
        ("cohere2", "sliding_window", json!(9)),
        ("cohere2", "layer_norm_eps", json!(1e-3)),
        ("cohere2", "layer_types", json!([sliding, sliding, full, sliding])),
        ("starcoder2", "norm_epsilon", json!(1e-3)),
        ("starcoder2", "sliding_window", json!(8)),
        ("mixtral", "num_experts_per_tok", json!(1)),
        ("mixtral", "num_experts_per_tok", json!(3)),
        ("qwen2-moe", "num_experts_per_tok", json!(3)),
        ("qwen2-moe", "norm_topk_prob", json!(true)),
        ("qwen3-moe", "norm_topk_prob", json!(false)),
        ("qwen3-moe", "num_experts_per_tok", json!(1)),
        ("gpt-oss", "swiglu_alpha", json!(1.71)),
        ("gpt-oss", "swiglu_limit", json!(0.5)),
        ("gpt-oss", "sliding_window", json!(17)),
        ("gpt-oss", "num_experts_per_tok", json!(1)),
        ("gpt-oss", "rope_parameters", changed("gpt-oss", "truncate", json!(true))),
        ("gpt-oss", "rope_parameters", changed("gpt-oss", "attention_factor", json!(1.0))),
    ];
    for (path, key, value) in changes {
        shows(&format!("graph/tests/data/families/{path}"), &[(key, value)]);
    }
    // One key stands in two places.
    let halved = [("partial_rotary_factor", json!(0.5)), ("rope_parameters", partial(0.5))];
    shows("graph/tests/data/families/phi3", &halved);
}

/// A change of one op of a family's graph.
type Change = fn(&mut Op);

/// What no key says: each family computes it in its own way.
#[test]
fn a_block_of_another_family_shows() {
    let changes: [(&str, Change); 8] = [
        ("olmo2", |op| {
            if let Op::Attention { scale, .. } = op {
                *scale *= 1.01;
            }
        }),
        ("glm4", |op| {
            if let Op::Rope { pairs, .. } = op {
                *pairs = RopePairs::Halves;
            }
        }),
        ("cohere2", |op| {
            if let Op::Rope { pairs, .. } = op {
                *pairs = RopePairs::Halves;
            }
        }),
        ("cohere2", |op| {
            if let Op::Norm { kind, .. } = op {
                *kind = NormKind::Rms { unit_offset: false };
            }
        }),
        ("starcoder2", |op| {
            if let Op::Norm { bias, .. } | Op::Linear { bias, .. } = op {
                *bias = None;
            }
        }),
        ("mixtral", |op| {
            if let Op::Route { kind, .. } = op {
                *kind = RouteKind::SoftmaxThenTopK { renormalise: false };
            }
        }),
        ("gpt-oss", |op| {
            if let Op::Attention { sinks, .. } = op {
                *sinks = None;
            }
        }),
        ("gpt-oss", |op| {
            if let Op::ExpertLinear { bias, .. } = op {
                *bias = None;
            }
        }),
    ];
    for (path, change) in changes {
        let folder = folder(&format!("graph/tests/data/families/{path}"));
        let mut parts = Parts::from(graph(&config(&folder)));
        for node in &mut parts.nodes {
            if let Body::Single(op) = &mut node.body {
                change(op);
            }
        }
        let changed = Graph::check(parts).expect("a valid graph");
        let error = error_of(&changed, &weights(&folder), &cases(&folder), usize::MAX);
        assert!(error > 10.0 * BOUND, "{path}: {error:.2e} would pass unnoticed");
    }
}

/// Every rotation pairs the halves of a head after the pass, and the logits are what they were, but
/// for the order of the sums of scores.
#[test]
fn halved_rotations_keep_the_logits() {
    let changed = keeps_the_logits(halve_rotations, |after| {
        let is_halved = |op: &Op| {
            !matches!(op, Op::Rope { pairs, table, .. }
            if *pairs != RopePairs::Halves || after.parts().ropes[table.index()].rotated() as u64 != head_dim(after))
        };
        let count = |is: fn(&Op) -> bool| after.steps().filter(|step| is(step.op)).count();
        let rotations = count(|op| matches!(op, Op::Rope { .. }));
        let appends = count(|op| matches!(op, Op::CacheAppend { .. }));
        // Parts of queries and keys keep their rotations.
        count(|op| matches!(op, Op::Concat { .. } | Op::Slice { .. })) > 0
            || (after.steps().all(|step| is_halved(step.op)) && rotations == 2 * appends)
    });
    assert!(changed >= 4, "{changed} families have other rotations");
}

/// Factors of what a block adds and of logits go, and the logits are what they were. Those of a
/// router's weights stay.
#[test]
fn folded_factors_keep_the_logits() {
    let changed = keeps_the_logits(fold_factors, |after| {
        let kinds: Vec<&Type> = after.steps().flat_map(|step| step.results).collect();
        let is_of_router = |x: ValueId| kinds[x.index()].shape.0.last().is_some_and(|dim| dim.axis == Axis::Chosen);
        !after.steps().any(|step| matches!(*step.op, Op::Scale { x, .. } if !is_of_router(x)))
    });
    assert!(changed >= 2, "{changed} families have factors");
}

/// No norm is read by products with other operands after the pass, and the logits are what they
/// were.
#[test]
fn repeated_norms_keep_the_logits() {
    let changed = keeps_the_logits(repeat_norms, |after| {
        let norms = after.steps().filter(|step| matches!(step.op, Op::Norm { .. }));
        norms.map(|norm| norm.first).all(|norm| {
            let readers = after.steps().filter(|step| step.op.operands().iter().any(|(_, id)| *id == norm));
            let groups: HashSet<String> =
                readers.map(|step| format!("{} {:?}", step.op.name(), step.op.operands())).collect();
            groups.len() <= 1
        })
    });
    assert!(changed >= 5, "{changed} families share norms");
}

/// Runs a pass over the graph of each family: the result is as `is_right` wants it, and its logits
/// are the reference's. The number of graphs that the pass changes.
fn keeps_the_logits(pass: fn(&Graph) -> Result<Graph, GraphErrors>, is_right: impl Fn(&Graph) -> bool) -> usize {
    let is_changed = |folder: &PathBuf| {
        let before = graph(&config(folder));
        let after = pass(&before).expect("a valid graph");
        assert!(is_right(&after), "{}: {after}", folder.display());
        let error = error_of(&after, &weights(folder), &cases(folder), usize::MAX);
        assert!(error <= BOUND, "{}: {error:.2e}", folder.display());
        after != clean(&before).expect("a valid graph").graph
    };
    folders().iter().filter(|folder| is_changed(folder)).count()
}

fn head_dim(graph: &Graph) -> u64 {
    graph.extent(&Axis::HeadDim).expect("a decoder has heads")
}

/// Orders that are no rearrangement of a weight's rows are refused with numbers.
#[test]
fn other_orders_of_rows_are_refused() {
    let folder = folder("graph/tests/data/families/glm4");
    let sound = halve_rotations(&graph(&config(&folder))).expect("a valid graph");
    let place = sound.parts().weights.iter().position(|weight| weight.order.is_some()).expect("a weight in order");
    let refused = |change: fn(&mut HeadOrder)| {
        let mut parts = sound.parts().clone();
        change(parts.weights[place].order.as_mut().expect("an order"));
        Graph::check(parts).expect_err("refused").to_string()
    };
    let changes: [fn(&mut HeadOrder); 4] = [
        |order| order.head_dim = 0,
        |order| order.head_dim = 7,
        |order| order.rotated = order.head_dim + 2,
        |order| order.head_dim *= 1024,
    ];
    for change in changes {
        let error = refused(change);
        assert!(error.contains("order") && error.contains("whole heads on the first axis"), "{error}");
    }
}
