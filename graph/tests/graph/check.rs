//! Refusals of the check, their texts, and its robustness against hostile text.

use crate::checkpoint::{folder, graph};
use proptest::prelude::*;
use serde_json::{Value, json};
use tilewright_graph::axis::{Axis, Dim};
use tilewright_graph::build::{Builder, Sizes};
use tilewright_graph::graph::{Body, Fused, Graph, Part, Parts, RopeTable, ValueId, Weight};
use tilewright_graph::interpret::{CheckpointTensor, Interpreter, Sequence};
use tilewright_graph::models;
use tilewright_graph::op::{BinaryKind, InputKind, Op};

const SIZES: Sizes = Sizes { hidden: 8, heads: 4, kv_heads: 2, head_dim: 4, inner: 12, vocab: 32 };

fn builder() -> Builder {
    Builder::new("test", SIZES, 1e-6)
}

/// The error of a builder whose last op does not fit.
fn refusal(build: impl for<'b> FnOnce(&'b Builder)) -> String {
    let builder = builder();
    build(&builder);
    builder.finish(&[]).expect_err("an op does not fit").to_string()
}

#[test]
fn an_error_names_op_operand_and_both_shapes() {
    let text = refusal(|builder| {
        let b = builder.root();
        let x = b.embed(builder.tokens(), "embed");
        let q = b.project(x, "q", [Dim::known(Axis::Heads, 4), Dim::known(Axis::HeadDim, 4)]);
        b.add(x, q);
    });
    insta::assert_snapshot!(text, @"graph `test` is not valid: add(a v1, b v2): operand `b` is f32[rows, heads 4, head_dim 4], which does not fit `a` f32[rows, hidden 8]: its axes are those of `a`, or the first of them, but for last axes of extent 1");
    let text = refusal(|builder| {
        let b = builder.root();
        let x = builder.root().embed(builder.tokens(), "embed");
        let weight = b.weight("w", [12, 9]);
        let id = tilewright_graph::build::Value::from(x).id().expect("an op");
        b.op(Op::Linear { x: id, weight, bias: None, out: vec![Dim::known(Axis::Inner, 12)] });
    });
    insta::assert_snapshot!(text, @"graph `test` is not valid: linear(x v1) weight w: operand `x` is f32[rows, hidden 8], which does not fit weight `w` [12, 9]: a weight is outputs by contracted elements of `x`");
    let text = refusal(|builder| {
        let b = builder.root();
        let x = b.embed(builder.tokens(), "embed");
        let [q, k, v] = b.linear_split(x, ["q", "k", "v"]);
        b.attention(k, q, v);
    });
    insta::assert_snapshot!(text, @"graph `test` is not valid: cache_append kv0(k v2, v v4): operand `v` is f32[rows, kv_heads 2, head_dim 4], which does not fit `k` f32[rows, heads 4, head_dim 4]: keys and values have equal rows and heads");
    let text = refusal(|builder| {
        let b = builder.root();
        let x = b.embed(builder.tokens(), "embed");
        let table = RopeTable { frequencies: vec![1.0; 3], scale: 1.0 };
        let [q, k, _] = b.linear_split(x, ["q", "k", "v"]);
        b.rope(q, k, builder.rope_table(&table));
    });
    insta::assert_snapshot!(text, @"graph `test` is not valid: rope pairs halves rope0(x v2, at v5): operand `x` is f32[rows, heads 4, head_dim 4], which does not fit table that rotates 6 dimensions: the last axis must have as many dimensions; rope pairs halves rope0(x v3, at v5): operand `x` is f32[rows, kv_heads 2, head_dim 4], which does not fit table that rotates 6 dimensions: the last axis must have as many dimensions");
}

/// Tokens, and their embedding.
fn parts() -> Parts {
    let builder = builder();
    let b = builder.root();
    let x = b.embed(builder.tokens(), "embed");
    let y = b.scale(x, 2.0);
    builder.finish(&[y]).expect("a graph").parts().clone()
}

