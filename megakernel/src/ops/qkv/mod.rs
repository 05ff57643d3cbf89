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

mod operands;
mod oracle;
mod strips;

use super::{Access, Check, Footprint, OperandError, Operands, TaskOp, interval};
use crate::oracle::{Context, Done};
use crate::program::{Region, Span};

use operands::QkvShape;
pub use operands::{KeyOutput, Projection, Qkv};
pub use strips::{GroupShape, PAIRS_PER_STRIP, QkvProjection, StripRun};

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
