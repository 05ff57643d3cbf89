//! Cohere 2 (Command R7B): attention and MLP side by side after one layer norm; layers with a
//! window rotate neighbouring dimensions, the others do not rotate.

use super::decoder::{self, Decoder, Defaults, QKV};
use super::keys::{Keys, Otherwise};
use super::page::{Accept, Page};
use crate::build::{Block, Builder, Value};
use crate::graph::RopeId;
use crate::op::{ActivationKind, RopePairs};

/// A Cohere 2 model.
struct Cohere2 {
    decoder: Decoder,
    bias: bool,
    logit_factor: f32,
    /// The window of each layer, whether or not some sequence exceeds it.
    windows: Vec<Option<u32>>,
}

/// Takes the family's keys.
pub(super) fn read(keys: &mut Keys, _: &'static str, accept: &Accept) -> Box<dyn Page> {
    let defaults = Defaults { tied: true, eps_key: "layer_norm_eps", eps: 1e-5, ..Defaults::COMMON };
    let decoder = Decoder::read(keys, defaults, accept.max_context);
    decoder::silu(keys);
    // Files of the first release say so what the class does without a key.
    for key in ["layer_switch", "order_of_interleaved_layers", "position_embedding_type", "rotary_pct"] {
        decoder::ignore(keys, key);
    }
    for key in ["use_embedding_sharing", "use_gated_activation", "use_parallel_block", "use_parallel_embedding"] {
        decoder::ignore(keys, key);
    }
    let pattern: usize =
        keys.integer("sliding_window_pattern", 1..=u32::MAX, Otherwise { absent: Some(4), null: None });
    let window = decoder::window(keys, 4096);
    Box::new(Cohere2 {
        bias: keys.boolean("attention_bias", false),
        logit_factor: decoder::factor(keys, "logit_scale", 0.0625) as f32,
        windows: decoder::windows(keys, decoder.layers, window, |layer| !(layer + 1).is_multiple_of(pattern)),
        decoder,
    })
}

impl Page for Cohere2 {
    fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    fn build<'b>(&self, builder: &'b Builder) -> Value<'b> {
        let rope = builder.rope_table(&self.decoder.rope);
        let b = builder.root();
        let x = self
            .decoder
            .layers(builder, 1.0, |b, layer, x| self.block(b, x, decoder::window_of(&self.windows, layer), rope));
        let logits = b.logits(b.layer_norm(x, "model.norm", false), self.decoder.logits_module());
        b.scale(logits, self.logit_factor)
    }
}

impl Cohere2 {
    fn block<'b>(&self, b: &Block<'b>, x: Value<'b>, window: Option<u32>, rope: RopeId) -> Value<'b> {
        let h = b.layer_norm(x, "input_layernorm", false);
        let [mut q, mut k, v] = b.linear_split(h, QKV).map(|x| x.bias(self.bias));
        if window.is_some() {
            [q, k] = b.rope_pairs(q, k, rope, RopePairs::Interleaved);
        }
        let window = window.filter(|&window| (window as usize) < self.decoder.max_positions);
        let a = b.attention(q, k, v).window(window);
        let x = b.add(x, b.linear(a, "self_attn.o_proj").bias(self.bias));
        b.add(x, decoder::gated_mlp(b, h, false, ActivationKind::Silu))
    }
}
