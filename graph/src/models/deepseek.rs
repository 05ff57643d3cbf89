//! DeepSeek V2 and V3: keys and values of a layer from one latent vector of a token, a rotated part of
//! each key that heads share, and a mixture of experts beside an MLP that every row takes.
//!
//! Keys and values are expanded here, as the formula has them; queries are from a latent vector of
//! their own, or from the residual stream.

use serde_json::Value as Json;

use super::decoder::{self, Decoder, Defaults};
use super::keys::{Keys, Otherwise};
use super::page::{Accept, Page};
use super::rope;
use crate::axis::{Axis, Dim};
use crate::build::{Block, Builder, Gated, Mixture, Value};
use crate::graph::RopeId;
use crate::op::{ActivationKind, RopePairs, RouteKind};

/// A model of one of the families.
struct DeepSeek {
    decoder: Decoder,
    bias: bool,
    mlp_bias: bool,
    /// The latent vector of queries.
    q_latent: Option<u64>,
    kv_latent: u64,
    /// Dimensions of a key that are not rotated, that are, and of a value.
    plain: u64,
    rotated: u64,
    value: u64,
    pairs: RopePairs,
    /// The factor on scores.
    scale: f32,
    /// Layers before those with experts.
    dense: usize,
    experts: u32,
    chosen: u32,
    inner: u64,
    shared_inner: u64,
    route: RouteKind,
    has_correction: bool,
    route_scale: f32,
}

/// What the norms of latent vectors add to the mean square, whatever the configuration says.
const LATENT_EPS: f32 = 1e-6;

/// Defaults that differ between the two.
struct Own {
    dense: usize,
    experts: [u32; 2],
    groups: u32,
    kept: u32,
    inner: u32,
    shared: u32,
    route_scale: f64,
}

const V2: Own = Own { dense: 0, experts: [64, 8], groups: 1, kept: 1, inner: 1407, shared: 2, route_scale: 1.0 };
const V3: Own = Own { dense: 3, experts: [256, 8], groups: 8, kept: 4, inner: 2048, shared: 1, route_scale: 2.5 };

/// Takes the keys of a family.
pub(super) fn read(keys: &mut Keys, model_type: &'static str, accept: &Accept) -> Box<dyn Page> {
    let is_third = model_type == "deepseek_v3";
    let stretched = stretched(keys);
    let own = if is_third { V3 } else { V2 };
    let plain = decoder::width(keys, "qk_nope_head_dim", 128);
    let rotated = decoder::width(keys, "qk_rope_head_dim", 64);
    let defaults = Defaults { head_dim: Some(rotated as usize), ..Defaults::COMMON };
    let mut decoder = Decoder::read_with(keys, defaults, accept.max_context, |keys, _, positions| {
        rope::read(keys, &defaults.rope, rotated as usize, positions)
    });
    decoder::silu(keys);
    decoder::ignore(keys, "qk_head_dim");
    // Every head has keys of its own, whatever `num_key_value_heads` says. These are the dimensions of a
    // whole key; those that rotate are the key `head_dim`.
    decoder.sizes.head_dim = plain.saturating_add(rotated);
    let q_latent: Option<usize> =
        keys.integer("q_lora_rank", 1..=1 << 20, Otherwise { absent: Some(Some(1536)), null: Some(None) });
    let [experts, chosen] = decoder::experts(keys, ["n_routed_experts", "num_experts"], own.experts);
    let route = if is_third { third_route(keys, &own, experts) } else { second_route(keys, experts) };
    let shared = Otherwise { absent: Some(own.shared as usize), null: None };
    let shared: usize = keys.integer("n_shared_experts", 1..=1 << 10, shared);
    let dense = Otherwise { absent: Some(own.dense), null: None };
    let inner = decoder::width(keys, "moe_intermediate_size", own.inner);
    let pairs =
        if !is_third || keys.boolean("rope_interleave", true) { RopePairs::Interleaved } else { RopePairs::Halves };
    for key in ["scoring_func", "moe_layer_freq", "ep_size", "aux_loss_alpha", "seq_aux", "num_nextn_predict_layers"] {
        decoder::ignore(keys, key);
    }
    Box::new(DeepSeek {
        bias: keys.boolean("attention_bias", false),
        mlp_bias: !is_third && keys.boolean("mlp_bias", false),
        q_latent: q_latent.map(|latent| latent as u64),
        kv_latent: decoder::width(keys, "kv_lora_rank", 512),
        plain,
        rotated,
        value: decoder::width(keys, "v_head_dim", 128),
        pairs,
        scale: ((decoder.sizes.head_dim as f64).powf(-0.5) * stretched * stretched) as f32,
        dense: keys.integer("first_k_dense_replace", 0..=1 << 12, dense),
        experts,
        chosen,
        inner,
        shared_inner: inner.saturating_mul(shared as u64),
        route,
        has_correction: is_third,
        route_scale: decoder::factor(keys, "routed_scaling_factor", own.route_scale) as f32,
        decoder,
    })
}

/// The factor on queries and keys by which the rule yarn is about all of their dimensions.
fn stretched(keys: &Keys) -> f64 {
    let rule = ["rope_parameters", "rope_scaling"].into_iter().find_map(|key| keys.get(key));
    let number = |key: &str| rule.and_then(|rule| rule.get(key)).and_then(Json::as_f64);
    match (number("factor"), number("mscale_all_dim")) {
        (Some(factor), Some(all)) if factor > 1.0 && all != 0.0 => 0.1 * all * factor.ln() + 1.0,
        _ => 1.0,
    }
}

