//! Gemma 2: `1 + w` norms before and after each part, soft caps, a window on even layers, scaled
//! embeddings.

use super::decoder::{self, Decoder, Defaults};
use super::keys::{Keys, Otherwise, RealBound};
use super::page::{Accept, Page};
use crate::build::{Block, Builder, Value};
use crate::graph::RopeId;
use crate::op::ActivationKind;

/// A Gemma 2 model.
struct Gemma2 {
    decoder: Decoder,
    bias: bool,
    attention_scale: f32,
    attention_cap: Option<f32>,
    logit_cap: Option<f32>,
    windows: Vec<Option<u32>>,
}

/// Takes the family's keys.
pub(super) fn read(keys: &mut Keys, _: &'static str, accept: &Accept) -> Box<dyn Page> {
    Box::new(Gemma2::read(keys, accept))
}

impl Gemma2 {
    fn read(keys: &mut Keys, accept: &Accept) -> Gemma2 {
        let defaults = Defaults { kv_heads: Some(4), head_dim: Some(256), tied: true, ..Defaults::COMMON };
        let decoder = Decoder::read(keys, defaults, accept.max_context);
        decoder::activation(keys, "hidden_activation", &["gelu_pytorch_tanh"], "\"gelu_pytorch_tanh\"");
        // The class reads hidden_activation alone; files of the first release have both.
        decoder::ignore(keys, "hidden_act");
        let scalar = Otherwise { absent: Some(256.0), null: None };
        let scalar = keys.real("query_pre_attn_scalar", RealBound::Above(0.0, 1e6), scalar);
        let window = decoder::window(keys, 4096);
        Gemma2 {
            bias: keys.boolean("attention_bias", false),
            attention_scale: scalar.powf(-0.5) as f32,
            attention_cap: decoder::optional(keys, "attn_logit_softcapping", Some(50.0)),
            logit_cap: decoder::optional(keys, "final_logit_softcapping", Some(30.0)),
            windows: decoder::windows(keys, decoder.layers, window, |layer| layer % 2 == 0),
            decoder,
        }
    }
}

impl Page for Gemma2 {
    fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    fn build<'b>(&self, builder: &'b Builder) -> Value<'b> {
        let rope = builder.rope_table(&self.decoder.rope);
        let b = builder.root();
        let scale = (self.decoder.sizes.hidden as f32).sqrt();
        let x = self.decoder.layers(builder, scale, |b, layer, x| self.block(b, layer, x, rope));
        let h = b.rms_norm(x, "model.norm").unit_offset();
        b.soft_cap(b.logits(h, self.decoder.logits_module()), self.logit_cap)
    }
}

impl Gemma2 {
    fn block<'b>(&self, b: &Block<'b>, layer: usize, x: Value<'b>, rope: RopeId) -> Value<'b> {
        let h = b.rms_norm(x, "input_layernorm").unit_offset();
        let [q, k, v] =
            b.linear_split(h, ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]).map(|x| x.bias(self.bias));
        let [q, k] = b.rope(q, k, rope);
        let window = decoder::window_of(&self.windows, layer);
        let a = b.attention(q, k, v).scale(self.attention_scale).soft_cap(self.attention_cap).window(window);
        let o = b.linear(a, "self_attn.o_proj").bias(self.bias);
        let x = b.add(x, b.rms_norm(o, "post_attention_layernorm").unit_offset());
        let h = b.rms_norm(x, "pre_feedforward_layernorm").unit_offset();
        let m = decoder::gated_mlp(b, h, false, ActivationKind::GeluTanh);
        b.add(x, b.rms_norm(m, "post_feedforward_layernorm").unit_offset())
    }
}
