//! Small models of the families whose graphs the lowering changes first.

use serde_json::json;
use tilewright_graph::models;

use crate::model::ModelSpec;

/// Two layers of each family that runs by a pass over its graph, with heads of `head_dim`
/// dimensions: two rotations and a window of 5, a rotation of neighbours by half a head, factors, a
/// rotation of three quarters, a layer without rotation.
///
/// # Panics
/// For dimensions that a family refuses.
pub fn small_families(head_dim: usize) -> Vec<ModelSpec> {
    let own = [
        json!({"model_type": "gemma3_text", "query_pre_attn_scalar": 1024, "sliding_window": 5, "sliding_window_pattern": 2}),
        json!({"model_type": "glm4"}),
        json!({"model_type": "granite", "embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.3,
            "logits_scaling": 3.0}),
        json!({"model_type": "phi3", "partial_rotary_factor": 0.75, "head_dim": null}),
        json!({"model_type": "smollm3", "no_rope_layers": [1, 0], "head_dim": null}),
    ];
    own.into_iter().map(|own| small_family(head_dim, &own)).collect()
}

/// Two layers of each family whose norms are not an RMS norm of what a product takes and of single
/// heads, with heads of `head_dim` dimensions: norms of whole queries and keys, and after blocks
/// alone; layer norms with biases, and an MLP without a gate; one layer norm for attention and MLP, a
/// factor of logits, and a window of 5.
///
/// # Panics
/// For dimensions that a family refuses.
pub fn small_norms(head_dim: usize) -> Vec<ModelSpec> {
    let own = [
        json!({"model_type": "olmo2", "head_dim": null}),
        json!({"model_type": "starcoder2", "head_dim": null, "rms_norm_eps": null, "norm_epsilon": 1e-5,
            "hidden_act": "gelu_pytorch_tanh"}),
        json!({"model_type": "cohere2", "rms_norm_eps": null, "layer_norm_eps": 1e-5, "logit_scale": 0.25,
            "sliding_window": 5, "sliding_window_pattern": 2}),
    ];
    own.into_iter().map(|own| small_family(head_dim, &own)).collect()
}

/// Two layers of each family with a mixture of experts, with heads of `head_dim` dimensions: a choice
/// of two of six by the softmax over these, of three of nine by that over all, of two of seven with
/// biases, sinks and a window of 5, and of two of five beside an expert that every row takes.
///
/// # Panics
/// For dimensions that a family refuses.
pub fn small_mixtures(head_dim: usize) -> Vec<ModelSpec> {
    let own = [
        json!({"model_type": "mixtral", "num_local_experts": 6, "num_experts_per_tok": 2, "head_dim": null}),
        json!({"model_type": "qwen3_moe", "num_experts": 9, "num_experts_per_tok": 3, "moe_intermediate_size": 48}),
        json!({"model_type": "gpt_oss", "num_local_experts": 7, "num_experts_per_tok": 2, "sliding_window": 5,
            "quantization_config": {"quant_method": "mxfp4"}}),
        json!({"model_type": "qwen2_moe", "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
            "shared_expert_intermediate_size": 48, "head_dim": null}),
    ];
    own.into_iter().map(|own| small_family(head_dim, &own)).collect()
}

/// A model of two layers with heads of `head_dim` dimensions and these keys of its own; a key that
/// is null is left out.
///
/// # Panics
/// For a configuration that its family refuses.
pub fn small_family(head_dim: usize, own: &serde_json::Value) -> ModelSpec {
    let hidden = 4 * head_dim;
    let mut config = json!({
        "vocab_size": 136, "hidden_size": hidden, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": head_dim, "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
    });
    for (key, value) in own.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    if let Some(config) = config.as_object_mut() {
        config.retain(|_, value| !value.is_null());
    }
    let graph = models::graph(&config).unwrap_or_else(|error| panic!("{config}: {error}"));
    ModelSpec::new(graph, 256).unwrap_or_else(|error| panic!("{config}: {error}"))
}
