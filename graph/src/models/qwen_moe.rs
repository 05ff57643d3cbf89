//! Qwen2-MoE and Qwen3-MoE: mixtures of experts on some layers or all; the first has an expert
//! that every row takes, the second norms of queries and keys.

use std::collections::HashSet;

use serde_json::Value as Json;

use super::decoder::{self, Decoder, Defaults, QKV};
use super::keys::{Keys, Otherwise};
use super::page::{Accept, Page};
use crate::build::{Block, Builder, Mixture, Value};
use crate::graph::RopeId;
use crate::op::{ActivationKind, RouteKind};

/// A model of one of the families.
struct QwenMoe {
    decoder: Decoder,
    qkv_bias: bool,
    o_bias: bool,
    qk_norm: bool,
    windows: Vec<Option<u32>>,
    /// Whether each layer has experts.
    sparse: Vec<bool>,
    experts: u32,
    chosen: u32,
    /// The inside of an expert.
    inner: u64,
    /// The inside of the expert that every row takes.
    shared_inner: Option<u64>,
    renormalise: bool,
}

/// Takes the keys of a family.
pub(super) fn read(keys: &mut Keys, model_type: &'static str, accept: &Accept) -> Box<dyn Page> {
    let is_second = model_type == "qwen2_moe";
    let defaults = Defaults { kv_heads: Some(if is_second { 16 } else { 4 }), ..Defaults::COMMON };
    let decoder = Decoder::read(keys, defaults, accept.max_context);
    decoder::silu(keys);
    let bias = if is_second { keys.boolean("qkv_bias", true) } else { keys.boolean("attention_bias", false) };
    let [experts, chosen] = match is_second {
        true => decoder::experts(keys, ["num_experts", "num_experts"], [60, 4]),
        false => decoder::experts(keys, ["num_experts", "num_local_experts"], [128, 8]),
    };
    let windows = windows(keys, &decoder, is_second);
    Box::new(QwenMoe {
        qkv_bias: bias,
        o_bias: bias && !is_second,
        qk_norm: !is_second,
        windows,
        sparse: sparse(keys, decoder.layers),
        experts,
        chosen,
        inner: decoder::width(keys, "moe_intermediate_size", if is_second { 1408 } else { 768 }),
        shared_inner: is_second.then(|| decoder::width(keys, "shared_expert_intermediate_size", 5632)),
        renormalise: keys.boolean("norm_topk_prob", false),
        decoder,
    })
}

/// The window of each layer. That of Qwen2-MoE is in force on even layers below
/// `max_window_layers`, that of Qwen3-MoE on all.
fn windows(keys: &mut Keys, decoder: &Decoder, is_second: bool) -> Vec<Option<u32>> {
    let is_on = keys.boolean("use_sliding_window", false);
    let window = if is_on {
        decoder::window(keys, 4096)
    } else {
        // The class sets it to 0 then.
        decoder::ignore(keys, "sliding_window");
        None
    };
    let below = Otherwise { absent: Some(28), null: None };
    let below: usize = keys.integer("max_window_layers", 0..=u32::MAX, below);
    let is_sliding = |layer: usize| !is_second || (layer.is_multiple_of(2) && layer < below);
    let windows = decoder::windows(keys, decoder.layers, window, is_sliding);
    decoder::in_force(windows, decoder.max_positions)
}

/// Whether each layer has experts: every `decoder_sparse_step`-th, but for those of a list.
pub(super) fn sparse(keys: &mut Keys, layers: usize) -> Vec<bool> {
    const KEY: &str = "mlp_only_layers";
    let step = Otherwise { absent: Some(1), null: None };
    let step: usize = keys.integer("decoder_sparse_step", 1..=u32::MAX, step);
    let value = keys.take_value(KEY).unwrap_or_else(|| Json::Array(Vec::new()));
    let dense: Option<HashSet<u64>> = value.as_array().and_then(|list| list.iter().map(Json::as_u64).collect());
    if dense.is_none() {
        keys.wrong_type(KEY, &value, "a list of layers");
    }
    let dense = dense.unwrap_or_default();
    (0..layers).map(|layer| (layer + 1).is_multiple_of(step) && !dense.contains(&(layer as u64))).collect()
}

impl Page for QwenMoe {
    fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    fn build<'b>(&self, builder: &'b Builder) -> Value<'b> {
        self.decoder.logits(builder, 1.0, |b, layer, x, rope| self.block(b, layer, x, rope))
    }
}

impl QwenMoe {
    fn block<'b>(&self, b: &Block<'b>, layer: usize, x: Value<'b>, rope: RopeId) -> Value<'b> {
        let h = b.rms_norm(x, "input_layernorm");
        let [mut q, mut k, v] = b.linear_split(h, QKV).map(|x| x.bias(self.qkv_bias));
        if self.qk_norm {
            (q, k) = (b.rms_norm(q, "self_attn.q_norm").into(), b.rms_norm(k, "self_attn.k_norm").into());
        }
        let [q, k] = b.rope(q, k, rope);
        let a = b.attention(q, k, v).window(decoder::window_of(&self.windows, layer));
        let x = b.add(x, b.linear(a, "self_attn.o_proj").bias(self.o_bias));
        let h: Value<'b> = b.rms_norm(x, "post_attention_layernorm").into();
        if self.sparse.get(layer) != Some(&true) {
            return b.add(x, decoder::gated_mlp(b, h, false, ActivationKind::Silu));
        }
        let x = b.add(x, b.mixture(h, self.routed()));
        match self.shared_inner {
            Some(inner) => b.add(x, b.mixture(h, shared(inner))),
            None => x,
        }
    }

    /// The experts that a router chooses among.
    fn routed(&self) -> Mixture<'static> {
        let route = RouteKind::SoftmaxThenTopK { renormalise: self.renormalise };
        Mixture { experts: self.experts.into(), chosen: self.chosen, inner: self.inner, route, ..decoder::MIXTURE }
    }
}

/// The expert that every row takes, weighted by the sigmoid of its one logit: a mixture of one.
pub(super) fn shared(inner: u64) -> Mixture<'static> {
    Mixture {
        router: "mlp.shared_expert_gate",
        gate: "mlp.shared_expert.gate_proj",
        up: "mlp.shared_expert.up_proj",
        down: "mlp.shared_expert.down_proj",
        inner,
        route: RouteKind::Sigmoid,
        ..decoder::MIXTURE
    }
}
