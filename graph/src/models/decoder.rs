//! Keys that every decoder has.

use std::ops::RangeInclusive;

use serde_json::Value as Json;

use super::fault::KeyFault;
use super::keys::{Keys, Otherwise, RealBound};
use super::rope::{self, Positions, RopeDefaults};
use crate::build::{Block, Builder, Gated, Mixture, Sizes, Value};
use crate::graph::{RopeId, RopeTable};
use crate::op::{ActivationKind, RouteKind};

/// The properties that every decoder has.
#[derive(Clone, Debug, PartialEq)]
pub struct Decoder {
    /// Extents of the axes.
    pub sizes: Sizes,
    /// Number of blocks.
    pub layers: usize,
    /// Positions of the longest sequence: those of the training, or of the cap.
    pub max_positions: usize,
    /// Added to the mean square by every norm.
    pub eps: f32,
    /// Rotary frequencies.
    pub rope: RopeTable,
    /// Whether logits come from the embedding table.
    pub tied: bool,
}

/// Defaults that differ between families.
#[derive(Clone, Copy, Debug)]
pub(super) struct Defaults {
    /// Heads of keys and values; `None`: as many as query heads.
    pub kv_heads: Option<usize>,
    /// Dimensions of a head; `None`: hidden size over heads.
    pub head_dim: Option<usize>,
    /// Whether the embeddings are tied.
    pub tied: bool,
    /// The key of what every norm adds.
    pub eps_key: &'static str,
    /// What every norm adds.
    pub eps: f64,
    /// The rotation.
    pub rope: RopeDefaults,
}

impl Defaults {
    /// Those that most families have.
    pub const COMMON: Defaults = Defaults {
        kv_heads: None,
        head_dim: None,
        tied: false,
        eps_key: "rms_norm_eps",
        eps: 1e-6,
        rope: RopeDefaults::COMMON,
    };
}

const SIZE: RangeInclusive<u32> = 1..=i32::MAX.unsigned_abs();
const LAYERS: RangeInclusive<u32> = 1..=4096;
const HEAD_DIM: RangeInclusive<u32> = 1..=65_536;

impl Decoder {
    /// Takes the keys that every decoder has; `max_context` caps the positions.
    pub(super) fn read(keys: &mut Keys, defaults: Defaults, max_context: Option<usize>) -> Decoder {
        Decoder::read_with(keys, defaults, max_context, |keys, head_dim, positions| {
            rope::read(keys, &defaults.rope, head_dim, positions)
        })
    }

    /// [`Decoder::read`] with another way to take the rotation's keys.
    pub(super) fn read_with(
        keys: &mut Keys,
        defaults: Defaults,
        max_context: Option<usize>,
        rope: impl FnOnce(&mut Keys, usize, Positions) -> RopeTable,
    ) -> Decoder {
        let hidden: usize = keys.integer("hidden_size", SIZE, Otherwise::REQUIRED);
        let layers = keys.integer("num_hidden_layers", LAYERS, Otherwise::REQUIRED);
        let heads: usize = keys.integer("num_attention_heads", SIZE, Otherwise::REQUIRED);
        let absent = Some(defaults.kv_heads.unwrap_or(heads));
        let kv_heads: usize = keys.integer("num_key_value_heads", SIZE, Otherwise { absent, null: Some(heads) });
        let head_dim = head_dim(keys, defaults.head_dim, hidden, heads);
        let inner: usize = keys.integer("intermediate_size", SIZE, Otherwise::REQUIRED);
        let vocab: usize = keys.integer("vocab_size", SIZE, Otherwise::REQUIRED);
        // The rotation's rules are about the positions that the model was trained for.
        let trained: usize = keys.integer("max_position_embeddings", SIZE, Otherwise::REQUIRED);
        let max_positions = max_context.map_or(trained, |most| trained.min(most.max(1)));
        let bound = RealBound::AtLeast(f64::from(f32::MIN_POSITIVE), 1.0);
        let eps = keys.real(defaults.eps_key, bound, Otherwise { absent: Some(defaults.eps), null: None }) as f32;
        let tied = keys.boolean("tie_word_embeddings", defaults.tied);
        if keys.faults.is_empty() && !heads.is_multiple_of(kv_heads) {
            let key = "num_attention_heads";
            let divisor_key = "num_key_value_heads";
            keys.faults.push(KeyFault::Multiple { key, value: heads, divisor_key, divisor: kv_heads });
        }
        if keys.faults.is_empty() && !head_dim.is_multiple_of(2) {
            keys.faults.push(KeyFault::OddHead { head_dim });
        }
        let rope = rope(keys, head_dim, Positions { trained, max: max_positions });
        let [hidden, heads, kv_heads, head_dim, inner, vocab] =
            [hidden, heads, kv_heads, head_dim, inner, vocab].map(|size| size as u64);
        Decoder {
            sizes: Sizes { hidden, heads, kv_heads, head_dim, inner, vocab },
            layers,
            max_positions,
            eps,
            rope,
            tied,
        }
    }

