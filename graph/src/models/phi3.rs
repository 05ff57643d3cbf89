//! Phi 3 and Phi 4: Llama's block with one weight for queries, keys and values and one for gate and
//! up, a partial rotation, and factors for long texts.

use super::decoder::{self, Decoder, Defaults};
use super::keys::Keys;
use super::page::{Accept, Page};
use super::rope::RopeDefaults;
use crate::build::{Block, Builder, Value};
use crate::graph::RopeId;
use crate::op::ActivationKind;

/// A Phi 3 model.
struct Phi3 {
    decoder: Decoder,
    windows: Vec<Option<u32>>,
}

/// Takes the family's keys.
pub(super) fn read(keys: &mut Keys, _: &'static str, accept: &Accept) -> Box<dyn Page> {
    let rope = RopeDefaults { partial: Some(1.0), original: Some(4096), ..RopeDefaults::COMMON };
    let decoder = Decoder::read(keys, Defaults { eps: 1e-5, rope, ..Defaults::COMMON }, accept.max_context);
    decoder::silu(keys);
    // The code that files of the first releases bring is that of the class.
    decoder::ignore(keys, "auto_map");
    Box::new(Phi3 { windows: decoder::one_window(keys, &decoder, None), decoder })
}

impl Page for Phi3 {
    fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    fn build<'b>(&self, builder: &'b Builder) -> Value<'b> {
        self.decoder.logits(builder, 1.0, |b, layer, x, rope| self.block(b, layer, x, rope))
    }
}

impl Phi3 {
    fn block<'b>(&self, b: &Block<'b>, layer: usize, x: Value<'b>, rope: RopeId) -> Value<'b> {
        let h = b.rms_norm(x, "input_layernorm");
        let [q, k, v] = b.linear_fused(h, "self_attn.qkv_proj");
        let [q, k] = b.rope(q, k, rope);
        let a = b.attention(q, k, v).window(decoder::window_of(&self.windows, layer));
        let x = b.add(x, b.linear(a, "self_attn.o_proj"));
        let h = b.rms_norm(x, "post_attention_layernorm");
        let m = b.gated_fused(h, "mlp.gate_up_proj", ActivationKind::Silu);
        b.add(x, b.linear(m, "mlp.down_proj"))
    }
}
