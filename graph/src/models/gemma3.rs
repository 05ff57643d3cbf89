//! Gemma 3, the language model: Gemma 2's block without caps on scores, with norms of queries and
//! keys, and with a rotation of its own for layers with a window.

use super::decoder::{self, Decoder, Defaults, QKV};
use super::keys::{Keys, Otherwise};
use super::page::{Accept, Page};
use super::rope::{self, RopeDefaults};
use crate::build::{Block, Builder, Value};
use crate::graph::{RopeId, RopeTable};
use crate::op::ActivationKind;

/// A Gemma 3 model.
struct Gemma3 {
    decoder: Decoder,
    /// The rotation of layers with a window; that of the others is the decoder's.
    local_rope: RopeTable,
    bias: bool,
    score_factor: f32,
    logit_cap: Option<f32>,
    /// The window of each layer, whether or not some sequence exceeds it.
    windows: Vec<Option<u32>>,
}

/// Takes the family's keys.
pub(super) fn read(keys: &mut Keys, _: &'static str, accept: &Accept) -> Box<dyn Page> {
    let defaults = Defaults { kv_heads: Some(4), head_dim: Some(256), tied: true, ..Defaults::COMMON };
    let local = RopeDefaults::COMMON;
    let full = RopeDefaults { theta: 1e6, ..local };
    let mut local_rope = RopeTable { frequencies: Vec::new(), scale: 1.0 };
    let decoder = Decoder::read_with(keys, defaults, accept.max_context, |keys, head_dim, positions| {
        let [table, table_of_windows] = rope::read_by_kind(keys, [&full, &local], head_dim, positions);
        local_rope = table_of_windows;
        table
    });
    decoder::activation(keys, "hidden_activation", &["gelu_pytorch_tanh"], "\"gelu_pytorch_tanh\"");
    // The class reads hidden_activation alone, and computes the other from sliding_window_pattern.
    decoder::ignore(keys, "hidden_act");
    decoder::ignore(keys, "_sliding_window_pattern");
    let pattern = Otherwise { absent: Some(6), null: None };
    let pattern: usize = keys.integer("sliding_window_pattern", 1..=u32::MAX, pattern);
    let window = decoder::window(keys, 4096);
    Box::new(Gemma3 {
        bias: keys.boolean("attention_bias", false),
        score_factor: decoder::factor(keys, "query_pre_attn_scalar", 256.0).powf(-0.5) as f32,
        logit_cap: decoder::optional(keys, "final_logit_softcapping", None),
        windows: decoder::windows(keys, decoder.layers, window, |layer| !(layer + 1).is_multiple_of(pattern)),
        local_rope,
        decoder,
    })
}

impl Page for Gemma3 {
    fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    fn build<'b>(&self, builder: &'b Builder) -> Value<'b> {
        let full = builder.rope_table(&self.decoder.rope);
        let local = builder.rope_table(&self.local_rope);
        let b = builder.root();
        let scale = (self.decoder.sizes.hidden as f32).sqrt();
        let x = self.decoder.layers(builder, scale, |b, layer, x| {
            let window = decoder::window_of(&self.windows, layer);
            self.block(b, x, window, if window.is_some() { local } else { full })
        });
        let h = b.rms_norm(x, "model.norm").unit_offset();
        b.soft_cap(b.logits(h, self.decoder.logits_module()), self.logit_cap)
    }
}

impl Gemma3 {
    fn block<'b>(&self, b: &Block<'b>, x: Value<'b>, window: Option<u32>, rope: RopeId) -> Value<'b> {
        let h = b.rms_norm(x, "input_layernorm").unit_offset();
        let [q, k, v] = b.linear_split(h, QKV).map(|x| x.bias(self.bias));
        let q = b.rms_norm(q, "self_attn.q_norm").unit_offset();
        let k = b.rms_norm(k, "self_attn.k_norm").unit_offset();
        let [q, k] = b.rope(q, k, rope);
        let window = window.filter(|&window| (window as usize) < self.decoder.max_positions);
        let a = b.attention(q, k, v).scale(self.score_factor).window(window);
        let o = b.linear(a, "self_attn.o_proj").bias(self.bias);
        let x = b.add(x, b.rms_norm(o, "post_attention_layernorm").unit_offset());
        let h = b.rms_norm(x, "pre_feedforward_layernorm").unit_offset();
        let m = decoder::gated_mlp(b, h, false, ActivationKind::GeluTanh);
        b.add(x, b.rms_norm(m, "post_feedforward_layernorm").unit_offset())
    }
}