    /// The module of the table that gives logits.
    pub(super) fn logits_module(&self) -> &'static str {
        if self.tied { "model.embed_tokens" } else { "lm_head" }
    }

    /// The embedded tokens times a factor, after a block for each layer. A block gets its layer.
    pub(super) fn layers<'b>(
        &self,
        builder: &'b Builder,
        scale: f32,
        block: impl Fn(&Block<'b>, usize, Value<'b>) -> Value<'b>,
    ) -> Value<'b> {
        let embedded = builder.root().embed(builder.tokens(), "model.embed_tokens").scale(scale);
        (0..self.layers).fold(embedded, |x, layer| block(&builder.within(format!("model.layers.{layer}.")), layer, x))
    }

    /// The logits of a model whose blocks share one rotation and whose last norm is a root mean
    /// square: [`Decoder::layers`], the norm, the table. A block also gets the rotation.
    pub(super) fn logits<'b>(
        &self,
        builder: &'b Builder,
        scale: f32,
        block: impl Fn(&Block<'b>, usize, Value<'b>, RopeId) -> Value<'b>,
    ) -> Value<'b> {
        let rope = builder.rope_table(&self.rope);
        let b = builder.root();
        let x = self.layers(builder, scale, |b, layer, x| block(b, layer, x, rope));
        b.logits(b.rms_norm(x, "model.norm"), self.logits_module())
    }
}

/// A mixture of experts with the modules that Qwen's and DeepSeek's families have, whose sizes a page
/// sets.
pub(super) const MIXTURE: Mixture<'static> = Mixture {
    router: "mlp.gate",
    gate: "mlp.experts.{expert}.gate_proj",
    up: "mlp.experts.{expert}.up_proj",
    down: "mlp.experts.{expert}.down_proj",
    experts: 1,
    chosen: 1,
    inner: 1,
    route: RouteKind::Sigmoid,
    correction: None,
    scale: 1.0,
    kind: ActivationKind::Silu,
    bias: false,
};

/// The modules of queries, keys and values.
pub(super) const QKV: [&str; 3] = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"];

/// The gated MLP of most families: `mlp.down_proj` of gate and up, all three with biases or none.
pub(super) fn gated_mlp<'b>(b: &Block<'b>, h: impl Into<Value<'b>>, bias: bool, kind: ActivationKind) -> Value<'b> {
    let modules = Gated { gate: "mlp.gate_proj", up: "mlp.up_proj", bias, kind };
    b.linear(b.gated(h, modules), "mlp.down_proj").bias(bias)
}

/// The window of a layer.
pub(super) fn window_of(windows: &[Option<u32>], layer: usize) -> Option<u32> {
    windows.get(layer).copied().flatten()
}

