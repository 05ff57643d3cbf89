//! OLMo 2: norms of what attention and MLP give instead of what they take, and norms of whole
//! queries and keys.

use super::decoder::{self, Decoder, Defaults, QKV};
use super::keys::Keys;
use super::page::{Accept, Page};
use crate::build::{Block, Builder, Value};
use crate::graph::RopeId;
use crate::op::ActivationKind;

/// An OLMo 2 model.
struct Olmo2 {
    decoder: Decoder,
    bias: bool,
}

/// Takes the family's keys.
pub(super) fn read(keys: &mut Keys, _: &'static str, accept: &Accept) -> Box<dyn Page> {
    let decoder = Decoder::read(keys, Defaults { eps: 1e-5, ..Defaults::COMMON }, accept.max_context);
    decoder::silu(keys);
    Box::new(Olmo2 { bias: keys.boolean("attention_bias", false), decoder })
}

impl Page for Olmo2 {
    fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    fn build<'b>(&self, builder: &'b Builder) -> Value<'b> {
        self.decoder.logits(builder, 1.0, |b, _, x, rope| self.block(b, x, rope))
    }
}

impl Olmo2 {
    fn block<'b>(&self, b: &Block<'b>, x: Value<'b>, rope: RopeId) -> Value<'b> {
        let [q, k, v] = b.linear_split(x, QKV).map(|x| x.bias(self.bias));
        let q = b.rms_norm_of_rows(q, "self_attn.q_norm");
        let k = b.rms_norm_of_rows(k, "self_attn.k_norm");
        let [q, k] = b.rope(q, k, rope);
        let o = b.linear(b.attention(q, k, v), "self_attn.o_proj").bias(self.bias);
        let x = b.add(x, b.rms_norm(o, "post_attention_layernorm"));
        let m = decoder::gated_mlp(b, x, false, ActivationKind::Silu);
        b.add(x, b.rms_norm(m, "post_feedforward_layernorm"))
    }
}
