//! candle-transformers' Llama, with tilewright's ops.
//!
//! [`Llama::load`] reads the weights and configuration of [`candle_transformers::models::llama`];
//! [`Llama::forward`] has the arguments of its `forward`. Embeddings run in candle; norms, linear
//! layers, rotations and attention run in tilewright.

use candle_core::{D, DType, Device, IndexOp, Result, Tensor};
use candle_nn::{Embedding, Module, VarBuilder, embedding};
use candle_transformers::models::llama::{Config, Llama3RopeConfig, Llama3RopeType};

use crate::{
    AttentionWorkspace, Context, Error, KvCache, PackedLinear, SequenceStarts, attention_decode, attention_prefill,
    rms_norm, rope, rope_table, silu_mul,
};

/// Keys and values of every layer, and the table of rotations.
#[derive(Debug)]
pub struct Cache {
    layers: Vec<KvCache>,
    workspace: AttentionWorkspace,
    table: Tensor,
}

impl Cache {
    /// Allocates a cache for `sequences` sequences of at most `capacity` tokens.
    ///
    /// # Errors
    /// A configuration whose heads do not fit the attention kernels, and errors of the allocation.
    pub fn new(
        context: &Context,
        config: &Config,
        sequences: usize,
        capacity: usize,
        device: &Device,
    ) -> Result<Cache> {
        let dim = head_dim(config)?;
        let layers = (0..config.num_hidden_layers)
            .map(|_| KvCache::new(device, sequences, config.num_key_value_heads, capacity, dim))
            .collect::<Result<Vec<KvCache>>>()?;
        let first = layers.first().ok_or(Error::Config("the model has no layers"))?;
        let workspace = AttentionWorkspace::new(context, config.num_attention_heads, first)?;
        let frequencies = Tensor::new(inverse_frequencies(config, dim), device)?.unsqueeze(0)?;
        let positions = Tensor::arange(0, capacity as u32, device)?.to_dtype(DType::F32)?.unsqueeze(1)?;
        let angles = positions.broadcast_mul(&frequencies)?;
        let table = rope_table(&angles.cos()?, &angles.sin()?)?;
        Ok(Cache { layers, workspace, table })
    }
}

/// The columns of a head.
fn head_dim(config: &Config) -> Result<usize> {
    let heads = config.num_attention_heads;
    if heads == 0 || !config.hidden_size.is_multiple_of(heads) {
        return Err(Error::Config("num_attention_heads must divide hidden_size").into());
    }
    if config.num_key_value_heads == 0 || !heads.is_multiple_of(config.num_key_value_heads) {
        return Err(Error::Config("num_key_value_heads must divide num_attention_heads").into());
    }
    Ok(config.hidden_size / heads)
}

/// Rotations per token of each pair of columns, as candle-transformers computes them.
fn inverse_frequencies(config: &Config, dim: usize) -> Vec<f32> {
    let default = (0..dim).step_by(2).map(|i| 1.0 / config.rope_theta.powf(i as f32 / dim as f32));
    let scaling = config.rope_scaling.as_ref().filter(|scaling| matches!(scaling.rope_type, Llama3RopeType::Llama3));
    match scaling {
        None => default.collect(),
        Some(scaling) => default.map(|frequency| llama3(scaling, frequency)).collect(),
    }
}

/// Llama 3's scaling of a frequency for long contexts.
fn llama3(scaling: &Llama3RopeConfig, frequency: f32) -> f32 {
    let context = scaling.original_max_position_embeddings as f32;
    let length = 2.0 * std::f32::consts::PI / frequency;
    let (low, high) = (scaling.low_freq_factor, scaling.high_freq_factor);
    if length < context / high {
        frequency
    } else if length > context / low {
        frequency / scaling.factor
    } else {
        let smooth = (context / length - low) / (high - low);
        (1.0 - smooth) * frequency / scaling.factor + smooth * frequency
    }
}

/// An RMS norm with its weight.
#[derive(Clone, Debug)]
struct Norm {
    weight: Tensor,
    eps: f32,
}

