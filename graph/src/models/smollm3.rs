//! SmolLM3: Llama's block, without rotation on some layers.

use serde_json::Value as Json;

use super::decoder::{self, Decoder, Defaults, QKV};
use super::fault::KeyFault;
use super::keys::{Keys, Otherwise};
use super::page::{Accept, Page};
use super::rope::RopeDefaults;
use crate::build::{Block, Builder, Value};
use crate::graph::RopeId;
use crate::op::ActivationKind;

/// A SmolLM3 model.
struct SmolLm3 {
    decoder: Decoder,
    attention_bias: bool,
    mlp_bias: bool,
    /// Whether each layer rotates queries and keys.
    rotates: Vec<bool>,
    windows: Vec<Option<u32>>,
}

/// Takes the family's keys.
pub(super) fn read(keys: &mut Keys, _: &'static str, accept: &Accept) -> Box<dyn Page> {
    let rope = RopeDefaults { theta: 2e6, ..RopeDefaults::COMMON };
    let defaults = Defaults { kv_heads: Some(4), tied: true, rope, ..Defaults::COMMON };
    let decoder = Decoder::read(keys, defaults, accept.max_context);
    decoder::silu(keys);
    // The class reads neither; files of the first release have both.
    decoder::ignore(keys, "pretraining_tp");
    decoder::ignore(keys, "max_window_layers");
    let rotates = rotates(keys, decoder.layers);
    let is_on = keys.boolean("use_sliding_window", false);
    let window = decoder::window(keys, None).filter(|_| is_on);
    let has_window = |layer: usize| rotates.get(layer) == Some(&false);
    let windows = decoder::windows(keys, decoder.layers, window, has_window);
    Box::new(SmolLm3 {
        attention_bias: keys.boolean("attention_bias", false),
        mlp_bias: keys.boolean("mlp_bias", false),
        windows: decoder::in_force(windows, decoder.max_positions),
        rotates,
        decoder,
    })
}

/// The layers that rotate, by `no_rope_layers`, which has 1 for each of them, or by the distance
/// between those that do not.
fn rotates(keys: &mut Keys, layers: usize) -> Vec<bool> {
    const KEY: &str = "no_rope_layers";
    let absent = Otherwise { absent: Some(4), null: None };
    let interval: usize = keys.integer("no_rope_layer_interval", 1..=u32::MAX, absent);
    let Some(value) = keys.take_value(KEY) else {
        return (1..=layers).map(|layer| !layer.is_multiple_of(interval)).collect();
    };
    let flag = |entry: &Json| entry.as_u64().filter(|flag| *flag < 2).map(|flag| flag == 1);
    let flags: Option<Vec<bool>> = value.as_array().and_then(|list| list.iter().map(flag).collect());
    let Some(flags) = flags else {
        keys.wrong_type(KEY, &value, "a list of 0 and 1");
        return vec![true; layers];
    };
    if flags.len() != layers {
        keys.faults.push(KeyFault::LayerList { key: KEY, entries: flags.len(), layers });
    }
    flags
}

impl Page for SmolLm3 {
    fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    fn build<'b>(&self, builder: &'b Builder) -> Value<'b> {
        self.decoder.logits(builder, 1.0, |b, layer, x, rope| self.block(b, layer, x, rope))
    }
}

impl SmolLm3 {
    fn block<'b>(&self, b: &Block<'b>, layer: usize, x: Value<'b>, rope: RopeId) -> Value<'b> {
        let h = b.rms_norm(x, "input_layernorm");
        let [mut q, mut k, v] = b.linear_split(h, QKV).map(|x| x.bias(self.attention_bias));
        if self.rotates.get(layer) == Some(&true) {
            [q, k] = b.rope(q, k, rope);
        }
        let a = b.attention(q, k, v).window(decoder::window_of(&self.windows, layer));
        let x = b.add(x, b.linear(a, "self_attn.o_proj").bias(self.attention_bias));
        let h = b.rms_norm(x, "post_attention_layernorm");
        let m = decoder::gated_mlp(b, h, self.mlp_bias, ActivationKind::Silu);
        b.add(x, m)
    }
}