#[test]
fn each_rule_of_a_graph_has_its_refusal() {
    let errors = |change: &dyn Fn(&mut Parts)| {
        let mut parts = parts();
        change(&mut parts);
        Graph::check(parts).expect_err("refused").to_string()
    };
    let set = |node: usize, op: Op| move |parts: &mut Parts| parts.nodes[node].body = Body::Single(op.clone());
    let weight = |change: fn(&mut Weight)| move |parts: &mut Parts| change(&mut parts.weights[0]);
    let x = ValueId(2);
    insta::assert_snapshot!(errors(&set(1, Op::Scale { x: ValueId(1), by: 2.0 })), @"graph `test` is not valid: v1: f32[rows, hidden 8] = scale by 2(x v1): operand `x` is v1, which no earlier op defines; ops read results of ops before them");
    insta::assert_snapshot!(errors(&set(2, Op::Scale { x: ValueId(1), by: f32::NAN })), @"graph `test` is not valid: v2: f32[rows, hidden 8] = scale(x v1): `by` is NaN; it must be a finite number");
    insta::assert_snapshot!(errors(&set(2, Op::SoftCap { x: ValueId(0), cap: 2.0 })), @"graph `test` is not valid: v2: f32[rows, hidden 8] = soft_cap cap 2(x v0): operand `x` is u32[rows]; it must be of real numbers");
    insta::assert_snapshot!(errors(&set(2, Op::Input { input: InputKind::Tokens })), @"graph `test` is not valid: v2: f32[rows, hidden 8] = input tokens: the results are stated as f32[rows, hidden 8], but the op gives u32[rows]");
    insta::assert_snapshot!(errors(&set(2, Op::Binary { a: x, b: x, kind: BinaryKind::Add })), @"graph `test` is not valid: v2: f32[rows, hidden 8] = add(a v2, b v2): operand `a` is v2, which no earlier op defines; ops read results of ops before them");
    insta::assert_snapshot!(errors(&|parts| parts.outputs = vec![ValueId(9)]), @"graph `test` is not valid: outputs: operand `output` is v9, which no earlier op defines; ops read results of ops before them");
    insta::assert_snapshot!(errors(&|parts| parts.weights.clear()), @"graph `test` is not valid: v1: f32[rows, hidden 8] = embed scale 1(ids v0) table w0: table is w0, which is not declared; the graph declares 0");
    insta::assert_snapshot!(errors(&|parts| parts.nodes[2].results.clear()), @"graph `test` is not valid: node 2: the results are stated as 0 values, but the op gives 1");
    insta::assert_snapshot!(errors(&weight(|weight| weight.shape = vec![1 << 40, 1 << 40])), @"graph `test` is not valid: weight w0 `embed.weight`: `shape` is [1099511627776, 1099511627776]; it must be extents of at least 1 with a product of at most 2^48");
    insta::assert_snapshot!(errors(&weight(|weight| weight.shape = vec![0, 8])), @"graph `test` is not valid: weight w0 `embed.weight`: `shape` is [0, 8]; it must be extents of at least 1 with a product of at most 2^48");
    insta::assert_snapshot!(errors(&weight(|weight| weight.rows = Some(Part::first(3..40)))), @"graph `test` is not valid: weight w0 `embed.weight`: `rows` is 3..40 of [32, 8]; it must be a part of one axis that is not empty, with a step of at least 1");
    let part = |axis, step| Part { axis, step, ..Part::first(1..8) };
    for part in [part(0, 0), part(2, 1), part(usize::MAX, 1), Part { end: 9, ..part(1, 2) }, Part::first(3..3)] {
        let error = errors(&move |parts: &mut Parts| parts.weights[0].rows = Some(part));
        assert!(error.contains("it must be a part of one axis that is not empty"), "{error}");
    }
    insta::assert_snapshot!(errors(&weight(|weight| weight.experts = Some(2))), @"graph `test` is not valid: weight w0 `embed.weight`: `tensor` is `embed.weight`; it must be a tensor's name, with {expert} in it exactly where there is a tensor for each expert");
    insta::assert_snapshot!(errors(&weight(|weight| weight.offset = f32::INFINITY)), @"graph `test` is not valid: weight w0 `embed.weight`: `offset` is inf; it must be a finite number");
    let rope = RopeTable { frequencies: vec![f32::NAN], scale: 1.0 };
    insta::assert_snapshot!(errors(&|parts| parts.ropes.push(rope.clone())), @"graph `test` is not valid: table rope0: `frequencies` is NaN; it must be finite numbers");
}