/// Takes the number of groups and of those that are kept.
fn groups(keys: &mut Keys, experts: u32, absent: [u32; 2]) -> [u32; 2] {
    let [groups, kept] = [("n_group", absent[0]), ("topk_group", absent[1])].map(|(key, absent)| {
        let otherwise = Otherwise { absent: Some(absent as usize), null: Some(1) };
        let number: usize = keys.integer(key, 1..=experts, otherwise);
        u32::try_from(number).unwrap_or(1)
    });
    [groups, kept]
}

/// The choice of V2: by softmax, of all experts or of the best groups.
fn second_route(keys: &mut Keys, experts: u32) -> RouteKind {
    const KEY: &str = "topk_method";
    let [groups, kept] = groups(keys, experts, [1, 1]);
    // The class has the key and does not read it.
    decoder::ignore(keys, "norm_topk_prob");
    let method = keys.take(KEY);
    match method.as_ref().map(|method| method.as_str()) {
        None | Some(Some("greedy")) => RouteKind::SoftmaxThenTopK { renormalise: false },
        Some(Some("group_limited_greedy")) => RouteKind::SoftmaxInGroups { groups, kept },
        Some(_) => {
            let value = method.unwrap_or_default();
            keys.unsupported(KEY, &value, "chooses experts in another way", "greedy or group_limited_greedy");
            RouteKind::SoftmaxThenTopK { renormalise: false }
        }
    }
}

/// The choice of V3: by sigmoid, corrected, of the best groups.
fn third_route(keys: &mut Keys, own: &Own, experts: u32) -> RouteKind {
    decoder::ignore(keys, "topk_method");
    let [groups, kept] = groups(keys, experts, [own.groups, own.kept]);
    RouteKind::SigmoidInGroups { groups, kept, renormalise: keys.boolean("norm_topk_prob", true) }
}

impl Page for DeepSeek {
    fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    fn build<'b>(&self, builder: &'b Builder) -> Value<'b> {
        self.decoder.logits(builder, 1.0, |b, layer, x, rope| self.block(b, layer, x, rope))
    }
}

impl DeepSeek {
    fn block<'b>(&self, b: &Block<'b>, layer: usize, x: Value<'b>, rope: RopeId) -> Value<'b> {
        let x = b.add(x, self.attention(b, b.rms_norm(x, "input_layernorm").into(), rope));
        let h: Value<'b> = b.rms_norm(x, "post_attention_layernorm").into();
        if layer < self.dense {
            return b.add(x, decoder::gated_mlp(b, h, self.mlp_bias, ActivationKind::Silu));
        }
        b.add(b.add(x, b.mixture(h, self.routed())), self.shared(b, h))
    }

    fn attention<'b>(&self, b: &Block<'b>, h: Value<'b>, rope: RopeId) -> Value<'b> {
        let heads = self.decoder.sizes.heads;
        let of_heads = |axis, heads, size| vec![Dim::known(axis, heads), Dim::known(Axis::HeadDim, size)];
        let key = self.decoder.sizes.head_dim;
        let latent = |size| Dim::known(Axis::Named("latent".to_owned()), size);
        let q: Value<'b> = match self.q_latent {
            None => b.project(h, "self_attn.q_proj", of_heads(Axis::Heads, heads, key)).into(),
            Some(size) => {
                let q = b.project(h, "self_attn.q_a_proj", [latent(size)]).bias(self.bias);
                let q = b.rms_norm(q, "self_attn.q_a_layernorm").eps(LATENT_EPS);
                b.project(q, "self_attn.q_b_proj", of_heads(Axis::Heads, heads, key)).into()
            }
        };
        let [q, q_turned] = b.split::<2>(q, [self.plain, self.rotated]);
        let outs = [vec![latent(self.kv_latent)], of_heads(Axis::KvHeads, 1, self.rotated)];
        let [kv, k_turned] = b.project_parts(h, "self_attn.kv_a_proj_with_mqa", outs).map(|part| part.bias(self.bias));
        let kv = b.rms_norm(kv, "self_attn.kv_a_layernorm").eps(LATENT_EPS);
        let kv = b.project(kv, "self_attn.kv_b_proj", of_heads(Axis::KvHeads, heads, self.plain + self.value));
        let [k, v] = b.split(kv, [self.plain, self.value]);
        let [q_turned, k_turned] = b.rope_pairs(q_turned, k_turned, rope, self.pairs);
        let attended = b.attention(b.concat(q, q_turned), b.concat(k, k_turned), v).scale(self.scale);
        b.linear(attended, "self_attn.o_proj").bias(self.bias)
    }

    /// The experts that a router chooses among.
    fn routed(&self) -> Mixture<'static> {
        Mixture {
            experts: self.experts.into(),
            chosen: self.chosen,
            inner: self.inner,
            route: self.route,
            correction: self.has_correction.then_some("mlp.gate.e_score_correction_bias"),
            scale: self.route_scale,
            ..decoder::MIXTURE
        }
    }

    /// The MLP that every row takes.
    fn shared<'b>(&self, b: &Block<'b>, h: Value<'b>) -> Value<'b> {
        let [gate, up] = ["mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj"];
        let modules = Gated { gate, up, bias: self.mlp_bias, kind: ActivationKind::Silu };
        b.linear(b.gated_of(h, modules, self.shared_inner), "mlp.shared_experts.down_proj").bias(self.mlp_bias)
    }
}