fn head_dim(keys: &mut Keys, default: Option<usize>, hidden: usize, heads: usize) -> usize {
    let null = if default.is_none() { Some(None) } else { None };
    let stated: Option<usize> = keys.integer("head_dim", HEAD_DIM, Otherwise { absent: Some(default), null });
    if let Some(head_dim) = stated {
        return head_dim;
    }
    let head_dim = hidden / heads.max(1);
    if keys.faults.is_empty() {
        if !hidden.is_multiple_of(heads) {
            let key = "hidden_size";
            let divisor_key = "num_attention_heads";
            keys.faults.push(KeyFault::Multiple { key, value: hidden, divisor_key, divisor: heads });
        } else if head_dim > *HEAD_DIM.end() as usize {
            let min = *HEAD_DIM.start();
            let max = *HEAD_DIM.end();
            let key = "head_dim (hidden_size / num_attention_heads)".to_owned();
            keys.faults.push(KeyFault::Range { key, value: head_dim.to_string(), min, max });
        }
    }
    head_dim.clamp(1, *HEAD_DIM.end() as usize)
}

/// Takes `sliding_window`: `absent` positions where the key is absent, none where it is null.
pub(super) fn window(keys: &mut Keys, absent: impl Into<Option<u32>>) -> Option<u32> {
    let absent = absent.into().map(|absent| absent as usize);
    let otherwise = Otherwise { absent: Some(absent), null: Some(None) };
    let window: Option<usize> = keys.integer("sliding_window", 1..=i32::MAX.unsigned_abs(), otherwise);
    window.and_then(|window| u32::try_from(window).ok())
}

/// The window of each layer: by `layer_types`, or by `is_sliding` where the key is absent.
pub(super) fn windows(
    keys: &mut Keys,
    layers: usize,
    window: Option<u32>,
    is_sliding: impl Fn(usize) -> bool,
) -> Vec<Option<u32>> {
    const KEY: &str = "layer_types";
    let Some(value) = keys.take_value(KEY) else {
        return (0..layers).map(|layer| window.filter(|_| is_sliding(layer))).collect();
    };
    let Some(kinds) = value.as_array() else {
        keys.wrong_type(KEY, &value, "a list of names");
        return Vec::new();
    };
    if kinds.len() != layers {
        keys.faults.push(KeyFault::LayerList { key: KEY, entries: kinds.len(), layers });
    }
    let mut windows = Vec::with_capacity(kinds.len());
    for kind in kinds {
        match (kind.as_str(), window) {
            (Some("full_attention"), _) => windows.push(None),
            (Some("sliding_attention"), Some(window)) => windows.push(Some(window)),
            (Some("sliding_attention"), None) => {
                keys.unsupported(KEY, &value, "needs a sliding_window that is in force", "full_attention without one");
                break;
            }
            _ => {
                let meaning = "gives a layer another attention";
                keys.unsupported(KEY, &value, meaning, "full_attention or sliding_attention");
                break;
            }
        }
    }
    windows
}

/// The windows that some sequence within `max_positions` exceeds; others have no effect.
pub(super) fn in_force(windows: Vec<Option<u32>>, max_positions: usize) -> Vec<Option<u32>> {
    windows.into_iter().map(|window| window.filter(|&window| (window as usize) < max_positions)).collect()
}

/// One window on every layer: `sliding_window`, or `absent` positions.
pub(super) fn one_window(keys: &mut Keys, decoder: &Decoder, absent: Option<u32>) -> Vec<Option<u32>> {
    let window = window(keys, absent);
    in_force(windows(keys, decoder.layers, window, |_| true), decoder.max_positions)
}

/// Takes a factor that must be greater than 0.
pub(super) fn factor(keys: &mut Keys, key: &str, absent: f64) -> f64 {
    keys.real(key, RealBound::Above(0.0, 1e6), Otherwise { absent: Some(absent), null: None })
}

