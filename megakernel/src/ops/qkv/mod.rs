//! The query, key and value projections of one kv head and its query group, with rotation and
//! append fused.
//!
//! The output rows of a group are numbered in *strips*, so that every tile of consecutive strips
//! can rotate its own pairs and all strips weigh the same (8 weight rows where the head allows it):
//!
//! ```text
//! group = heads / kv_heads, half = head_dim / 2, strips per head u = ceil(half / 4)
//!
//! strip        0 .. group·u          group·u .. (group+1)·u     (group+1)·u .. (group+2)·u
//! part        q heads of the group  k head                     v head
//! rows        pairs 4j..4j+4:       pairs 4j..4j+4:            8j..8j+8 of v
//!             (i, i + half) of q    (i, i + half) of k
//! ```

mod oracle;
mod strips;

use serde::{Deserialize, Serialize};

pub use strips::{GroupShape, PAIRS_PER_STRIP, QkvProjection, StripRun};

use super::{
    Access, Check, Footprint, LinearInput, OperandError, Operands, Rotation, RowCells, TaskOp, index, interval,
    multiple,
};
use crate::oracle::{Context, Done};
use crate::program::{BufferId, Region, Span};

/// Projects `input` to the strips `strips` of kv head `kv_head`'s group.
///
/// With `rope`, q is rotated and stored to `q`, k is rotated and appended to `k`. Without it
/// (models that normalise each head first), q and k are stored as they are, k to `k_raw`; the op
/// `rope` finishes both. v is always appended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Qkv {
    /// The source of the activations.
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
    /// The processing and destination of k.
    pub k: KeyOutput,
    /// The pool that v is appended to, `[kv_heads, pages, page_tokens, head_dim]`.
    pub v_pool: BufferId,
    /// The step inputs that determine the destination of a row's token.
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
struct QkvShape {
    group: GroupShape,
    k: usize,
    rows: usize,
}

impl Qkv {
    fn shape(&self, ops: &Operands) -> Check<QkvShape> {
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

    /// The region to which the dimensions `dims` of a head are written.
    fn destination(&self, ops: &Operands, part: QkvProjection, head: usize, dims: Span) -> Check<Region> {
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

impl TaskOp for Qkv {
    fn name() -> &'static str {
        "qkv"
    }

    fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        let QkvShape { group, k, rows } = self.shape(ops)?;
        interval("strips", self.strips, group.strips())?;
        let (count, mut reads) = self.input.footprint(ops, self.rows, k)?;
        if count != rows {
            let operand = "input";
            let buffer = self.q;
            return Err(OperandError::Extent { operand, buffer, dim: 0, found: count, expected: rows });
        }
        interval("rows", self.rows, rows)?;
        reads.extend(self.at.footprint(ops, self.rows, rows)?);
        let mut writes = Vec::new();
        for run in group.runs(self.kv_head, self.strips) {
            let head = match run.part {
                QkvProjection::Query { head } => head,
                QkvProjection::Key | QkvProjection::Value => self.kv_head,
            };
            let projection = match run.part {
                QkvProjection::Query { .. } => &self.wq,
                QkvProjection::Key => &self.wk,
                QkvProjection::Value => &self.wv,
            };
            for dims in run.dims(group.head_dim) {
                let base = head * group.head_dim;
                let features = Span::new(base + dims.lo, base + dims.hi);
                reads.push(Region::new(projection.weight, &[features, Span::all(k)]));
                reads.extend(projection.bias.map(|bias| Region::new(bias, &[features])));
                writes.push(self.destination(ops, run.part, head, dims)?);
            }
            if let (KeyOutput::RopeAppend { rope, .. }, QkvProjection::Query { .. } | QkvProjection::Key) =
                (&self.k, run.part)
            {
                reads.push(Region::new(rope.inv_freq, &[run.span]));
            }
        }
        let mut pools = vec![self.v_pool];
        if let KeyOutput::RopeAppend { pool, .. } = self.k {
            pools.insert(0, pool);
        }
        Ok(Footprint::new(reads, writes).cells(self.at.cells(ops, &pools)?))
    }

    fn oracle(&self, on: &Context) -> Done {
        oracle::qkv(self, on)
    }

    fn accesses(&self) -> Vec<Access> {
        let projections = [&self.wq, &self.wk, &self.wv];
        let biases = projections.into_iter().filter_map(|projection| projection.bias);
        let mut all = self.input.accesses(self.rows, projections.map(|projection| projection.weight));
        all.extend(Access::weights(biases.chain(self.input.norm_weight())));
        let q = Access::output(self.q).relaxed();
        match self.k {
            KeyOutput::Raw { out } => all.extend([q, Access::output(out).relaxed()]),
            KeyOutput::RopeAppend { pool, .. } => all.push(q.with_token([pool, self.v_pool])),
        }
        all
    }

    /// A tile writes every head that it meets.
    fn least_writes(&self, ops: &Operands) -> usize {
        let Ok([_, heads, head_dim]) = ops.shape("q", self.q) else { return 0 };
        let per_head = GroupShape { group: heads, head_dim }.strips_per_head();
        let Span { lo, hi } = self.strips;
        if per_head == 0 || hi <= lo { 0 } else { (hi - 1) / per_head - lo / per_head + 1 }
    }
}
