//! GLM 4: norms before and after each part, biases on q, k and v, and a partial rotation of
//! neighbouring dimensions.

use super::decoder::{self, Decoder, Defaults, QKV};
use super::keys::Keys;
use super::page::{Accept, Page};
use super::rope::RopeDefaults;
use crate::build::{Block, Builder, Value};
use crate::graph::RopeId;
use crate::op::{ActivationKind, RopePairs};

/// A GLM 4 model.
struct Glm4 {
    decoder: Decoder,
    bias: bool,
}

/// Takes the family's keys.
pub(super) fn read(keys: &mut Keys, _: &'static str, accept: &Accept) -> Box<dyn Page> {
    let rope = RopeDefaults { partial: Some(0.5), ..RopeDefaults::COMMON };
    let defaults = Defaults { kv_heads: Some(2), head_dim: Some(128), eps: 1.5625e-7, rope, ..Defaults::COMMON };
    let decoder = Decoder::read(keys, defaults, accept.max_context);
    decoder::silu(keys);
    Box::new(Glm4 { bias: keys.boolean("attention_bias", true), decoder })
}

impl Page for Glm4 {
    fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    fn build<'b>(&self, builder: &'b Builder) -> Value<'b> {
        self.decoder.logits(builder, 1.0, |b, _, x, rope| self.block(b, x, rope))
    }
}

impl Glm4 {
    fn block<'b>(&self, b: &Block<'b>, x: Value<'b>, rope: RopeId) -> Value<'b> {
        let h = b.rms_norm(x, "input_layernorm");
        let [q, k, v] = b.linear_split(h, QKV).map(|x| x.bias(self.bias));
        let [q, k] = b.rope_pairs(q, k, rope, RopePairs::Interleaved);
        let o = b.linear(b.attention(q, k, v), "self_attn.o_proj");
        let x = b.add(x, b.rms_norm(o, "post_self_attn_layernorm"));
        let h = b.rms_norm(x, "post_attention_layernorm");
        let m = b.gated_fused(h, "mlp.gate_up_proj", ActivationKind::Silu);
        b.add(x, b.rms_norm(b.linear(m, "mlp.down_proj"), "post_mlp_layernorm"))
    }
}
