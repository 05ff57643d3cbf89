//! Linear layers by tiles of output features, with what is fused before and after the product.

mod oracle;

use serde::{Deserialize, Serialize};
use tilewright_kernels::activation::Activation;
use tilewright_layout::DType;

pub(super) use oracle::{activations, product};

use super::{
    Access, AccessRole, Check, Footprint, OperandError, Operands, Partial, SplitAccess, SplitRead, TableShard, TaskOp,
    index, interval, positive,
};
use crate::oracle::{Context, Done};
use crate::program::{BufferId, Region, Span};

/// `y[r, n] = Σ_k input(r)[k] · weight[n, k] (+ bias[n])` for `n` in `cols`, then what
/// [`LinearOutput`] says.
///
/// All arithmetic is f32; a store converts to the dtype of its buffer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// The source of the activations.
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
    /// The epilogue applied to `y`.
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
    /// The RMS norm of row `r` of `x`, as the op `rms_norm` defines it.
    RmsNorm {
        /// Residual stream, `[rows, k]`.
        x: BufferId,
        /// Scale of every column, `[k]`.
        weight: BufferId,
        /// Added to the mean square.
        eps: f32,
    },
    /// The merged attention of row `r`, as the op `combine` defines it; `k = heads · head_dim`.
    Combine {
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
    /// `out[r, n] = residual[r, n] + y[r, n]`.
    Add {
        /// The residual stream before, `[rows, n]`.
        residual: BufferId,
        /// The residual stream after, `[rows, n]`; not the buffer that `input` reads.
        out: BufferId,
    },
    /// `out[r, n] = activation(y[r, n]) · u[r, n]`, where `u` is a second layer on the same input.
    #[serde(rename = "silu_mul")]
    Gated {
        /// The function of the gate; missing: `silu`.
        #[serde(default, skip_serializing_if = "is_silu", with = "activation_name")]
        activation: Activation,
        /// Weights of `u`, `[n, k]`.
        up: BufferId,
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
        /// Set if the weights are a shard of the vocabulary: token `first + n` replaces `n`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shard: Option<TableShard>,
        /// Largest logit of every tile, f32 `[rows, tiles]`.
        best_value: BufferId,
        /// Its index, i32 `[rows, tiles]`.
        best_index: BufferId,
        /// The index of this task's tile.
        tile: usize,
    },
}

fn is_silu(activation: &Activation) -> bool {
    *activation == Activation::Silu
}

/// `Activation` by name: the kernels' crate has no serde.
mod activation_name {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use tilewright_kernels::activation::Activation;

    pub fn serialize<S: Serializer>(activation: &Activation, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(activation.name())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Activation, D::Error> {
        let name = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        let known = Activation::ALL.into_iter().find(|activation| activation.name() == name);
        known.ok_or_else(|| D::Error::custom(format_args!("`{name}` is not an activation")))
    }
}

impl LinearOutput {
    /// The buffer of the result.
    pub fn out(&self) -> BufferId {
        match *self {
            LinearOutput::Store { out, .. }
            | LinearOutput::Add { out, .. }
            | LinearOutput::Gated { out, .. }
            | LinearOutput::Logits { out, .. } => out,
        }
    }
}

impl LinearInput {
    /// Checks the input against the reduction extent `k`; gives the batch's rows and the regions
    /// read.
    pub(super) fn footprint(&self, ops: &Operands, rows: Span, k: usize) -> Check<(usize, Vec<Region>)> {
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
        }
    }

    /// The buffers of activations that it reads.
    pub fn activations(&self) -> Vec<BufferId> {
        match *self {
            LinearInput::Plain { x } | LinearInput::RmsNorm { x, .. } => vec![x],
            LinearInput::Combine { acc, stats } => vec![acc, stats],
        }
    }
}

