//! Granite: Llama's block with factors on embeddings, scores, what each part adds, and logits.

use super::decoder::{self, Decoder, Defaults, QKV};
use super::keys::Keys;
use super::page::{Accept, Page};
use crate::build::{Block, Builder, Gated, Value};
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
    decoder::activation(keys, "hidden_act", &["silu", "swish"], "\"silu\"");
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
        let rope = builder.rope_table(&self.decoder.rope);
        let b = builder.root();
        let x = self.decoder.layers(builder, self.embedding_factor, |b, _, x| self.block(b, x, rope));
        let logits = b.logits(b.rms_norm(x, "model.norm"), self.decoder.logits_module());
        b.scale(logits, self.logit_factor)
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
        let gate = "mlp.gate_proj";
        let up = "mlp.up_proj";
        let kind = ActivationKind::Silu;
        let m = b.gated(h, Gated { gate, up, bias: self.mlp_bias, kind });
        b.add(x, b.scale(b.linear(m, "mlp.down_proj").bias(self.mlp_bias), self.residual_factor))
    }
}
