//! The operands of the projections of a group.

use super::strips::{GroupShape, QkvProjection};
use crate::ops::{Check, LinearInput, OperandError, Operands, Rotation, RowCells, index, multiple};
use crate::program::{BufferId, Region, Span};
use serde::{Deserialize, Serialize};

/// Projects `input` to the strips `strips` of kv head `kv_head`'s group.
///
/// With `rope`, q is rotated and stored to `q`, k is rotated and appended to `k`. Without it
/// (models that normalise each head first), q and k are stored as they are, k to `k_raw`; the op
/// `rope` finishes both. v is always appended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Qkv {
    /// Where the activations come from.
    pub input: LinearInput,
    /// The q projection, `[heads · head_dim, k]`.
    pub wq: Projection,
    /// The k projection, `[kv_heads · head_dim, k]`.
    pub wk: Projection,
    /// The v projection, `[kv_heads · head_dim, k]`.
    pub wv: Projection,
    /// The kv head whose group this is.
    pub kv_head: usize,
    /// Strips of the group that this task computes.
    pub strips: Span,
    /// Rows of the batch that this task computes.
    pub rows: Span,
    /// Output for q, `[rows, heads, head_dim]`.
    pub q: BufferId,
    /// What happens to k.
    pub k: KeyOutput,
    /// Where v is appended, `[kv_heads, pages, page_tokens, head_dim]`.
    pub v_pool: BufferId,
    /// Where a row's token goes.
    pub at: RowCells,
}

/// A weight matrix with its optional bias.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Projection {
    /// Weights, `[n, k]`.
    pub weight: BufferId,
    /// Bias, `[n]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bias: Option<BufferId>,
}

/// The epilogue of [`Qkv`] for q and k.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum KeyOutput {
    /// Rotate q and k; append k to the pool.
    RopeAppend {
        /// The rotation.
        rope: Rotation,
        /// Key pool, `[kv_heads, pages, page_tokens, head_dim]`.
        pool: BufferId,
    },
    /// Store q and k as they are; a `rope` task finishes them.
    Raw {
        /// Output for k, `[rows, kv_heads, head_dim]`.
        out: BufferId,
    },
}

/// The extents that a checked [`Qkv`] agrees on.
pub(super) struct QkvShape {
    pub group: GroupShape,
    pub k: usize,
    pub rows: usize,
}

impl Qkv {
    pub(super) fn shape(&self, ops: &Operands) -> Check<QkvShape> {
        let [rows, heads, head_dim] = ops.floats("q", self.q)?;
        let [kv_heads, pages, page_tokens, _] = ops.pool("v_pool", self.v_pool)?;
        ops.pool_of("v_pool", self.v_pool, [kv_heads, pages, page_tokens, head_dim])?;
        multiple("heads", heads, kv_heads)?;
        multiple("head_dim", head_dim, 2)?;
        index("kv_head", self.kv_head, kv_heads)?;
        let [_, k] = ops.floats("wq", self.wq.weight)?;
        let projections = [("wq", &self.wq, heads), ("wk", &self.wk, kv_heads), ("wv", &self.wv, kv_heads)];
        for (name, projection, count) in projections {
            let n = count.saturating_mul(head_dim);
            ops.floats_of(name, projection.weight, [n, k])?;
            if let Some(bias) = projection.bias {
                ops.floats_of("bias", bias, [n])?;
            }
        }
        match &self.k {
            KeyOutput::RopeAppend { rope, pool } => {
                rope.check(ops, head_dim)?;
                ops.pool_of("k pool", *pool, [kv_heads, pages, page_tokens, head_dim])?;
                if *pool == self.v_pool {
                    let buffer = *pool;
                    let expected = "another pool than v's";
                    return Err(OperandError::Aliased { operand: "k pool", buffer, expected });
                }
            }
            KeyOutput::Raw { out } => drop(ops.floats_of("k out", *out, [rows, kv_heads, head_dim])?),
        }
        Ok(QkvShape { group: GroupShape { group: heads / kv_heads, head_dim }, k, rows })
    }

    /// Where the dimensions `dims` of a head are written.
    pub(super) fn destination(&self, ops: &Operands, part: QkvProjection, head: usize, dims: Span) -> Check<Region> {
        let pool = |buffer| -> Check<Region> {
            let [_, pages, page_tokens, _] = ops.shape("pool", buffer)?;
            Ok(Region::new(buffer, &[Span::one(head), Span::all(pages), Span::all(page_tokens), dims]))
        };
        match (part, &self.k) {
            (QkvProjection::Query { .. }, _) => Ok(Region::new(self.q, &[self.rows, Span::one(head), dims])),
            (QkvProjection::Key, KeyOutput::Raw { out }) => Ok(Region::new(*out, &[self.rows, Span::one(head), dims])),
            (QkvProjection::Key, KeyOutput::RopeAppend { pool: buffer, .. }) => pool(*buffer),
            (QkvProjection::Value, _) => pool(self.v_pool),
        }
    }
}
