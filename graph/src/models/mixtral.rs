//! Mixtral: Llama's block with a mixture of experts in place of the MLP.

use super::decoder::{self, Decoder, Defaults, QKV};
use super::keys::Keys;
use super::page::{Accept, Page};
use super::rope::RopeDefaults;
use crate::build::{Block, Builder, Mixture, Value};
use crate::graph::RopeId;
use crate::op::{ActivationKind, RouteKind};

/// A Mixtral model.
struct Mixtral {
    decoder: Decoder,
    experts: u32,
    chosen: u32,
    windows: Vec<Option<u32>>,
}

/// Takes the family's keys.
pub(super) fn read(keys: &mut Keys, _: &'static str, accept: &Accept) -> Box<dyn Page> {
    let rope = RopeDefaults { theta: 1e6, ..RopeDefaults::COMMON };
    let defaults = Defaults { kv_heads: Some(8), eps: 1e-5, rope, ..Defaults::COMMON };
    let decoder = Decoder::read(keys, defaults, accept.max_context);
    decoder::silu(keys);
    let [experts, chosen] = decoder::experts(keys, ["num_local_experts", "num_experts"], [8, 2]);
    Box::new(Mixtral { experts, chosen, windows: decoder::one_window(keys, &decoder, None), decoder })
}

impl Page for Mixtral {
    fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    fn build<'b>(&self, builder: &'b Builder) -> Value<'b> {
        self.decoder.logits(builder, 1.0, |b, layer, x, rope| self.block(b, layer, x, rope))
    }
}

impl Mixtral {
    fn block<'b>(&self, b: &Block<'b>, layer: usize, x: Value<'b>, rope: RopeId) -> Value<'b> {
        let h = b.rms_norm(x, "input_layernorm");
        let [q, k, v] = b.linear_split(h, QKV);
        let [q, k] = b.rope(q, k, rope);
        let a = b.attention(q, k, v).window(decoder::window_of(&self.windows, layer));
        let x = b.add(x, b.linear(a, "self_attn.o_proj"));
        let mixture = Mixture {
            router: "block_sparse_moe.gate",
            gate: "block_sparse_moe.experts.{expert}.w1",
            up: "block_sparse_moe.experts.{expert}.w3",
            down: "block_sparse_moe.experts.{expert}.w2",
            experts: self.experts.into(),
            chosen: self.chosen,
            inner: self.decoder.sizes.inner,
            route: RouteKind::SoftmaxThenTopK { renormalise: true },
            correction: None,
            scale: 1.0,
            kind: ActivationKind::Silu,
            bias: false,
        };
        b.add(x, b.mixture(b.rms_norm(x, "post_attention_layernorm"), mixture))
    }
}