impl Norm {
    fn load(vb: VarBuilder<'_>, config: &Config) -> Result<Norm> {
        Ok(Norm { weight: vb.get(config.hidden_size, "weight")?, eps: config.rms_norm_eps as f32 })
    }

    fn forward(&self, context: &Context, x: &Tensor) -> Result<Tensor> {
        rms_norm(context, x, &self.weight, self.eps)
    }
}

/// A decoder layer.
#[derive(Clone, Debug)]
struct Layer {
    attention_norm: Norm,
    /// Queries, keys and values of all heads.
    qkv: PackedLinear,
    o: PackedLinear,
    mlp_norm: Norm,
    /// The gate, and after it the factor.
    gate_up: PackedLinear,
    down: PackedLinear,
    inner: usize,
    heads: usize,
    kv_heads: usize,
    dim: usize,
}

/// Positions of a step's rows.
struct Step {
    /// `[sequences · tokens]` i32.
    positions: Tensor,
    lengths: Lengths,
    first: usize,
    sequences: usize,
    tokens: usize,
}

/// Cached tokens of each sequence after a step.
enum Lengths {
    /// `[sequences]` u32, of a step of one token.
    Decode(Tensor),
    Prefill(SequenceStarts),
}

impl Layer {
    fn load(context: &Context, vb: VarBuilder<'_>, config: &Config) -> Result<Layer> {
        let dim = head_dim(config)?;
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let kv = config.num_key_value_heads * dim;
        let linear = |names: &[(&str, usize)], k: usize| -> Result<PackedLinear> {
            let weights = names.iter().map(|&(name, n)| vb.pp(name).get((n, k), "weight"));
            PackedLinear::new(context, &Tensor::cat(&weights.collect::<Result<Vec<Tensor>>>()?, 0)?, None)
        };
        Ok(Layer {
            attention_norm: Norm::load(vb.pp("input_layernorm"), config)?,
            qkv: linear(&[("self_attn.q_proj", hidden), ("self_attn.k_proj", kv), ("self_attn.v_proj", kv)], hidden)?,
            o: linear(&[("self_attn.o_proj", hidden)], hidden)?,
            mlp_norm: Norm::load(vb.pp("post_attention_layernorm"), config)?,
            gate_up: linear(&[("mlp.gate_proj", inner), ("mlp.up_proj", inner)], hidden)?,
            down: linear(&[("mlp.down_proj", hidden)], inner)?,
            inner,
            heads: config.num_attention_heads,
            kv_heads: config.num_key_value_heads,
            dim,
        })
    }

    fn forward(
        &self,
        context: &Context,
        x: &Tensor,
        step: &Step,
        cache: &KvCache,
        (workspace, table): (&AttentionWorkspace, &Tensor),
    ) -> Result<Tensor> {
        let &Step { sequences, tokens, .. } = step;
        let normed = self.attention_norm.forward(context, x)?;
        let rows = sequences * tokens;
        let (heads, kv_heads) = (self.heads, self.kv_heads);
        let qkv = self.qkv.forward(&normed)?.reshape((rows, heads + 2 * kv_heads, self.dim))?;
        // Of one row parts of a result are contiguous, and nothing is copied.
        let part = |x: &Tensor, first: usize, count: usize| x.narrow(1, first, count)?.contiguous();
        let by_head = |x: Tensor| -> Result<Tensor> {
            x.reshape((sequences, tokens, kv_heads, self.dim))?.transpose(1, 2)?.contiguous()
        };
        let turned = rope(context, &part(&qkv, 0, heads + kv_heads)?, table, &step.positions)?;
        let q = part(&turned, 0, heads)?;
        let k = by_head(part(&turned, heads, kv_heads)?)?;
        let v = by_head(part(&qkv, heads + kv_heads, kv_heads)?)?;
        cache.append(&k, &v, step.first)?;
        let scale = 1.0 / (self.dim as f32).sqrt();
        let attended = match &step.lengths {
            Lengths::Decode(lengths) => attention_decode(context, &q, cache, lengths, workspace, scale)?,
            Lengths::Prefill(starts) => attention_prefill(context, &q, cache, starts, scale)?,
        };
        let attended = attended.reshape((sequences, tokens, self.heads * self.dim))?;
        let x = self.o.forward_add(&attended, x)?;
        let normed = self.mlp_norm.forward(context, &x)?;
        let gate_up = self.gate_up.forward(&normed)?;
        let half = |first: usize| gate_up.narrow(D::Minus1, first, self.inner)?.contiguous();
        let gated = silu_mul(context, &half(0)?, &half(self.inner)?)?;
        self.down.forward_add(&gated, &x)
    }
}

