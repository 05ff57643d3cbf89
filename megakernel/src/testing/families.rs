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

/// Two layers of each family whose heads attend to latent vectors, a dense one and one of experts:
/// queries of the residual stream, and the best two of four groups by softmax with a factor; queries
/// of a latent vector, and the best of two groups by sigmoid with a correction, beside a shared
/// expert of another width, with rotations stretched by yarn; more heads than a tile of 16 has.
///
/// # Panics
/// For dimensions that a family refuses.
pub fn small_latents() -> Vec<ModelSpec> {
    let latent = json!({
        "num_key_value_heads": 4, "head_dim": null, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16,
        "v_head_dim": 16, "first_k_dense_replace": 1, "n_routed_experts": 8, "num_experts_per_tok": 2,
        "moe_intermediate_size": 32, "q_lora_rank": null,
    });
    let of = |heads: usize, own: serde_json::Value| {
        let mut all = latent.clone();
        for (key, value) in own.as_object().into_iter().flatten() {
            all[key] = value.clone();
        }
        all["num_attention_heads"] = json!(heads);
        small_config(16, &all, &["q_lora_rank"])
    };
    let yarn = json!({"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 32, "beta_slow": 1,
        "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 64});
    vec![
        of(
            4,
            json!({"model_type": "deepseek_v2", "n_group": 4, "topk_group": 2, "topk_method": "group_limited_greedy",
            "routed_scaling_factor": 1.5}),
        ),
        of(
            4,
            json!({"model_type": "deepseek_v3", "q_lora_rank": 48, "n_group": 2, "topk_group": 1,
            "rope_scaling": yarn}),
        ),
        of(20, json!({"model_type": "deepseek_v3", "q_lora_rank": 48, "n_group": 1, "topk_group": 1})),
    ]
}

/// A model of two layers with heads of `head_dim` dimensions and these keys of its own; a key that
/// is null is left out.
///
/// # Panics
/// For a configuration that its family refuses.
pub fn small_family(head_dim: usize, own: &serde_json::Value) -> ModelSpec {
    small_config(head_dim, own, &[])
}

/// As [`small_family`]; these keys may be null.
fn small_config(head_dim: usize, own: &serde_json::Value, nulls: &[&str]) -> ModelSpec {
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
        config.retain(|key, value| !value.is_null() || nulls.contains(&key.as_str()));
    }
    let graph = models::graph(&config).unwrap_or_else(|error| panic!("{config}: {error}"));
    ModelSpec::new(graph, 256).unwrap_or_else(|error| panic!("{config}: {error}"))
}
