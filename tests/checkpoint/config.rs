//! `config.json`: families, defaults, and the closed world.

use serde_json::{Value, json};
use tilewright::checkpoint::{ConfigError, ConfigFault, ModelConfig};
use tilewright_graph::op::Op;
use tilewright_megakernel::model::ModelSpec;

/// A configuration of a family that states what every one must.
fn minimal(family: &str) -> Value {
    json!({
        "model_type": family, "vocab_size": 32, "hidden_size": 256, "intermediate_size": 16, "num_hidden_layers": 2,
        "num_attention_heads": 64, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
    })
}

fn with(family: &str, changes: Value) -> Value {
    let mut config = minimal(family);
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

fn spec(family: &str, changes: Value) -> ModelSpec {
    ModelConfig::from_json(with(family, changes).to_string().as_bytes()).unwrap().spec
}

/// Whether q, k and v, the output projection, and the MLP have biases.
fn biases(spec: &ModelSpec) -> [bool; 3] {
    let tensors = spec.tensors();
    ["self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj"]
        .map(|module| tensors.iter().any(|tensor| tensor.name == format!("model.layers.1.{module}.bias")))
}

/// The epsilon of every norm.
fn eps(spec: &ModelSpec) -> Vec<f32> {
    let of = |op: &Op| if let Op::Norm { eps, .. } = op { Some(*eps) } else { None };
    spec.graph().steps().filter_map(|step| of(step.op)).collect()
}

fn faults(family: &str, changes: Value) -> Vec<ConfigFault> {
    match ModelConfig::from_json(with(family, changes).to_string().as_bytes()) {
        Err(ConfigError::Faults(faults)) => faults.iter().cloned().collect(),
        other => panic!("faults expected, got {other:?}"),
    }
}

/// The texts of the faults, one a line.
fn texts(family: &str, changes: Value) -> String {
    faults(family, changes).iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn defaults_are_those_of_each_family() {
    let llama = spec("llama", json!({}));
    assert_eq!((llama.name(), llama.kv_heads, llama.head_dim), ("llama", 64, 4));
    let mistral = spec("mistral", json!({}));
    assert_eq!((mistral.name(), mistral.kv_heads, mistral.head_dim), ("mistral", 8, 4));
    let qwen2 = spec("qwen2", json!({}));
    assert_eq!((qwen2.name(), qwen2.kv_heads, qwen2.head_dim), ("qwen2", 32, 4));
    let qwen3 = spec("qwen3", json!({}));
    assert_eq!((qwen3.name(), qwen3.kv_heads, qwen3.head_dim), ("qwen3", 32, 128));
    for (spec, qkv_bias, qk_norm) in
        [(llama, false, false), (mistral, false, false), (qwen2, true, false), (qwen3, false, true)]
    {
        assert_eq!(biases(&spec), [qkv_bias, false, false], "{}", spec.name());
        assert_eq!((spec.head_norms, spec.tied_embeddings), (qk_norm, false), "{}", spec.name());
        assert_eq!(spec.max_positions, 4096);
        assert!(eps(&spec).iter().all(|eps| *eps == 1e-5), "{}", spec.name());
    }
    for family in ["llama", "mistral", "qwen2", "qwen3"] {
        assert_eq!(spec(family, json!({"num_key_value_heads": null})).kv_heads, 64, "{family}");
        assert!(spec(family, json!({"tie_word_embeddings": true})).tied_embeddings, "{family}");
    }
}

#[test]
fn end_of_sequence_defaults_are_those_of_each_family() {
    let eos = |family| ModelConfig::from_json(minimal(family).to_string().as_bytes()).unwrap().eos_ids;
    assert_eq!([eos("llama"), eos("mistral")], [[2], [2]]);
    assert!(eos("qwen2").is_empty() && eos("qwen3").is_empty());
}

#[test]
fn biases_follow_the_keys_of_the_family() {
    assert_eq!(biases(&spec("llama", json!({"attention_bias": true}))), [true, true, false]);
    assert_eq!(biases(&spec("llama", json!({"mlp_bias": true}))), [false, false, true]);
    assert_eq!(biases(&spec("qwen3", json!({"attention_bias": true}))), [true, true, false]);
    assert_eq!(biases(&spec("qwen2", json!({}))), [true, false, false]);
    insta::assert_snapshot!(texts("mistral", json!({"attention_bias": true, "mlp_bias": true})), @"
    key attention_bias is true, which adds biases to the attention's projections; supported is false
    key mlp_bias is true, which adds biases to the MLP; supported is false
    ");
}

#[test]
fn any_group_and_any_even_head_are_read() {
    for (heads, kv_heads) in [(1, 1), (3, 1), (15, 3), (14, 2), (64, 64)] {
        for head_dim in [2, 6, 80, 256] {
            let changes = json!({"num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim});
            let spec = spec("llama", changes);
            assert_eq!((spec.heads, spec.kv_heads, spec.head_dim), (heads, kv_heads, head_dim));
            assert_eq!((spec.group(), spec.graph().parts().ropes[0].rotated() / 2), (heads / kv_heads, head_dim / 2));
        }
    }
}

/// The shipped configurations of well-known models, their own keys included.
#[test]
fn configurations_of_known_models_are_read() {
    let llama_3_2_1b = json!({"architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048,
        "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false,
        "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
        "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0,
        "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
        "rope_theta": 500000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
        "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 128256});
    let mistral_7b_v0_3 = json!({"architectures": ["MistralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1,
        "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
        "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
        "rope_theta": 1000000.0, "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "transformers_version": "4.42.0.dev0", "use_cache": true, "vocab_size": 32768});
    let qwen2_5_0_5b = json!({"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
        "eos_token_id": 151645, "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
        "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 21, "model_type": "qwen2",
        "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
        "transformers_version": "4.43.1", "use_cache": true, "use_sliding_window": false, "vocab_size": 151936});
    let qwen3_8b = json!({"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096,
        "initializer_range": 0.02, "intermediate_size": 12288, "max_position_embeddings": 40960,
        "max_window_layers": 36, "model_type": "qwen3", "num_attention_heads": 32, "num_hidden_layers": 36,
        "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000,
        "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "transformers_version": "4.51.0", "use_cache": true, "use_sliding_window": false, "vocab_size": 151936});
    let tensors = [16 * 9 + 2, 32 * 9 + 3, 24 * 12 + 2, 36 * 11 + 3];
    for (config, tensors) in [llama_3_2_1b, mistral_7b_v0_3, qwen2_5_0_5b, qwen3_8b].iter().zip(tensors) {
        let spec = ModelConfig::from_json(config.to_string().as_bytes()).unwrap().spec;
        assert_eq!(spec.tensors().len(), tensors, "{}", spec.name());
    }
}

/// The window of each layer.
fn windows(spec: &ModelSpec) -> Vec<Option<u32>> {
    let of = |op: &Op| if let Op::Attention { window, .. } = op { Some(*window) } else { None };
    spec.graph().steps().filter_map(|step| of(step.op)).collect()
}

#[test]
fn a_sliding_window_in_force_is_read() {
    for (family, changes, expected) in [
        ("mistral", json!({"sliding_window": 4095}), [Some(4095); 2]),
        // Absent means 4096, which a longer model notices.
        ("mistral", json!({"max_position_embeddings": 8192}), [Some(4096); 2]),
        (
            "qwen2",
            json!({"use_sliding_window": true, "sliding_window": 100, "max_window_layers": 1}),
            [None, Some(100)],
        ),
        (
            "qwen3",
            json!({"use_sliding_window": true, "sliding_window": 9, "layer_types": ["sliding_attention", "full_attention"]}),
            [Some(9), None],
        ),
    ] {
        assert_eq!(windows(&spec(family, changes.clone())), expected, "{family} {changes}");
    }
    insta::assert_snapshot!(texts("qwen3", json!({"layer_types": ["full_attention", "sliding_attention"]})), @r#"key layer_types is ["full_attention","sliding_attention"], which needs a sliding_window that is in force; supported is full_attention without one"#);
    insta::assert_snapshot!(texts("llama", json!({"sliding_window": 100})), @"key sliding_window is 100, which limits attention to a window; supported is null");
}

#[test]
fn a_sliding_window_that_no_sequence_notices_is_read() {
    for (family, changes) in [
        ("mistral", json!({"sliding_window": null})),
        ("mistral", json!({"sliding_window": 4096})),
        ("mistral", json!({"layer_types": ["full_attention", "full_attention"]})),
        ("qwen2", json!({"use_sliding_window": false, "sliding_window": 100, "max_window_layers": 0})),
        ("qwen2", json!({"use_sliding_window": true, "sliding_window": 4096, "max_window_layers": 0})),
        ("qwen2", json!({"use_sliding_window": true, "sliding_window": 100, "max_window_layers": 2})),
        ("qwen3", json!({"use_sliding_window": true, "sliding_window": null, "max_window_layers": 0})),
        ("qwen3", json!({"layer_types": ["full_attention", "full_attention"]})),
        ("llama", json!({"sliding_window": null, "use_sliding_window": false})),
    ] {
        assert_eq!(windows(&spec(family, changes.clone())), [None; 2], "{family} {changes}");
    }
}

/// Mistral-7B-v0.1 has 32768 positions and a window of 4096, which has no effect in a capped
/// context. Qwen2.5-1M has chunks, which are full attention while a context is shorter.
#[test]
fn a_capped_context_runs_within_the_window() {
    let capped = |family: &str, changes: Value, most: usize| {
        ModelConfig::from_json_within(with(family, changes).to_string().as_bytes(), Some(most))
    };
    let mistral = json!({"max_position_embeddings": 32768, "sliding_window": 4096});
    let config = capped("mistral", mistral.clone(), 4096).expect("within the window");
    assert_eq!((config.spec.max_positions, windows(&config.spec)), (4096, vec![None; 2]));
    let config = capped("mistral", mistral, 4097).expect("a token more");
    assert_eq!(windows(&config.spec), [Some(4096); 2]);
    let chunks = json!({"max_position_embeddings": 1_010_000, "sliding_window": 1_010_000, "use_sliding_window": false,
        "dual_chunk_attention_config":
            {"chunk_size": 262_144, "local_size": 8192, "original_max_position_embeddings": 262_144}});
    assert!(texts("qwen2", chunks.clone()).contains("(--max-context 253952 runs it within the first chunk)"));
    assert_eq!(capped("qwen2", chunks.clone(), 253_952).expect("one chunk").spec.max_positions, 253_952);
    assert!(capped("qwen2", chunks, 253_953).is_err());
    // A cap above the model's positions changes nothing, and the rotation is that of the training.
    let yarn = json!({"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}});
    let whole = spec("llama", yarn.clone());
    assert_eq!(capped("llama", yarn.clone(), 1 << 20).expect("no cap").spec, whole);
    let short = capped("llama", yarn, 10).expect("a cap").spec;
    assert_eq!((short.graph(), short.max_positions), (whole.graph(), 10));
}

/// The rule `dynamic` is `default` up to the positions of the training, which a cap may keep to.
#[test]
fn dynamic_rotations_are_the_default_within_the_training() {
    let plain = spec("llama", json!({}));
    assert_eq!(spec("llama", json!({"rope_scaling": {"type": "dynamic", "factor": 2.0}})), plain);
    let longer = json!({"rope_scaling": {"type": "dynamic", "factor": 2.0, "original_max_position_embeddings": 1024}});
    insta::assert_snapshot!(texts("llama", longer.clone()), @r#"key rope_scaling.rope_type is "dynamic", which changes the rotation of texts longer than 1024 positions, and the model has 4096 (--max-context 1024 runs it within those); supported is default, linear, llama3, yarn, or dynamic within the positions of the training"#);
    let capped =
        ModelConfig::from_json_within(with("llama", longer).to_string().as_bytes(), Some(1024)).expect("within");
    assert_eq!((capped.spec.graph(), capped.spec.max_positions), (plain.graph(), 1024));
}

/// Each key that changes the mathematics, with a value that does: refused. With a value that does
/// not: read.
#[test]
fn keys_that_change_the_mathematics_are_refused_unless_inert() {
    let cases = json!({
        "partial_rotary_factor": [0.5, 1.0], "rope_interleaved": [true, false], "use_mrope": [true, false],
        "no_rope_layers": [[1], null], "attention_chunk_size": [8192, null], "attn_logit_softcapping": [50.0, null],
        "final_logit_softcapping": [30.0, null], "query_pre_attn_scalar": [256, null],
        "attention_multiplier": [0.0078125, null], "embedding_multiplier": [12.0, 1.0],
        "residual_multiplier": [0.22, 1], "logits_scaling": [8.0, 1.0], "logit_scale": [0.0625, 1.0],
        "num_experts": [8, 0], "num_local_experts": [8, null], "num_experts_per_tok": [2, 0], "kv_lora_rank": [512, null],
        "auto_map": [{"AutoModel": "x.Y"}, {}],
        "pruned_heads": [{"0": [1]}, {}], "vision_config": [{}, null], "text_config": [{}, null],
        "is_encoder_decoder": [true, false], "add_cross_attention": [true, false], "pretraining_tp": [2, 1],
        "use_qk_norm": [true, false], "hidden_act": ["gelu", "swish"], "layer_types": [["linear_attention", "full_attention"], null],
    });
    for (key, values) in cases.as_object().unwrap() {
        let found = faults("llama", json!({key: values[0]}));
        let [ConfigFault::Unsupported { key: named, value, .. }] = found.as_slice() else {
            panic!("{key}: {found:?}");
        };
        assert_eq!((named, value), (key, &values[0].to_string()));
        spec("llama", json!({key: values[1]}));
    }
}

#[test]
fn an_unknown_key_is_refused_whatever_its_value() {
    for value in [json!(null), json!(0), json!(false), json!("x"), json!({})] {
        let found = faults("qwen2", json!({"clip_qkv": value}));
        assert_eq!(found, [ConfigFault::UnknownKey { key: "clip_qkv".into(), value: value.to_string() }]);
    }
}

#[test]
fn other_families_and_architectures_are_refused() {
    for family in ["granitemoe", "stablelm", "gemma3", "deepseek_v4", "Llama", ""] {
        let found = faults("llama", json!({"model_type": family}));
        assert!(matches!(found.as_slice(), [ConfigFault::Family { .. }]), "{family}: {found:?}");
    }
    for architectures in [json!(["LlamaModel"]), json!(["MistralForCausalLM"]), json!([]), json!("LlamaForCausalLM")] {
        let found = faults("llama", json!({"architectures": architectures}));
        assert!(matches!(found.as_slice(), [ConfigFault::Architecture { .. }]), "{architectures}: {found:?}");
    }
    spec("llama", json!({"architectures": null}));
}

#[test]
fn rotation_rules_that_are_not_evaluated_are_refused_by_name() {
    for rule in ["longrope", "su", "mrope", "proportional", "ntk"] {
        let found = faults("llama", json!({"rope_scaling": {"type": rule}}));
        let [ConfigFault::Unsupported { key, value, .. }] = found.as_slice() else { panic!("{rule}: {found:?}") };
        assert_eq!((key.as_str(), value), ("rope_scaling.rope_type", &format!("{rule:?}")));
    }
}

#[test]
fn rotations_that_contradict_themselves_are_refused() {
    insta::assert_snapshot!(texts("llama", json!({"rope_theta": 1e4, "rope_parameters": {"rope_theta": 1e6}})), @"key rope_theta is 10000.0 and rope_parameters.rope_theta is 1000000.0; they must agree");
    insta::assert_snapshot!(texts("llama", json!({"rope_scaling": {"type": "linear", "rope_type": "yarn", "factor": 2}})), @r#"key rope_scaling.type is "linear" and rope_scaling.rope_type is "yarn"; they must agree"#);
    insta::assert_snapshot!(texts("llama", json!({"rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {"type": "linear", "factor": 4}})), @r#"key rope_scaling is {"factor":2,"type":"linear"} and rope_parameters is {"factor":4,"type":"linear"}; they must agree"#);
    insta::assert_snapshot!(texts("llama", json!({"rope_scaling": {"type": "linear"}})), @"key rope_scaling.factor is missing; the model cannot be built without it");
    insta::assert_snapshot!(texts("llama", json!({"rope_scaling": {"type": "default", "factor": 2}})), @"key rope_scaling.factor (value 2) is not known, so it may change the mathematics; remove it if it does not");
    insta::assert_snapshot!(texts("llama", json!({"rope_scaling": {"type": "linear", "factor": 0.5}})), @"key rope_scaling.factor is 0.5; it must be 1.0 to 1000000.0");
    insta::assert_snapshot!(texts("llama", json!({"rope_scaling": {"type": "linear", "factor": "2"}})), @r#"key rope_scaling.factor is "2"; it must be a number"#);
    insta::assert_snapshot!(texts("llama", json!({"rope_scaling": "linear"})), @r#"key rope_scaling is "linear"; it must be an object"#);
    insta::assert_snapshot!(texts("llama", json!({"rope_parameters": {"full_attention": {"rope_type": "default"}}})), @r#"key rope_parameters.full_attention (value {"rope_type":"default"}) is not known, so it may change the mathematics; remove it if it does not"#);
    insta::assert_snapshot!(texts("llama", json!({"rope_parameters": {"partial_rotary_factor": 0.25}})), @"key rope_parameters.partial_rotary_factor is 0.25, which rotates a part of each head only; supported is 1");
    insta::assert_snapshot!(texts("llama", json!({"rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4}})), @"key rope_scaling.low_freq_factor is 4; it must be less than rope_scaling.high_freq_factor, which is 4");
    insta::assert_snapshot!(texts("llama", json!({"rope_scaling": {"type": "yarn", "factor": 8, "beta_fast": 1, "beta_slow": 2}})), @"key rope_scaling.beta_slow is 2; it must be less than rope_scaling.beta_fast, which is 1");
    insta::assert_snapshot!(texts("llama", json!({"rope_theta": 0})), @"key rope_theta is 0; it must be more than 1.0 and at most 1e30");
}

#[test]
fn numbers_out_of_range_or_of_the_wrong_type_are_refused() {
    insta::assert_snapshot!(texts("llama", json!({"num_attention_heads": 0, "hidden_size": -8, "vocab_size": 3.5, "intermediate_size": "16"})), @r#"
    key hidden_size is -8; it must be 1 to 2147483647
    key num_attention_heads is 0; it must be 1 to 2147483647
    key intermediate_size is "16"; it must be a whole number
    key vocab_size is 3.5; it must be a whole number
    "#);
    insta::assert_snapshot!(texts("llama", json!({"num_hidden_layers": 4097, "max_position_embeddings": 18446744073709551615u64, "num_key_value_heads": true})), @"
    key num_hidden_layers is 4097; it must be 1 to 4096
    key num_key_value_heads is true; it must be a whole number
    key max_position_embeddings is 18446744073709551615; it must be 1 to 2147483647
    ");
    insta::assert_snapshot!(texts("llama", json!({"num_key_value_heads": 3})), @"key num_attention_heads is 64; it must be a multiple of num_key_value_heads, which is 3");
    insta::assert_snapshot!(texts("llama", json!({"head_dim": 7})), @"heads have 7 dimensions; the rotation needs an even number, 2 at least");
    insta::assert_snapshot!(texts("llama", json!({"num_attention_heads": 60})), @"key hidden_size is 256; it must be a multiple of num_attention_heads, which is 60");
    insta::assert_snapshot!(texts("qwen3", json!({"head_dim": null})), @"key head_dim is null; it must be a whole number");
    insta::assert_snapshot!(texts("llama", json!({"rms_norm_eps": 0})), @"key rms_norm_eps is 0; it must be 1.1754943508222875e-38 to 1.0");
    insta::assert_snapshot!(texts("llama", json!({"rms_norm_eps": 2.0})), @"key rms_norm_eps is 2.0; it must be 1.1754943508222875e-38 to 1.0");
    insta::assert_snapshot!(texts("llama", json!({"tie_word_embeddings": null})), @"key tie_word_embeddings is null; it must be true or false");
    insta::assert_snapshot!(texts("llama", json!({"eos_token_id": [1, 32]})), @"key eos_token_id is 32; it must be 0 to 31");
    insta::assert_snapshot!(texts("llama", json!({"eos_token_id": "</s>"})), @r#"key eos_token_id is "</s>"; it must be a token id, a list of token ids or null"#);
    insta::assert_snapshot!(texts("qwen2", json!({"layer_types": ["full_attention"]})), @"key layer_types has 1 entries; the model has 2 layers, so it must have as many");
    let huge = i32::MAX;
    insta::assert_snapshot!(texts("llama", json!({"hidden_size": huge, "intermediate_size": huge, "num_hidden_layers": 4096, "head_dim": 65536, "num_attention_heads": huge, "num_key_value_heads": huge, "vocab_size": huge})), @"
    key num_hidden_layers times num_key_value_heads is 8796093018112; it must be 1 to 131072
    model has 4951816830150948769692135426 parameters; at most 2305843009213693951 can be addressed
    ");
}

#[test]
fn what_is_not_json_is_refused() {
    let text = |json: &str| ModelConfig::from_json(json.as_bytes()).unwrap_err().to_string();
    insta::assert_snapshot!(text(r#"{"model_type": "llama", "rms_norm_eps": NaN}"#), @"configuration is not valid JSON: expected value at line 1 column 41");
    insta::assert_snapshot!(text(r#"{"model_type": "llama", "hidden_size": 8, "hidden_size": 16}"#), @r#"configuration is not valid JSON: key "hidden_size" appears twice at line 1 column 55"#);
    insta::assert_snapshot!(text(r#"{"model_type": "llama""#), @"configuration is not valid JSON: EOF while parsing an object at line 1 column 22");
    insta::assert_snapshot!(text("[]"), @"configuration cannot be used: configuration is []; it must be a JSON object");
    insta::assert_snapshot!(text("{}"), @"configuration cannot be used: model_type is null; the families known are llama, mistral, qwen2, qwen3, gemma2, olmo2, granite, smollm3, phi3, gemma3_text, glm4, cohere2, starcoder2, mixtral, qwen2_moe, qwen3_moe, gpt_oss, deepseek_v2, deepseek_v3, qwen3_next");
    insta::assert_snapshot!(text(r#"{"model_type": "llama"}"#), @"configuration cannot be used: key hidden_size is missing; the model cannot be built without it; and key num_hidden_layers is missing; the model cannot be built without it; and key num_attention_heads is missing; the model cannot be built without it; and key intermediate_size is missing; the model cannot be built without it; and key vocab_size is missing; the model cannot be built without it; and 1 more");
    insta::assert_snapshot!(text(r#"{"model_type": "llama", "rope_theta": 1e999}"#), @"configuration is not valid JSON: number out of range at line 1 column 43");
}
