//! Qwen3-Next: three layers of the gated delta rule for each layer of attention, whose results have a
//! gate, and a mixture of experts with one that every row takes. Every norm but that of the delta
//! rule's results adds 1 to its weight.

use serde_json::Value as Json;

use super::decoder::{self, Decoder, Defaults};
use super::fault::KeyFault;
use super::keys::{Keys, Otherwise};
use super::page::{Accept, Page};
use super::qwen_moe;
use super::rope::RopeDefaults;
use crate::axis::{Axis, Dim};
use crate::build::{Block, Builder, ConvolvedRows, DeltaOperands, Mixture, Value};
use crate::graph::RopeId;
use crate::op::{ActivationKind, BinaryKind, RouteKind};

/// A model of the family.
struct Qwen3Next {
    decoder: Decoder,
    bias: bool,
    /// Whether each layer attends to all positions.
    attends: Vec<bool>,
    /// Whether each layer has experts.
    sparse: Vec<bool>,
    delta: Delta,
    experts: u32,
    chosen: u32,
    inner: u64,
    shared_inner: u64,
    renormalise: bool,
}

/// The sizes of layers of the delta rule.
struct Delta {
    taps: u64,
    key_heads: u64,
    key_dim: u64,
    value_heads: u64,
    value_dim: u64,
}

/// What the norms of keys and queries of the delta rule add.
const UNIT_EPS: f32 = 1e-6;

/// Takes the family's keys.
pub(super) fn read(keys: &mut Keys, _: &'static str, accept: &Accept) -> Box<dyn Page> {
    let rope = RopeDefaults { partial: Some(0.25), ..RopeDefaults::COMMON };
    let defaults = Defaults { kv_heads: Some(2), head_dim: Some(256), rope, ..Defaults::COMMON };
    let decoder = Decoder::read(keys, defaults, accept.max_context);
    decoder::silu(keys);
    let [experts, chosen] = decoder::experts(keys, ["num_experts", "num_local_experts"], [512, 10]);
    let delta = Delta {
        taps: decoder::width(keys, "linear_conv_kernel_dim", 4),
        key_heads: decoder::width(keys, "linear_num_key_heads", 16),
        key_dim: decoder::width(keys, "linear_key_head_dim", 128),
        value_heads: decoder::width(keys, "linear_num_value_heads", 32),
        value_dim: decoder::width(keys, "linear_value_head_dim", 128),
    };
    if keys.faults.is_empty() && !delta.value_heads.is_multiple_of(delta.key_heads) {
        let [key, divisor_key] = ["linear_num_value_heads", "linear_num_key_heads"];
        let [value, divisor] = [delta.value_heads, delta.key_heads].map(|number| number as usize);
        keys.faults.push(KeyFault::Multiple { key, value, divisor_key, divisor });
    }
    Box::new(Qwen3Next {
        bias: keys.boolean("attention_bias", false),
        attends: attends(keys, decoder.layers),
        sparse: qwen_moe::sparse(keys, decoder.layers),
        delta,
        experts,
        chosen,
        inner: decoder::width(keys, "moe_intermediate_size", 512),
        shared_inner: decoder::width(keys, "shared_expert_intermediate_size", 512),
        renormalise: keys.boolean("norm_topk_prob", true),
        decoder,
    })
}

/// Whether each layer attends to all positions: by `layer_types`, or every
/// `full_attention_interval`-th.
fn attends(keys: &mut Keys, layers: usize) -> Vec<bool> {
    const KEY: &str = "layer_types";
    let interval = Otherwise { absent: Some(4), null: None };
    let interval: usize = keys.integer("full_attention_interval", 1..=u32::MAX, interval);
    let by_interval = || (0..layers).map(|layer| (layer + 1).is_multiple_of(interval)).collect();
    let Some(value) = keys.take_value(KEY).filter(|value| !value.is_null()) else { return by_interval() };
    let Some(kinds) = value.as_array() else {
        keys.wrong_type(KEY, &value, "a list of names");
        return Vec::new();
    };
    if kinds.len() != layers {
        keys.faults.push(KeyFault::LayerList { key: KEY, entries: kinds.len(), layers });
    }
    let kind = |kind: &Json| match kind.as_str() {
        Some("full_attention") => Some(true),
        Some("linear_attention") => Some(false),
        _ => None,
    };
    kinds.iter().map(kind).collect::<Option<Vec<bool>>>().unwrap_or_else(|| {
        keys.unsupported(KEY, &value, "gives a layer another attention", "full_attention or linear_attention");
        Vec::new()
    })
}

