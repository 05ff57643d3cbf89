//! Random configurations of every family have a graph that runs, and that passes keep.

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Map, Value, json};
use tilewright_graph::{Graph, models, passes};

use crate::laws::{budget, computed, prompts, whole};

/// The random numbers from which a configuration is drawn.
#[derive(Clone, Debug)]
struct ConfigDraw {
    family: Index,
    /// Hidden size, heads of keys and values, query heads for each, quarters of a head's dimensions,
    /// inside of an MLP, vocabulary, layers.
    sizes: [u32; 7],
    window: Option<u32>,
    /// Layers from one with full attention, experts or without rotation to the next.
    pattern: u32,
    experts: u32,
    chosen: u32,
    factor: f64,
    flags: [bool; 3],
}

fn draws() -> impl Strategy<Value = ConfigDraw> {
    let sizes = (1u32..=9, 1u32..=2, 1u32..=3, 1u32..=2, 1u32..=6, 2u32..=9, 1u32..=3);
    let sizes = sizes.prop_map(|(a, b, c, d, e, f, g)| [a, b, c, d, e, f, g]);
    let experts = (2u32..=16).prop_flat_map(|experts| (Just(experts), 1..=experts.min(4)));
    let window = prop::option::of(1u32..=9);
    let factor = prop_oneof![Just(0.5), Just(1.0), Just(1.7)];
    (any::<Index>(), sizes, window, 1u32..=3, experts, factor, any::<[bool; 3]>()).prop_map(
        |(family, sizes, window, pattern, (experts, chosen), factor, flags)| ConfigDraw {
            family,
            sizes,
            window,
            pattern,
            experts,
            chosen,
            factor,
            flags,
        },
    )
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().cloned().expect("an object")
}

/// The configuration of a draw. Sequences have at most eight positions.
fn configuration(draw: &ConfigDraw) -> Value {
    let families: Vec<&str> = models::families().collect();
    let family = *draw.family.get(&families);
    let [hidden, kv_heads, group, quarters, inner, vocab, layers] = draw.sizes;
    let head_dim = 4 * quarters;
    let [first, second, third] = draw.flags;
    let mut config = object(json!({
        "model_type": family, "vocab_size": vocab, "hidden_size": hidden, "intermediate_size": inner,
        "num_hidden_layers": layers, "num_attention_heads": kv_heads * group, "num_key_value_heads": kv_heads,
        "head_dim": head_dim, "max_position_embeddings": 8, "tie_word_embeddings": third,
    }));
    let bias = json!({"attention_bias": first});
    let window = json!({"sliding_window": draw.window});
    let pattern = json!({"sliding_window": draw.window, "sliding_window_pattern": draw.pattern});
    let sparse = json!({
        "norm_topk_prob": second, "num_experts": draw.experts, "num_experts_per_tok": draw.chosen,
        "moe_intermediate_size": inner + 1, "decoder_sparse_step": draw.pattern, "mlp_only_layers": [1],
        "use_sliding_window": draw.window.is_some(), "sliding_window": draw.window,
    });
    let local = json!({
        "num_local_experts": draw.experts, "num_experts_per_tok": draw.chosen, "sliding_window": draw.window,
    });
    let rotated = if first { head_dim } else { head_dim / 2 };
    let partial = f64::from(rotated) / f64::from(head_dim);
    let keys = match family {
        "olmo2" => vec![bias],
        "granite" => vec![
            bias,
            json!({"mlp_bias": second, "embedding_multiplier": draw.factor, "logits_scaling": draw.factor}),
            json!({"residual_multiplier": draw.factor, "attention_multiplier": 0.25}),
        ],
        "smollm3" => vec![
            bias,
            json!({"mlp_bias": second, "no_rope_layer_interval": draw.pattern}),
            json!({"use_sliding_window": draw.window.is_some(), "sliding_window": draw.window}),
        ],
        "phi3" if second => vec![window, json!({"partial_rotary_factor": partial})],
        "phi3" => {
            let factors: Vec<f64> = (0..rotated / 2).map(|pair| draw.factor + f64::from(pair)).collect();
            vec![
                window,
                json!({"partial_rotary_factor": partial, "original_max_position_embeddings": 1 + draw.experts}),
                json!({"rope_scaling": {"type": "longrope", "short_factor": factors, "long_factor": factors}}),
            ]
        }
        "gemma3_text" => {
            vec![bias, pattern, json!({"final_logit_softcapping": if second { Some(draw.factor) } else { None }})]
        }
        "glm4" => vec![bias, json!({"partial_rotary_factor": partial})],
        "cohere2" => vec![bias, pattern, json!({"logit_scale": draw.factor})],
        "starcoder2" => vec![window, json!({"use_bias": first})],
        "mixtral" => vec![local],
        "qwen2_moe" => vec![sparse, json!({"qkv_bias": first, "shared_expert_intermediate_size": inner})],
        "qwen3_moe" => vec![sparse, bias],
        "qwen3_next" => vec![
            bias,
            json!({"norm_topk_prob": second, "num_experts": draw.experts, "num_experts_per_tok": draw.chosen}),
            json!({"moe_intermediate_size": inner + 1, "decoder_sparse_step": draw.pattern, "mlp_only_layers": [1]}),
            json!({"partial_rotary_factor": partial, "full_attention_interval": 1 + draw.pattern % 3}),
            json!({"linear_num_key_heads": draw.chosen, "linear_num_value_heads": draw.chosen * (1 + u32::from(first))}),
            json!({"linear_key_head_dim": 3, "linear_value_head_dim": 2, "linear_conv_kernel_dim": 1 + draw.pattern % 4}),
            json!({"shared_expert_intermediate_size": inner}),
        ],
        "gpt_oss" => vec![local, bias, json!({"quantization_config": {"quant_method": "mxfp4"}})],
        "deepseek_v2" | "deepseek_v3" => vec![
            bias,
            json!({"qk_nope_head_dim": head_dim, "qk_rope_head_dim": head_dim, "v_head_dim": 3, "kv_lora_rank": 5}),
            json!({"q_lora_rank": if first { Some(4) } else { None }, "first_k_dense_replace": draw.pattern % 2}),
            json!({"n_routed_experts": 2 * draw.experts, "n_group": 2, "topk_group": 1 + u32::from(second)}),
            json!({"num_experts_per_tok": draw.chosen, "moe_intermediate_size": inner + 1, "n_shared_experts": 2}),
            json!({"topk_method": if third { "greedy" } else { "group_limited_greedy" }, "norm_topk_prob": third}),
        ],
        _ => Vec::new(),
    };
    config.extend(keys.into_iter().flat_map(object));
    // Layers by pattern need a window.
    if config.get("sliding_window") == Some(&Value::Null) && matches!(family, "gemma3_text" | "cohere2" | "gpt_oss") {
        config.insert("layer_types".to_owned(), json!(vec!["full_attention"; layers as usize]));
    }
    Value::Object(config)
}

