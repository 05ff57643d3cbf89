//! The operands of a linear layer.

use crate::ops::{
    Access, Check, OperandError, Operands, Partial, SplitAccess, SplitRead, TableShard, interval, multiple, positive,
};
use crate::program::{BufferId, Region, Span};
use serde::{Deserialize, Serialize};
use tilewright_kernels::activation::Activation;
use tilewright_layout::DType;

/// `y[r, n] = Σ_k input(r)[k] · weight[n, k] (+ bias[n])` for `n` in `cols`, then what
/// [`LinearOutput`] says.
///
/// All arithmetic is f32; a store converts to the dtype of its buffer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// Where the activations come from.
    pub input: LinearInput,
    /// Weights, `[n, k]`.
    pub weight: BufferId,
    /// Bias, `[n]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<BufferId>,
    /// Rows of the batch that this task computes.
    pub rows: Span,
    /// Output features that this task computes.
    pub cols: Span,
    /// What happens to `y`.
    pub output: LinearOutput,
}

/// The activations of a linear layer, computed by the task itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LinearInput {
    /// `x[r, k]` as it is.
    Plain {
        /// Activations, `[rows, k]`.
        x: BufferId,
    },
    /// The RMS norm of row `r` of `x`: `x[r, i] · rsqrt(mean_i(x[r, i]²) + eps) · weight[i]`.
    RmsNorm {
        /// Residual stream, `[rows, k]`.
        x: BufferId,
        /// Scale of every column, `[k]`.
        weight: BufferId,
        /// Added to the mean square.
        eps: f32,
    },
    /// The merged attention of row `r`; `k = heads · head_dim`. With `M = max_s m_s` and `w_s =
    /// exp(m_s − M)`, 0 where `l_s = 0`, it is `Σ_s w_s·acc_s / Σ_s w_s·l_s`; 0 where no split has
    /// tokens.
    Combine {
        /// Unnormalised partial sums, f32 `[rows, heads, splits, head_dim]`.
        acc: BufferId,
        /// Maximum and sum of every part, f32 `[rows, heads, splits, 2]`.
        stats: BufferId,
    },
    /// For each head `k` columns of its own from `first` on: as many features are of each head, and
    /// feature `f` of head `f / (n / heads)`.
    Heads {
        /// Activations, `[rows, heads · width]`.
        x: BufferId,
        /// How many heads there are.
        heads: usize,
        /// The first column of a head.
        first: usize,
    },
    /// For each head its merged attention of row `r`, as `combine` has it for all; `k = head_dim`.
    /// As many features are of each head.
    CombineHeads {
        /// Unnormalised partial sums, f32 `[rows, heads, splits, head_dim]`.
        acc: BufferId,
        /// Maximum and sum of every part, f32 `[rows, heads, splits, 2]`.
        stats: BufferId,
    },
}

/// The epilogue of a linear layer on its result `y[r, n]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LinearOutput {
    /// `out[r, n] = y[r, n]`.
    Store {
        /// Output, `[rows, n]`.
        out: BufferId,
        /// Buffers that get the same, on whatever device they lie.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sent: Vec<BufferId>,
    },
    /// `out[r, h, i] = y[r, n]`, where as many features `n` are of each head, and feature `i` of
    /// head `h` is the `n`-th.
    Heads {
        /// Output, `[rows, heads, dim]`; `dim` is at least the features of a head.
        out: BufferId,
    },
    /// `out[r, n] = residual[r, n] + y[r, n]`.
    Add {
        /// The residual stream before, `[rows, n]`.
        residual: BufferId,
        /// The residual stream after, `[rows, n]`; not the buffer that `input` reads.
        out: BufferId,
    },
    /// `out[r, n] = activation(y[r, n]) · u[r, n]`, where `u` is a second layer on the same input;
    /// without it `activation(y[r, n])`.
    #[serde(rename = "silu_mul")]
    Gated {
        /// The function of the gate; missing: `silu`.
        #[serde(default, skip_serializing_if = "is_silu", with = "activation_name")]
        activation: Activation,
        /// Weights of `u`, `[n, k]`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        up: Option<BufferId>,
        /// Bias of `u`, `[n]`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        up_bias: Option<BufferId>,
        /// Output, `[rows, n]`.
        out: BufferId,
    },
    /// `out[r, n] = y[r, n]`, or `cap · tanh(y[r, n] / cap)` under a soft cap, and the largest of
    /// this tile with its index (the lowest among equals). All three may lie on another device.
    Logits {
        /// The soft cap.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        soft_cap: Option<f32>,
        /// Logits, f32 `[rows, n]`; `[rows, vocab]` where the weights are a shard.
        out: BufferId,
        /// Where the weights have some rows of the vocabulary only: `first + n` in the place of
        /// `n`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shard: Option<TableShard>,
        /// Largest logit of every tile, f32 `[rows, tiles]`.
        best_value: BufferId,
        /// Its index, i32 `[rows, tiles]`.
        best_index: BufferId,
        /// This task's tile.
        tile: usize,
    },
}