impl Page for Qwen3Next {
    fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    fn build<'b>(&self, builder: &'b Builder) -> Value<'b> {
        let rope = builder.rope_table(&self.decoder.rope);
        let x = self.decoder.layers(builder, 1.0, |b, layer, x| self.block(b, layer, x, rope));
        let b = builder.root();
        b.logits(b.rms_norm(x, "model.norm").unit_offset(), self.decoder.logits_module())
    }
}

impl Qwen3Next {
    fn block<'b>(&self, b: &Block<'b>, layer: usize, x: Value<'b>, rope: RopeId) -> Value<'b> {
        let h = b.rms_norm(x, "input_layernorm").unit_offset();
        let mixed = match self.attends.get(layer) {
            Some(false) => self.delta.rule(b, h),
            Some(true) | None => self.attention(b, h, rope),
        };
        let x = b.add(x, mixed);
        let h = b.rms_norm(x, "post_attention_layernorm").unit_offset();
        if self.sparse.get(layer) != Some(&true) {
            return b.add(x, decoder::gated_mlp(b, h, false, ActivationKind::Silu));
        }
        b.add(b.add(x, b.mixture(h, self.routed())), b.mixture(h, qwen_moe::shared(self.shared_inner)))
    }

    /// Attention, whose results are multiplied by the sigmoid of a part of the product of queries.
    fn attention<'b>(&self, b: &Block<'b>, h: Value<'b>, rope: RopeId) -> Value<'b> {
        let sizes = self.decoder.sizes;
        let of_heads = |axis, heads, size| vec![Dim::known(axis, heads), Dim::known(Axis::HeadDim, size)];
        let q = b.project(h, "self_attn.q_proj", of_heads(Axis::Heads, sizes.heads, sizes.head_dim.saturating_mul(2)));
        let [q, gate] = b.split(q.bias(self.bias), [sizes.head_dim; 2]);
        let [k, v] = ["self_attn.k_proj", "self_attn.v_proj"].map(|module| {
            b.project(h, module, of_heads(Axis::KvHeads, sizes.kv_heads, sizes.head_dim)).bias(self.bias)
        });
        let q = b.rms_norm(q, "self_attn.q_norm").unit_offset();
        let k = b.rms_norm(k, "self_attn.k_norm").unit_offset();
        let [q, k] = b.rope(q, k, rope);
        let gate = b.activation(ActivationKind::Sigmoid, gate, None);
        b.linear(b.binary(BinaryKind::Mul, b.attention(q, k, v), gate), "self_attn.o_proj").bias(self.bias)
    }

    /// The experts that a router chooses among.
    fn routed(&self) -> Mixture<'static> {
        let route = RouteKind::SoftmaxThenTopK { renormalise: self.renormalise };
        Mixture { experts: self.experts.into(), chosen: self.chosen, inner: self.inner, route, ..decoder::MIXTURE }
    }
}

impl Delta {
    /// The gated delta rule on convolved queries, keys and values, and a norm of each head's result
    /// that is gated.
    fn rule<'b>(&self, b: &Block<'b>, h: Value<'b>) -> Value<'b> {
        let &Delta { taps, key_heads, key_dim, value_heads, value_dim } = self;
        let each = value_heads / key_heads.max(1);
        let values = each.saturating_mul(value_dim);
        // Keys, or queries, of all heads.
        let all_keys = key_heads.saturating_mul(key_dim);
        let twice = |size: u64| size.saturating_mul(2);
        let of_keys = |size| [Dim::known(Axis::KvHeads, key_heads), Dim::known(Axis::HeadDim, size)];
        let qkvz = b.project(h, "linear_attn.in_proj_qkvz", of_keys(twice(key_dim.saturating_add(values))));
        let [q, k, v, z] = b.split(qkvz, [key_dim, key_dim, values, values]);
        let [beta, decay] = b.split(b.project(h, "linear_attn.in_proj_ba", of_keys(twice(each))), [each; 2]);
        let channels = twice(all_keys).saturating_add(key_heads.saturating_mul(values));
        let convolved = |x, start| {
            let rows = ConvolvedRows { channels, start, taps };
            b.activation(ActivationKind::Silu, b.convolve(x, "linear_attn.conv1d", rows), None)
        };
        let q = convolved(q, 0);
        let k = convolved(k, all_keys);
        let v = convolved(v, twice(all_keys));
        let o = b.delta_rule(DeltaOperands { q, k, v, a: decay, b: beta }, "linear_attn", UNIT_EPS);
        let heads = || [Dim::known(Axis::Heads, value_heads), Dim::known(Axis::HeadDim, value_dim)];
        let o = b.rms_norm(b.regroup(o, heads()), "linear_attn.norm");
        let o = b.activation(ActivationKind::Silu, o, Some(b.regroup(z, heads())));
        b.linear(o, "linear_attn.out_proj").into()
    }
}