/// Takes the number of experts, by either of its names, and the number of those that each row
/// chooses.
pub(super) fn experts(keys: &mut Keys, names: [&str; 2], absent: [u32; 2]) -> [u32; 2] {
    const MOST: u32 = 1 << 16;
    let [first, second] = names.map(|name| keys.get(name).cloned());
    keys.agree((names[0], first.as_ref()), (names[1], second.as_ref()));
    let otherwise = |absent: u32| Otherwise { absent: Some(absent as usize), null: None };
    let count: usize = keys.integer(names[0], 1..=MOST, otherwise(absent[0]));
    let count: usize = keys.integer(names[1], 1..=MOST, Otherwise { absent: Some(count), null: None });
    // The range bounds both.
    let count = u32::try_from(count).unwrap_or(MOST);
    let chosen: usize = keys.integer("num_experts_per_tok", 1..=count, otherwise(absent[1]));
    [count, u32::try_from(chosen).unwrap_or(count)]
}

/// Takes the width of an MLP.
pub(super) fn width(keys: &mut Keys, key: &str, absent: u32) -> u64 {
    let width: usize = keys.integer(key, SIZE, Otherwise { absent: Some(absent as usize), null: None });
    width as u64
}

/// Takes a number that may be null: the default where the key is absent.
pub(super) fn optional(keys: &mut Keys, key: &str, absent: Option<f64>) -> Option<f32> {
    const BOUND: RealBound = RealBound::Above(0.0, 1e6);
    let value = if keys.get(key).is_none() { absent } else { keys.optional_real(key, BOUND) };
    value.map(|value| value as f32)
}

/// The way in which a family's configuration states a sliding window.
#[derive(Clone, Copy, Debug)]
pub(super) enum Window {
    /// The family has none.
    None,
    /// `sliding_window` is in force on every layer; this many positions where the key is absent.
    Always(u32),
    /// `sliding_window` is in force from layer `max_window_layers` on where `use_sliding_window` is
    /// true.
    Switched { positions: u32, from_layer: u32 },
}

/// The advice to cap a context.
fn cap(chunk: usize) -> String {
    format!(" (--max-context {chunk} runs it within the first chunk)")
}

/// Refuses dual chunk attention (Qwen2.5-1M) that some sequence within `max_positions` would
/// notice. Within the first chunk it is full attention.
pub(super) fn refuse_chunks(keys: &mut Keys, max_positions: usize) {
    const KEY: &str = "dual_chunk_attention_config";
    let Some(value) = keys.take_value(KEY) else { return };
    let size = |key: &str| value.get(key).and_then(Json::as_u64).and_then(|size| usize::try_from(size).ok());
    let Some(first) = size("chunk_size").zip(size("local_size")).and_then(|(chunk, local)| chunk.checked_sub(local))
    else {
        return keys.wrong_type(KEY, &value, "an object with chunk_size and a smaller local_size");
    };
    if first < max_positions {
        let meaning = format!("attends by chunks of {first} of {max_positions} positions{}", cap(first));
        keys.unsupported(KEY, &value, &meaning, "null, or a first chunk of max_position_embeddings");
    }
}

/// Takes the name of an activation function, which must be one of `accepted`.
pub(super) fn activation(keys: &mut Keys, key: &str, accepted: &[&str], text: &'static str) {
    if let Some(value) = keys.take(key)
        && !value.as_str().is_some_and(|name| accepted.contains(&name))
    {
        keys.unsupported(key, &value, "is another activation of the MLP", text);
    }
}

/// Takes `hidden_act`, which must be SiLU.
pub(super) fn silu(keys: &mut Keys) {
    activation(keys, "hidden_act", &["silu", "swish"], "\"silu\"");
}

/// Takes a key whose values change nothing for a family.
pub(super) fn ignore(keys: &mut Keys, key: &str) {
    let _: Option<Json> = keys.take(key);
}