/// Whether outputs differ by no more than sums in another order do.
fn is_near(found: &[Vec<u64>], expected: &[Vec<u64>]) -> bool {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let near = |(found, expected): (&Vec<u64>, &Vec<u64>)| {
        // Infinite numbers, and those that are none, are the same ones.
        let pairs = found.iter().zip(expected).filter(|(a, b)| a != b || f64::from_bits(**a).is_finite());
        let pairs = pairs.map(|(a, b)| [f64::from_bits(*a), f64::from_bits(*b)]);
        let difference = norm(&mut pairs.clone().map(|[a, b]| a - b));
        found.len() == expected.len() && difference <= 1e-9 * norm(&mut pairs.map(|[_, b]| b))
    };
    found.len() == expected.len() && found.iter().zip(expected).all(near)
}

proptest! {
    #![proptest_config(budget())]

    #[test]
    fn passes_keep_what_a_random_configuration_computes(
        draw in draws(), tokens in prompts(), step in 1usize..4, seed: u64
    ) {
        let config = configuration(&draw);
        let graph = match models::graph(&config) {
            Ok(graph) => graph,
            Err(error) => return Err(TestCaseError::fail(format!("{config}: {error}"))),
        };
        let text = serde_json::to_string(&graph).expect("JSON");
        prop_assert_eq!(&serde_json::from_str::<Graph>(&text).expect("a valid graph"), &graph);
        let expected = whole(&graph, &tokens, seed);
        prop_assert_eq!(&computed(&graph, &tokens, step, seed), &expected, "steps of {}: {}", step, config);
        let absorbed = passes::absorb_latents(&graph).expect("valid");
        let found = computed(&absorbed, &tokens, step, seed);
        prop_assert!(is_near(&found, &expected), "absorb_latents {}: {}", config, absorbed);
        let normal = passes::normalise(&graph).expect("valid");
        prop_assert_eq!(&whole(&normal, &tokens, seed), &expected, "normalise {}: {}", config, normal);
        for graph in [graph, normal] {
            let fused = passes::fuse(&graph).expect("valid");
            prop_assert_eq!(&whole(&fused, &tokens, seed), &expected, "fuse {}: {}", config, fused);
        }
    }
}
