//! Attention of decode steps and of prompts over a preallocated KV cache.

use candle_core::{DType, Device, Result, Tensor};
use tilewright::kernels::attention::decode::Decode;
use tilewright::ops::{self, AttentionDecode, AttentionPrefill, PrefillKv, Scores};

use crate::{Context, Error};

/// Keys and values of sequences, bf16 `[sequences, kv_heads, capacity, columns]` each.
///
/// `columns` is the head dimension, rounded up to one that the attention kernels take; the added
/// columns are zeros and change no result.
#[derive(Debug, Clone)]
pub struct KvCache {
    pub(crate) keys: Tensor,
    pub(crate) values: Tensor,
    dim: usize,
}

impl KvCache {
    /// Allocates a cache of zeros.
    ///
    /// # Errors
    /// [`Error::Head`] for a head dimension above 256, and errors of the allocation.
    pub fn new(device: &Device, sequences: usize, kv_heads: usize, capacity: usize, dim: usize) -> Result<KvCache> {
        let shape = (sequences, kv_heads, capacity, kernel_columns(dim)?);
        let [keys, values] = [Tensor::zeros(shape, DType::BF16, device)?, Tensor::zeros(shape, DType::BF16, device)?];
        Ok(KvCache { keys, values, dim })
    }

    /// Positions of each sequence.
    pub fn capacity(&self) -> usize {
        self.keys.dims()[2]
    }

    /// Writes keys and values, `[sequences, kv_heads, tokens, dim]` each, from `position` on.
    ///
    /// # Errors
    /// [`Error::Capacity`] for tokens that do not fit, and shapes that differ.
    pub fn append(&self, keys: &Tensor, values: &Tensor, position: usize) -> Result<()> {
        let (_, _, tokens, _) = keys.dims4()?;
        let capacity = self.capacity();
        if position.saturating_add(tokens) > capacity {
            return Err(Error::Capacity { capacity, position, tokens }.into());
        }
        self.keys.slice_set(&widened(keys, self.keys.dims()[3])?, 2, position)?;
        self.values.slice_set(&widened(values, self.keys.dims()[3])?, 2, position)
    }
}

/// Scratch memory of [`attention_decode`], shared by layers of one shape. Launches that use it must
/// be on one stream.
#[derive(Debug, Clone)]
pub struct AttentionWorkspace(Tensor);

impl AttentionWorkspace {
    /// Allocates the scratch memory for queries of `heads` heads against `cache`.
    ///
    /// # Errors
    /// Errors of the allocation.
    pub fn new(context: &Context, heads: usize, cache: &KvCache) -> Result<AttentionWorkspace> {
        let (sequences, kv_heads, capacity, columns) = cache.keys.dims4()?;
        let elements = context.ops().attention_workspace(sequences, heads, kv_heads, columns, capacity);
        Ok(AttentionWorkspace(Tensor::zeros(elements, DType::F32, cache.keys.device())?))
    }
}

/// The queries and tokens of each sequence of a prefill, as sums on the device.
#[derive(Debug, Clone)]
pub struct SequenceStarts {
    queries: Tensor,
    tokens: Tensor,
    longest: usize,
}

impl SequenceStarts {
    /// Uploads the numbers of queries and of tokens of each sequence.
    ///
    /// # Errors
    /// Errors of the device.
    pub fn new(device: &Device, counts: &[(usize, usize)]) -> Result<SequenceStarts> {
        let starts = |count: fn(&(usize, usize)) -> usize| {
            let sums = counts.iter().map(count).scan(0usize, |sum, count| {
                *sum = sum.saturating_add(count);
                Some(*sum)
            });
            let starts: Vec<u32> =
                [0].into_iter().chain(sums).map(|sum| u32::try_from(sum).unwrap_or(u32::MAX)).collect();
            Tensor::from_vec(starts, counts.len() + 1, device)
        };
        let longest = counts.iter().map(|count| count.0).max().unwrap_or(0).max(1);
        Ok(SequenceStarts { queries: starts(|count| count.0)?, tokens: starts(|count| count.1)?, longest })
    }
}

/// Computes `softmax(scale · q·Kᵀ)·V` of one query per sequence.
///
/// `q` is bf16 `[sequences, heads, dim]`. `tokens` is u32 `[sequences]`: the cached tokens of each
/// sequence, at most the capacity. The result is as `q`.
///
/// # Errors
/// An error that names the operand that does not fit.
pub fn attention_decode(
    context: &Context,
    q: &Tensor,
    cache: &KvCache,
    tokens: &Tensor,
    workspace: &AttentionWorkspace,
    scale: f32,
) -> Result<Tensor> {
    let q = widened(q, cache.keys.dims()[3])?;
    let out = (DType::BF16, q.shape().clone());
    let inputs = [&q, &cache.keys, &cache.values, tokens, &workspace.0];
    let y =
        context.run("attention_decode", inputs, out, |ops, stream, [q, keys, values, tokens, workspace], out| {
            let cache = ops::KvCache::Dense { keys, values };
            let scores = Scores::scaled(scale);
            ops.attention_decode(stream, &AttentionDecode { q, cache, tokens, scores, workspace, out, lse: None })
        })?;
    y.narrow(2, 0, cache.dim)?.contiguous()
}

/// Computes causal attention of the newest tokens of each sequence.
///
/// `q` is bf16 `[rows, heads, dim]`: the queries of one sequence after the other. `cache` holds the
/// tokens of each sequence, its queries included. The result is as `q`.
///
/// # Errors
/// An error that names the operand that does not fit.
pub fn attention_prefill(
    context: &Context,
    q: &Tensor,
    cache: &KvCache,
    starts: &SequenceStarts,
    scale: f32,
) -> Result<Tensor> {
    let q = widened(q, cache.keys.dims()[3])?;
    let out = (DType::BF16, q.shape().clone());
    let longest = Some(starts.longest);
    let inputs = [&q, &cache.keys, &cache.values, &starts.queries, &starts.tokens];
    let y = context.run("attention_prefill", inputs, out, |ops, stream, inputs, out| {
        let [q, keys, values, query_starts, token_starts] = inputs;
        let kv = PrefillKv::Cache(ops::KvCache::Dense { keys, values });
        let (scores, causal, lse) = (Scores::scaled(scale), true, None);
        ops.attention_prefill(
            stream,
            &AttentionPrefill { q, kv, query_starts, token_starts, longest, causal, scores, out, lse },
        )
    })?;
    y.narrow(2, 0, cache.dim)?.contiguous()
}

/// The fewest columns that a kernel takes for heads of `dim`.
fn kernel_columns(dim: usize) -> std::result::Result<usize, Error> {
    let depths = Decode::DEPTHS.iter().copied();
    let fits = depths.clone().find(|&depth| depth as usize >= dim);
    let most = depths.max().unwrap_or(0);
    fits.map(|depth| depth as usize).ok_or(Error::Head { found: dim, most })
}

/// Adds columns of zeros.
fn widened(x: &Tensor, columns: usize) -> Result<Tensor> {
    let axis = x.rank().saturating_sub(1);
    let missing = columns.saturating_sub(x.dim(axis)?);
    if missing == 0 { x.contiguous() } else { x.pad_with_zeros(axis, 0, missing)?.contiguous() }
}
