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
    insta::assert_snapshot!(errors(&set("model_type", json!("gemma9"))), @r#"configuration cannot be used: model_type is "gemma9"; the families known are llama, mistral, qwen2, qwen3, gemma2, olmo2, granite, smollm3, phi3, gemma3_text, glm4, cohere2, starcoder2, mixtral, qwen2_moe, qwen3_moe, gpt_oss"#);
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
    fn a_hostile_configuration_is_refused_or_has_a_graph(at in any::<prop::sample::Index>(), value in hostile()) {
        let mut config = crate::checkpoint::config(&folder("tests/data/families/gemma2"));
        let mut found = Vec::new();
        places(&config, "", &mut found);
        *config.pointer_mut(at.get::<String>(&found)).expect("a place") = value;
        match models::graph(&config) {
            Ok(graph) => prop_assert_eq!(graph.parts().outputs.len(), 2),
            Err(error) => prop_assert!(!error.to_string().contains('\n')),
        }
    }
}