pub(in crate::ops) fn is_silu(activation: &Activation) -> bool {
    *activation == Activation::Silu
}

/// `Activation` by name, with its numbers where it has any: the kernels' crate has no serde.
pub(in crate::ops) mod activation_name {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
    use tilewright_kernels::activation::{Activation, ClampedSwiglu};

    /// The forms of activations.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case", deny_unknown_fields)]
    enum Form {
        Silu,
        GeluTanh,
        ClampedSwiglu { alpha: f32, limit: f32 },
    }

    pub fn serialize<S: Serializer>(activation: &Activation, serializer: S) -> Result<S::Ok, S::Error> {
        let form = match *activation {
            Activation::Silu => Form::Silu,
            Activation::GeluTanh => Form::GeluTanh,
            Activation::ClampedSwiglu(clamp) => Form::ClampedSwiglu { alpha: clamp.alpha(), limit: clamp.limit() },
        };
        form.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Activation, D::Error> {
        Ok(match Form::deserialize(deserializer)? {
            Form::Silu => Activation::Silu,
            Form::GeluTanh => Activation::GeluTanh,
            Form::ClampedSwiglu { alpha, limit } => {
                Activation::ClampedSwiglu(ClampedSwiglu::new(alpha, limit).map_err(D::Error::custom)?)
            }
        })
    }
}

/// The heads of these features, of which each head has `each`.
pub(super) fn heads_of(cols: Span, each: usize) -> Span {
    Span::new(cols.lo / each.max(1), cols.hi.div_ceil(each.max(1)))
}

impl LinearOutput {
    /// The buffer of the result.
    pub fn out(&self) -> BufferId {
        match *self {
            LinearOutput::Store { out, .. }
            | LinearOutput::Heads { out }
            | LinearOutput::Add { out, .. }
            | LinearOutput::Gated { out, .. }
            | LinearOutput::Logits { out, .. } => out,
        }
    }
}

impl LinearInput {
    /// Checks the input against the reduction extent `k`; gives the batch's rows and the regions
    /// read.
    pub(in crate::ops) fn footprint(&self, ops: &Operands, rows: Span, k: usize) -> Check<(usize, Vec<Region>)> {
        match *self {
            LinearInput::Plain { x } => {
                let [count, _] = ops.floats("x", x)?;
                ops.floats_of("x", x, [count, k])?;
                Ok((count, vec![Region::new(x, &[rows, Span::all(k)])]))
            }
            LinearInput::RmsNorm { x, weight, eps } => {
                let [count, _] = ops.floats("x", x)?;
                ops.floats_of("x", x, [count, k])?;
                ops.floats_of("norm weight", weight, [k])?;
                positive("eps", eps)?;
                Ok((count, vec![Region::new(x, &[rows, Span::all(k)]), Region::new(weight, &[Span::all(k)])]))
            }
            LinearInput::Combine { acc, stats } => {
                let [count, heads, splits, head_dim] = ops.floats("acc", acc)?;
                ops.exactly("acc", acc, DType::F32, [count, heads, splits, head_dim])?;
                ops.exactly("stats", stats, DType::F32, [count, heads, splits, 2])?;
                if heads.checked_mul(head_dim) != Some(k) {
                    let found = heads.saturating_mul(head_dim);
                    let expected = k;
                    return Err(OperandError::Extent { operand: "acc", buffer: acc, dim: 3, found, expected });
                }
                let part =
                    |buffer, last| Region::new(buffer, &[rows, Span::all(heads), Span::all(splits), Span::all(last)]);
                Ok((count, vec![part(acc, head_dim), part(stats, 2)]))
            }
            LinearInput::Heads { .. } | LinearInput::CombineHeads { .. } => {
                let problem = "heads are multiplied one by one by `linear` alone".to_owned();
                Err(OperandError::Refused { operand: "input", problem })
            }
        }
    }