impl TaskOp for Linear {
    fn name() -> &'static str {
        "linear"
    }

    fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        let [n, k] = ops.floats("weight", self.weight)?;
        let (rows, mut reads) = self.input.footprint(ops, self.rows, k)?;
        interval("rows", self.rows, rows)?;
        interval("cols", self.cols, n)?;
        let mut layer = |name, bias_name, weight, bias: Option<BufferId>| -> Check {
            ops.floats_of(name, weight, [n, k])?;
            reads.push(Region::new(weight, &[self.cols, Span::all(k)]));
            if let Some(bias) = bias {
                ops.floats_of(bias_name, bias, [n])?;
                reads.push(Region::new(bias, &[self.cols]));
            }
            Ok(())
        };
        layer("weight", "bias", self.weight, self.bias)?;
        let tile = |buffer| Region::new(buffer, &[self.rows, self.cols]);
        let mut writes = vec![];
        let mut updates = vec![];
        let mut sending = vec![];
        let out = self.output.out();
        let mut result = tile(out);
        match self.output {
            LinearOutput::Store { ref sent, .. } => {
                for &sent in sent {
                    ops.floats_of("sent", sent, [rows, n])?;
                    writes.push(tile(sent));
                    sending.push(sent);
                }
            }
            LinearOutput::Add { residual, .. } => {
                ops.floats_of("residual", residual, [rows, n])?;
                reads.push(tile(residual));
                // The residual is read element by element; every other operand is read along the
                // whole reduction.
                updates.push(tile(residual));
            }
            LinearOutput::Gated { up, up_bias, .. } => layer("up", "up_bias", up, up_bias)?,
            LinearOutput::Logits { soft_cap, out, shard, best_value, best_index, tile } => {
                soft_cap.map_or(Ok(()), |cap| positive("soft_cap", cap))?;
                let [_, tiles] = ops.shape("best_value", best_value)?;
                ops.exactly("best_value", best_value, DType::F32, [rows, tiles])?;
                ops.exactly("best_index", best_index, DType::I32, [rows, tiles])?;
                let TableShard { first, vocab } = shard.unwrap_or(TableShard { first: 0, vocab: n });
                interval("shard", Span::new(first, first.saturating_add(n)), vocab)?;
                ops.exactly("out", out, DType::F32, [rows, vocab])?;
                result = Region::new(out, &[self.rows, Span::new(first + self.cols.lo, first + self.cols.hi)]);
                index("tile", tile, tiles)?;
                sending.extend([out, best_value, best_index]);
                writes
                    .extend([best_value, best_index].map(|buffer| Region::new(buffer, &[self.rows, Span::one(tile)])));
            }
        }
        if !matches!(self.output, LinearOutput::Logits { .. }) {
            ops.floats_of("out", out, [rows, n])?;
        }
        if self.input.activations().contains(&out) {
            let expected = "another buffer than the input: the whole input row is read for every tile";
            return Err(OperandError::Aliased { operand: "out", buffer: out, expected });
        }
        writes.push(result);
        Ok(Footprint::new(reads, writes).updating(updates).sending(sending))
    }

    fn oracle(&self, on: &Context) -> Done {
        oracle::linear(self, on)
    }

    fn accesses(&self) -> Vec<Access> {
        let even = self.cols.is_in_steps_of(2);
        let whole_strips = self.cols.is_in_steps_of(8);
        let (up, up_bias) = match self.output {
            LinearOutput::Gated { up, up_bias, .. } => (Some(up), up_bias),
            LinearOutput::Store { .. } | LinearOutput::Add { .. } | LinearOutput::Logits { .. } => (None, None),
        };
        let mut all = self.input.accesses(self.rows, [self.weight].into_iter().chain(up));
        all.extend(Access::weights(self.bias.into_iter().chain(up_bias).chain(self.input.norm_weight())));
        match &self.output {
            LinearOutput::Store { out, sent } => {
                all.extend(sent.iter().chain([out]).map(|&out| Access::output(out).flagged_if(even)));
            }
            LinearOutput::Add { residual, out } => {
                all.push(Access::new(*residual, AccessRole::Residual).flagged());
                all.push(Access::output(*out).flagged_if(even).splitting_if(whole_strips));
            }
            LinearOutput::Gated { out, .. } => {
                all.push(Access::output(*out).flagged_if(even).splitting_if(whole_strips));
            }
            LinearOutput::Logits { .. } => {}
        }
        all
    }

    fn ids(&self) -> Option<(BufferId, usize)> {
        match self.output {
            LinearOutput::Logits { best_index, shard, .. } => {
                Some((best_index, shard.map_or(0, |shard| shard.first) + self.cols.hi))
            }
            LinearOutput::Store { .. } | LinearOutput::Add { .. } | LinearOutput::Gated { .. } => None,
        }
    }
}

impl LinearInput {
    /// The weight of the norm.
    pub(crate) fn norm_weight(&self) -> Option<BufferId> {
        match *self {
            LinearInput::RmsNorm { weight, .. } => Some(weight),
            LinearInput::Plain { .. } | LinearInput::Combine { .. } => None,
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
        }
    }
}
