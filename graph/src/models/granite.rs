//! Granite: Llama's block with factors on embeddings, scores, what each part adds, and logits.

use super::decoder::{self, Decoder, Defaults, QKV};
use super::keys::Keys;
use super::page::{Accept, Page};
use crate::build::{Block, Builder, Value};
use crate::graph::RopeId;
use crate::op::ActivationKind;

/// A Granite model.
struct Granite {
    decoder: Decoder,
    attention_bias: bool,
    mlp_bias: bool,
    embedding_factor: f32,
    score_factor: f32,
    residual_factor: f32,
    logit_factor: f32,
}

/// Takes the family's keys.
pub(super) fn read(keys: &mut Keys, _: &'static str, accept: &Accept) -> Box<dyn Page> {
    let decoder = Decoder::read(keys, Defaults::COMMON, accept.max_context);
    decoder::silu(keys);
    Box::new(Granite {
        decoder,
        attention_bias: keys.boolean("attention_bias", false),
        mlp_bias: keys.boolean("mlp_bias", false),
        embedding_factor: decoder::factor(keys, "embedding_multiplier", 1.0) as f32,
        score_factor: decoder::factor(keys, "attention_multiplier", 1.0) as f32,
        residual_factor: decoder::factor(keys, "residual_multiplier", 1.0) as f32,
        // Logits are divided by the key's value.
        logit_factor: decoder::factor(keys, "logits_scaling", 1.0).recip() as f32,
    })
}

impl Page for Granite {
    fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    fn build<'b>(&self, builder: &'b Builder) -> Value<'b> {
        let logits = self.decoder.logits(builder, self.embedding_factor, |b, _, x, rope| self.block(b, x, rope));
        builder.root().scale(logits, self.logit_factor)
    }
}

impl Granite {
    fn block<'b>(&self, b: &Block<'b>, x: Value<'b>, rope: RopeId) -> Value<'b> {
        let h = b.rms_norm(x, "input_layernorm");
        let [q, k, v] = b.linear_split(h, QKV).map(|x| x.bias(self.attention_bias));
        let [q, k] = b.rope(q, k, rope);
        let a = b.attention(q, k, v).scale(self.score_factor);
        let o = b.linear(a, "self_attn.o_proj").bias(self.attention_bias);
        let x = b.add(x, b.scale(o, self.residual_factor));
        let h = b.rms_norm(x, "post_attention_layernorm");
        let m = decoder::gated_mlp(b, h, self.mlp_bias, ActivationKind::Silu);
        b.add(x, b.scale(m, self.residual_factor))
    }
}