#[test]
fn a_cache_has_one_op_that_appends_to_it() {
    let mut parts = graph(&folder("models/tiny-qwen3")).parts().clone();
    let text = serde_json::to_string(&parts).expect("JSON");
    assert!(text.contains(r#""cache":1"#));
    parts = serde_json::from_str(&text.replace(r#""cache":1"#, r#""cache":0"#)).expect("parts");
    let error = Graph::check(parts).expect_err("refused").to_string();
    assert!(error.ends_with("cache kv0 has two ops that append to it; give each its own cache"), "{error}");
}

#[test]
fn values_inside_of_a_group_stay_there() {
    let mut parts = parts();
    let (Body::Single(embed), Body::Single(scale)) = (parts.nodes[1].body.clone(), parts.nodes[2].body.clone()) else {
        panic!("single ops");
    };
    let group = |outputs| {
        Body::Fused(Fused { prologue: vec![], core: vec![embed.clone()], epilogue: vec![scale.clone()], outputs })
    };
    let scaled = parts.nodes.pop().expect("a node");
    parts.nodes[1].results.extend(scaled.results);
    parts.nodes[1].body = group(vec![ValueId(2)]);
    Graph::check(parts.clone()).expect("the scaled embedding leaves the group");
    parts.outputs = vec![ValueId(1)];
    insta::assert_snapshot!(Graph::check(parts.clone()).expect_err("refused"), @"graph `test` is not valid: outputs: operand `output` is v1, which is inside of a fused group; list it among the group's outputs");
    parts.nodes[1].body = group(vec![ValueId(0)]);
    insta::assert_snapshot!(Graph::check(parts).expect_err("refused"), @"graph `test` is not valid: outputs of node 1: output v0 is not a result of the group; a group's outputs are results of its own ops; outputs: operand `output` is v1, which is inside of a fused group; list it among the group's outputs");
}

#[test]
fn configurations_that_are_wrong_are_refused_by_key() {
    let errors = |change: &dyn Fn(&mut Value)| {
        let mut config = crate::checkpoint::config(&folder("tests/data/families/gemma2"));
        change(&mut config);
        models::graph(&config).expect_err("refused").to_string()
    };
    let set = |key: &'static str, value: Value| move |config: &mut Value| config[key] = value.clone();
    insta::assert_snapshot!(errors(&set("model_type", json!("gemma9"))), @r#"configuration cannot be used: model_type is "gemma9"; the families known are llama, mistral, qwen2, qwen3, gemma2, olmo2, granite, smollm3, phi3, gemma3_text, glm4, cohere2, starcoder2, mixtral, qwen2_moe, qwen3_moe, gpt_oss, deepseek_v2, deepseek_v3, qwen3_next"#);
    insta::assert_snapshot!(errors(&set("architectures", json!(["Gemma2Model"]))), @r#"configuration cannot be used: architectures is ["Gemma2Model"]; a gemma2 model must be ["Gemma2ForCausalLM"]"#);
    insta::assert_snapshot!(errors(&set("residual_multiplier", json!(0.5))), @"configuration cannot be used: key residual_multiplier is 0.5, which scales what each block adds; supported is 1");
    insta::assert_snapshot!(errors(&set("a_new_key", json!([1]))), @"configuration cannot be used: key a_new_key (value [1]) is not known, so it may change the mathematics; remove it if it does not");
    insta::assert_snapshot!(errors(&set("use_bidirectional_attention", json!(true))), @"configuration cannot be used: key use_bidirectional_attention is true, which attends to later positions; supported is false");
    insta::assert_snapshot!(errors(&set("hidden_activation", json!("relu"))), @r#"configuration cannot be used: key hidden_activation is "relu", which is another activation of the MLP; supported is "gelu_pytorch_tanh""#);
    insta::assert_snapshot!(errors(&set("sliding_window", json!(null))), @r#"configuration cannot be used: key layer_types is ["sliding_attention","full_attention","sliding_attention","f..., which needs a sliding_window that is in force; supported is full_attention without one"#);
    insta::assert_snapshot!(errors(&set("layer_types", json!(["full_attention"]))), @"configuration cannot be used: key layer_types has 1 entries; the model has 4 layers, so it must have as many");
    insta::assert_snapshot!(errors(&set("num_key_value_heads", json!(3))), @"configuration cannot be used: key num_attention_heads is 4; it must be a multiple of num_key_value_heads, which is 3");
    insta::assert_snapshot!(errors(&set("head_dim", json!(15))), @"configuration cannot be used: heads have 15 dimensions; the rotation needs an even number, 2 at least");
    insta::assert_snapshot!(errors(&set("attn_logit_softcapping", json!(-1.0))), @"configuration cannot be used: key attn_logit_softcapping is -1.0; it must be more than 0.0 and at most 1000000.0");
    insta::assert_snapshot!(errors(&|config| *config = json!([])), @"configuration cannot be used: configuration is []; it must be a JSON object");
    insta::assert_snapshot!(
        errors(&|config| {
            config["hidden_size"] = json!(2147483647);
            config["vocab_size"] = json!(2147483647);
        }),
        @"graph `gemma2` is not valid: weight w0 `model.embed_tokens.weight`: `shape` is [2147483647, 2147483647]; it must be extents of at least 1 with a product of at most 2^48"
    );
}

#[test]
fn keys_of_single_families_are_refused_by_name() {
    let error = |family: &str, changes: &[(&str, Value)]| {
        let mut config = crate::checkpoint::config(&folder(&format!("graph/tests/data/families/{family}")));
        for (path, value) in changes {
            let (parent, key) = path.rsplit_once('/').expect("a path");
            config.pointer_mut(parent).expect("an object")[key] = value.clone();
        }
        let error = models::graph(&config).expect_err("refused").to_string();
        error.strip_prefix("configuration cannot be used: ").expect("faults of keys").to_owned()
    };
    let long = "phi4-longrope";
    let all = "original_max_position_embeddings";
    let [outer, inner] = [format!("/{all}"), format!("/rope_parameters/{all}")];
    insta::assert_snapshot!(error(long, &[("/rope_parameters/short_factor", json!(null))]), @"key rope_parameters.short_factor is missing; the model cannot be built without it");
    insta::assert_snapshot!(error(long, &[("/rope_parameters/long_factor", json!([1.0, 2.0]))]), @"key rope_parameters.long_factor is [1.0,2.0]; it must be a list of a positive number for each pair of dimensions that rotate");
    insta::assert_snapshot!(error(long, &[(&inner, json!(64))]), @"key original_max_position_embeddings is 32 and rope_parameters.original_max_position_embeddings is 64; they must agree");
    insta::assert_snapshot!(error(long, &[(&outer, json!(1)), (&inner, json!(1))]), @"key rope_parameters.original_max_position_embeddings is 1, which scales the scores by infinity; supported is 2 at least");
    insta::assert_snapshot!(error("phi3", &[("/rope_parameters/rope_type", json!("yarn"))]), @r#"key rope_parameters.rope_type is "yarn", which scales the rotation by another rule; supported is default or longrope"#);
    insta::assert_snapshot!(error("phi3", &[("/partial_rotary_factor", json!(0.5))]), @"key partial_rotary_factor is 0.5 and rope_parameters.partial_rotary_factor is 1.0; they must agree");
    insta::assert_snapshot!(error("glm4", &[("/rope_parameters/partial_rotary_factor", json!(0.2))]), @"key rope_parameters.partial_rotary_factor is 0.2, which rotates 3 of 16 dimensions of a head; supported is an even number of them, 2 at least");
    insta::assert_snapshot!(error("gemma3", &[("/rope_parameters", json!({"rope_type": "default"}))]), @r#"key rope_parameters.rope_type (value "default") is not known, so it may change the mathematics; remove it if it does not"#);
    insta::assert_snapshot!(error("gemma3", &[("/rope_parameters/sliding_attention", json!(1))]), @"key rope_parameters.sliding_attention is 1; it must be an object");
    insta::assert_snapshot!(error("gemma3", &[("/attn_logit_softcapping", json!(50.0))]), @"key attn_logit_softcapping is 50.0, which squashes the attention's scores; supported is null");
    insta::assert_snapshot!(error("smollm3", &[("/no_rope_layers", json!([1, 0]))]), @"key no_rope_layers has 2 entries; the model has 5 layers, so it must have as many");
    insta::assert_snapshot!(error("smollm3", &[("/no_rope_layers", json!([1, 1, 1, 2, 1]))]), @"key no_rope_layers is [1,1,1,2,1]; it must be a list of 0 and 1");
    insta::assert_snapshot!(error("granite", &[("/logits_scaling", json!(0))]), @"key logits_scaling is 0; it must be more than 0.0 and at most 1000000.0");
    insta::assert_snapshot!(error("starcoder2", &[("/hidden_act", json!("gelu"))]), @r#"key hidden_act is "gelu", which is another activation of the MLP; supported is "gelu_pytorch_tanh""#);
    insta::assert_snapshot!(error("mixtral", &[("/num_experts_per_tok", json!(13))]), @"key num_experts_per_tok is 13; it must be 1 to 12");
    insta::assert_snapshot!(error("mixtral", &[("/num_experts", json!(8))]), @"key num_local_experts is 12 and num_experts is 8; they must agree");
    insta::assert_snapshot!(error("qwen2-moe", &[("/mlp_only_layers", json!([-1]))]), @"key mlp_only_layers is [-1]; it must be a list of layers");
    insta::assert_snapshot!(error("qwen2-moe", &[("/num_local_experts", json!(12))]), @"key num_local_experts is 12, which replaces the MLP by experts; supported is 0");
    insta::assert_snapshot!(error("qwen3-moe", &[("/shared_expert_intermediate_size", json!(12))]), @"key shared_expert_intermediate_size (value 12) is not known, so it may change the mathematics; remove it if it does not");
    insta::assert_snapshot!(error("gpt-oss", &[("/quantization_config", json!(null))]), @"key quantization_config is null, which stores the experts' weights inputs by outputs; supported is quant_method mxfp4");
}

/// The class of each family takes these in place of keys that are not there.
#[test]
fn absent_keys_have_the_defaults_of_the_family() {
    // The keys, and what the graph's text says where they are absent.
    let cases = [
        ("olmo2", "rms_norm_eps", "norm eps 0.00001"),
        ("granite", "attention_multiplier", "attention causal scale 1("),
        ("smollm3", "no_rope_layers", "rope pairs halves"),
        ("phi3", "sliding_window", "attention causal scale 0.25("),
        ("gemma3", "query_pre_attn_scalar", "attention causal scale 0.0625 window 8("),
        ("cohere2", "logit_scale", "scale by 0.0625("),
        ("cohere2", "layer_types", "attention causal scale 0.25 window 8("),
        ("starcoder2", "use_bias", "bias model.layers.0.mlp.c_fc.bias"),
        ("qwen2-moe", "decoder_sparse_step", "model.layers.0.mlp.experts.{expert}.up_proj.weight"),
        ("qwen3-moe", "norm_topk_prob", "route k 2 softmax_then_top_k("),
        ("gpt-oss", "swiglu_limit", "clamped_swiglu alpha 1.702 limit 7"),
        ("gpt-oss", "layer_types", "attention causal scale 0.25 window 16("),
    ];
    for (family, key, expected) in cases {
        let mut config = crate::checkpoint::config(&folder(&format!("graph/tests/data/families/{family}")));
        config.as_object_mut().expect("an object").remove(key).expect("a key that is there");
        let text = models::graph(&config).expect("a graph").to_string();
        assert!(text.contains(expected), "{family} without {key}: {text}");
    }
}

/// Every place in a JSON value.
fn places(value: &Value, path: &str, found: &mut Vec<String>) {
    found.push(path.to_owned());
    match value {
        Value::Array(list) => list.iter().enumerate().for_each(|(i, v)| places(v, &format!("{path}/{i}"), found)),
        Value::Object(map) => map.iter().for_each(|(key, v)| places(v, &format!("{path}/{key}"), found)),
        _ => {}
    }
}

/// Values that a hostile file might have.
fn hostile() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(null)),
        Just(json!(true)),
        Just(json!([])),
        Just(json!({})),
        Just(json!("rows")),
        Just(json!("positions")),
        Just(json!("")),
        Just(json!(u64::MAX)),
        Just(json!(-1)),
        Just(json!(1e300)),
        Just(json!(0.0)),
        (0u64..40).prop_map(|n| json!(n)),
    ]
}

/// Folders whose configurations have keys of their own.
const FAMILIES: [&str; 9] = [
    "tests/data/families/gemma2",
    "graph/tests/data/families/cohere2",
    "graph/tests/data/families/gemma3",
    "graph/tests/data/families/glm4",
    "graph/tests/data/families/gpt-oss",
    "graph/tests/data/families/phi4-longrope",
    "graph/tests/data/families/qwen2-moe",
    "graph/tests/data/families/qwen3-moe",
    "graph/tests/data/families/smollm3",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// A graph with one place changed is refused, or runs.
    #[test]
    fn a_hostile_graph_is_refused_or_runs(at in any::<prop::sample::Index>(), values in prop::collection::vec(hostile(), 1..3)) {
        let config = json!({
            "model_type": "gemma2", "vocab_size": 6, "hidden_size": 4, "intermediate_size": 4, "head_dim": 2,
            "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 16,
        });
        let mut text = serde_json::to_value(models::graph(&config).expect("a graph")).expect("JSON");
        let mut found = Vec::new();
        places(&text, "", &mut found);
        for value in values {
            if let Some(place) = text.pointer_mut(at.get::<String>(&found)) {
                *place = value;
            }
        }
        if let Ok(graph) = serde_json::from_value::<Graph>(text) {
            let shapes: Vec<(String, Vec<u64>)> = graph.parts().weights.iter()
                .flat_map(|weight| weight.names().into_iter().map(|name| (name, weight.shape.clone()))).collect();
            let weights = |name: &str| shapes.iter().find(|(known, _)| known == name).map(|(_, shape)| {
                let shape: Vec<usize> = shape.iter().map(|extent| (*extent).min(64) as usize).collect();
                CheckpointTensor { data: vec![0.5; shape.iter().product()], shape }
            });
            if let Ok(interpreter) = Interpreter::new(&graph, &weights) {
                let _ = interpreter.run(&mut Sequence::default(), &[1, 5]);
            }
            prop_assert!(!graph.to_string().is_empty());
        }
    }

    /// A configuration with one key changed is refused, or has a graph.
    #[test]
    fn a_hostile_configuration_is_refused_or_has_a_graph(
        family in prop::sample::select(FAMILIES.as_slice()), at in any::<prop::sample::Index>(), value in hostile()
    ) {
        let mut config = crate::checkpoint::config(&folder(family));
        let mut found = Vec::new();
        places(&config, "", &mut found);
        *config.pointer_mut(at.get::<String>(&found)).expect("a place") = value;
        match models::graph(&config) {
            Ok(graph) => prop_assert_eq!(graph.parts().outputs.len(), 2),
            Err(error) => prop_assert!(!error.to_string().contains('\n')),
        }
    }
}