/// Llama with bf16 weights: a drop-in for [`candle_transformers::models::llama::Llama`].
///
/// Every linear layer keeps two copies of its weight, see [`PackedLinear`].
#[derive(Clone, Debug)]
pub struct Llama {
    context: Context,
    embeddings: Embedding,
    layers: Vec<Layer>,
    norm: Norm,
    head: PackedLinear,
}

impl Llama {
    /// Loads the weights of a checkpoint and packs them.
    ///
    /// # Errors
    /// A [`VarBuilder`] of another type than bf16, missing weights, and widths that are not a
    /// multiple of 64.
    pub fn load(context: &Context, vb: VarBuilder<'_>, config: &Config) -> Result<Llama> {
        if vb.dtype() != DType::BF16 {
            return Err(Error::Config("the weights must be loaded as bf16").into());
        }
        let embeddings = embedding(config.vocab_size, config.hidden_size, vb.pp("model.embed_tokens"))?;
        let head = if config.tie_word_embeddings {
            embeddings.embeddings().clone()
        } else {
            vb.pp("lm_head").get((config.vocab_size, config.hidden_size), "weight")?
        };
        let layers = (0..config.num_hidden_layers)
            .map(|index| Layer::load(context, vb.pp(format!("model.layers.{index}")), config))
            .collect::<Result<Vec<Layer>>>()?;
        Ok(Llama {
            context: context.clone(),
            embeddings,
            layers,
            norm: Norm::load(vb.pp("model.norm"), config)?,
            head: PackedLinear::new(context, &head, None)?,
        })
    }

    /// Returns f32 logits `[sequences, vocabulary]` of the last of `tokens`, `[sequences, tokens]`
    /// u32, which begin at position `index_pos`.
    ///
    /// # Errors
    /// [`Error::Capacity`] for tokens that do not fit the cache, and errors of the device.
    pub fn forward(&self, tokens: &Tensor, index_pos: usize, cache: &mut Cache) -> Result<Tensor> {
        let (sequences, count) = tokens.dims2()?;
        let device = tokens.device();
        let capacity = cache.table.dim(0)?;
        let end = index_pos.saturating_add(count);
        if count == 0 || end > capacity {
            return Err(Error::Capacity { capacity, position: index_pos, tokens: count }.into());
        }
        let positions: Vec<i32> = (0..sequences).flat_map(|_| index_pos..end).map(|position| position as i32).collect();
        let lengths = match count {
            1 => Lengths::Decode(Tensor::from_vec(vec![end as u32; sequences], sequences, device)?),
            _ => Lengths::Prefill(SequenceStarts::new(device, &vec![(count, end); sequences])?),
        };
        let step = Step {
            positions: Tensor::from_vec(positions, sequences * count, device)?,
            lengths,
            first: index_pos,
            sequences,
            tokens: count,
        };
        let mut x = self.embeddings.forward(tokens)?;
        for (layer, kv) in self.layers.iter().zip(&cache.layers) {
            x = layer.forward(&self.context, &x, &step, kv, (&cache.workspace, &cache.table))?;
        }
        let last = x.i((.., count - 1, ..))?.contiguous()?;
        self.head.forward_f32(&self.norm.forward(&self.context, &last)?)
    }

    /// Returns the most likely token of each row of logits.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn greedy(logits: &Tensor) -> Result<Vec<u32>> {
        logits.argmax(D::Minus1)?.to_vec1()
    }
}
