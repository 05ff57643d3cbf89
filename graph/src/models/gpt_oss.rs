//! gpt-oss: experts with biases and a bounded activation, sinks, biases in attention, and a window
//! on even layers.
//!
//! The checkpoint has the weights of all experts of a layer in one tensor, as blocks of four bits and
//! scales, where rows of the gate and of the other factor take turns. The graph names those of each
//! expert, as other families do: `mlp.experts.3.gate_proj.weight`.

use serde_json::Value as Json;

use super::decoder::{self, Decoder, Defaults, QKV};
use super::keys::Keys;
use super::page::{Accept, Page};
use super::rope::{DefaultRule, RopeDefaults};
use crate::build::{Block, Builder, Mixture, Value};
use crate::graph::RopeId;
use crate::op::{ActivationKind, RouteKind};

/// A gpt-oss model.
struct GptOss {
    decoder: Decoder,
    bias: bool,
    experts: u32,
    chosen: u32,
    alpha: f32,
    limit: f32,
    windows: Vec<Option<u32>>,
}

/// Takes the family's keys.
pub(super) fn read(keys: &mut Keys, _: &'static str, accept: &Accept) -> Box<dyn Page> {
    let rope = RopeDefaults { theta: 150_000.0, rule: DefaultRule::GptOss, ..RopeDefaults::COMMON };
    let defaults = Defaults { kv_heads: Some(8), head_dim: Some(64), eps: 1e-5, rope, ..Defaults::COMMON };
    let decoder = Decoder::read(keys, defaults, accept.max_context);
    // The class reads none of these; the first two say again what other keys say.
    for key in ["experts_per_token", "initial_context_length", "hidden_act"] {
        decoder::ignore(keys, key);
    }
    let quantised = keys.get("quantization_config").cloned().unwrap_or(Json::Null);
    if quantised.get("quant_method").and_then(Json::as_str) != Some("mxfp4") {
        let meaning = "stores the experts' weights inputs by outputs";
        keys.unsupported("quantization_config", &quantised, meaning, "quant_method mxfp4");
    }
    let [experts, chosen] = decoder::experts(keys, ["num_local_experts", "num_experts"], [128, 4]);
    let window = decoder::window(keys, 128);
    let windows = decoder::windows(keys, decoder.layers, window, |layer| layer.is_multiple_of(2));
    Box::new(GptOss {
        bias: keys.boolean("attention_bias", true),
        experts,
        chosen,
        alpha: decoder::factor(keys, "swiglu_alpha", 1.702) as f32,
        limit: decoder::factor(keys, "swiglu_limit", 7.0) as f32,
        windows: decoder::in_force(windows, decoder.max_positions),
        decoder,
    })
}

impl Page for GptOss {
    fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    fn build<'b>(&self, builder: &'b Builder) -> Value<'b> {
        self.decoder.logits(builder, 1.0, |b, layer, x, rope| self.block(b, layer, x, rope))
    }
}

impl GptOss {
    fn block<'b>(&self, b: &Block<'b>, layer: usize, x: Value<'b>, rope: RopeId) -> Value<'b> {
        let h = b.rms_norm(x, "input_layernorm");
        let [q, k, v] = b.linear_split(h, QKV).map(|x| x.bias(self.bias));
        let [q, k] = b.rope(q, k, rope);
        let sinks = format!("model.layers.{layer}.self_attn.sinks");
        let a = b.attention(q, k, v).window(decoder::window_of(&self.windows, layer)).sinks(&sinks);
        let x = b.add(x, b.linear(a, "self_attn.o_proj").bias(self.bias));
        b.add(x, self.experts(b, b.rms_norm(x, "post_attention_layernorm").into()))
    }

    fn experts<'b>(&self, b: &Block<'b>, h: Value<'b>) -> Value<'b> {
        b.mixture(
            h,
            Mixture {
                router: "mlp.router",
                gate: "mlp.experts.{expert}.gate_proj",
                up: "mlp.experts.{expert}.up_proj",
                down: "mlp.experts.{expert}.down_proj",
                experts: self.experts.into(),
                chosen: self.chosen,
                inner: self.decoder.sizes.inner,
                route: RouteKind::TopKThenSoftmax,
                correction: None,
                scale: 1.0,
                kind: ActivationKind::ClampedSwiglu { alpha: self.alpha, limit: self.limit },
                bias: true,
            },
        )
    }
}
