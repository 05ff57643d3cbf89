//! StarCoder 2: layer norms, biases, and an MLP without a gate.

use super::decoder::{self, Decoder, Defaults, QKV};
use super::keys::Keys;
use super::page::{Accept, Page};
use crate::axis::{Axis, Dim};
use crate::build::{Block, Builder, Value};
use crate::graph::RopeId;
use crate::op::ActivationKind;

/// A StarCoder 2 model.
struct StarCoder2 {
    decoder: Decoder,
    bias: bool,
    windows: Vec<Option<u32>>,
}

/// Takes the family's keys.
pub(super) fn read(keys: &mut Keys, _: &'static str, accept: &Accept) -> Box<dyn Page> {
    let defaults = Defaults { kv_heads: Some(2), tied: true, eps_key: "norm_epsilon", eps: 1e-5, ..Defaults::COMMON };
    let decoder = Decoder::read(keys, defaults, accept.max_context);
    decoder::activation(keys, "hidden_act", &["gelu_pytorch_tanh"], "\"gelu_pytorch_tanh\"");
    // Files of the first release name what the class does without a key.
    decoder::ignore(keys, "mlp_type");
    decoder::ignore(keys, "norm_type");
    Box::new(StarCoder2 {
        bias: keys.boolean("use_bias", true),
        windows: decoder::one_window(keys, &decoder, None),
        decoder,
    })
}

impl Page for StarCoder2 {
    fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    fn build<'b>(&self, builder: &'b Builder) -> Value<'b> {
        let rope = builder.rope_table(&self.decoder.rope);
        let b = builder.root();
        let x = self.decoder.layers(builder, 1.0, |b, layer, x| self.block(b, layer, x, rope));
        b.logits(b.layer_norm(x, "model.norm", true), self.decoder.logits_module())
    }
}

impl StarCoder2 {
    fn block<'b>(&self, b: &Block<'b>, layer: usize, x: Value<'b>, rope: RopeId) -> Value<'b> {
        let h = b.layer_norm(x, "input_layernorm", true);
        let [q, k, v] = b.linear_split(h, QKV).map(|x| x.bias(self.bias));
        let [q, k] = b.rope(q, k, rope);
        let a = b.attention(q, k, v).window(decoder::window_of(&self.windows, layer));
        let x = b.add(x, b.linear(a, "self_attn.o_proj").bias(self.bias));
        let h = b.layer_norm(x, "post_attention_layernorm", true);
        let inner = Dim::known(Axis::Inner, self.decoder.sizes.inner);
        let m = b.activation(ActivationKind::GeluTanh, b.project(h, "mlp.c_fc", [inner]).bias(self.bias), None);
        b.add(x, b.linear(m, "mlp.c_proj").bias(self.bias))
    }
}