    /// Checks the input of features of heads, of which a task has `cols` of `n`, against the
    /// reduction extent `k`; gives the batch's rows and the regions read.
    pub(super) fn footprint_of_heads(
        &self,
        ops: &Operands,
        rows: Span,
        [n, k]: [usize; 2],
        cols: Span,
    ) -> Check<(usize, Vec<Region>)> {
        match *self {
            LinearInput::Heads { x, heads, first } => {
                let [count, all] = ops.floats("x", x)?;
                multiple("columns", all, heads)?;
                multiple("features", n, heads)?;
                let width = all / heads;
                interval("columns of a head", Span::new(first, first.saturating_add(k)), width)?;
                let start = |head: usize| head * width + first;
                let region = |head| Region::new(x, &[rows, Span::new(start(head), start(head) + k)]);
                Ok((count, heads_of(cols, n / heads).iter().map(region).collect()))
            }
            LinearInput::CombineHeads { acc, stats } => {
                let [count, heads, splits, _] = ops.floats("acc", acc)?;
                multiple("features", n, heads)?;
                ops.exactly("acc", acc, DType::F32, [count, heads, splits, k])?;
                ops.exactly("stats", stats, DType::F32, [count, heads, splits, 2])?;
                let read = heads_of(cols, n / heads);
                let part = |buffer, last| Region::new(buffer, &[rows, read, Span::all(splits), Span::all(last)]);
                Ok((count, vec![part(acc, k), part(stats, 2)]))
            }
            LinearInput::Plain { .. } | LinearInput::RmsNorm { .. } | LinearInput::Combine { .. } => {
                self.footprint(ops, rows, k)
            }
        }
    }

    /// The number of heads, where each has features of its own.
    pub(crate) fn heads(&self, heads_of: impl Fn(BufferId) -> usize) -> Option<usize> {
        match *self {
            LinearInput::Heads { heads, .. } => Some(heads),
            LinearInput::CombineHeads { acc, .. } => Some(heads_of(acc)),
            LinearInput::Plain { .. } | LinearInput::RmsNorm { .. } | LinearInput::Combine { .. } => None,
        }
    }

    /// The buffers of activations that it reads.
    pub fn activations(&self) -> Vec<BufferId> {
        match *self {
            LinearInput::Plain { x } | LinearInput::RmsNorm { x, .. } | LinearInput::Heads { x, .. } => vec![x],
            LinearInput::Combine { acc, stats } | LinearInput::CombineHeads { acc, stats } => vec![acc, stats],
        }
    }
}

impl LinearInput {
    /// The weight of the norm.
    pub(crate) fn norm_weight(&self) -> Option<BufferId> {
        match *self {
            LinearInput::RmsNorm { weight, .. } => Some(weight),
            LinearInput::Plain { .. } | LinearInput::Combine { .. } => None,
            LinearInput::Heads { .. } | LinearInput::CombineHeads { .. } => None,
        }
    }

    /// The accesses to the activations, for products of `rows` with these weights.
    pub(in crate::ops) fn accesses(&self, rows: Span, weights: impl IntoIterator<Item = BufferId>) -> Vec<Access> {
        let norm = self.norm_weight();
        let weights = weights.into_iter().collect();
        let split = SplitAccess::Read(SplitRead { norm, weights, along: None, rows: rows.len() as u32 });
        match *self {
            LinearInput::Plain { x } | LinearInput::RmsNorm { x, .. } => vec![Access::input(x).flagged().split(split)],
            LinearInput::Combine { acc, stats } => {
                let partial = Partial { acc, rows, written: None };
                vec![Access::input(acc).of_partial(partial).split(split), Access::input(stats).of_partial(partial)]
            }
            // Parts of rows.
            LinearInput::Heads { x, .. } => vec![Access::input(x).relaxed()],
            LinearInput::CombineHeads { acc, stats } => {
                let partial = Partial { acc, rows, written: None };
                vec![Access::input(acc).of_partial(partial), Access::input(stats).of_partial(partial)]
            }
        }
    }
}
