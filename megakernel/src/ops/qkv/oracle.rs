//! The q, k and v projections of one kv head's group.

use tilewright_kernels::naive;

use super::operands::{KeyOutput, Qkv};
use super::strips::{GroupShape, QkvProjection, StripRun};
use crate::ops::linear::{activations, product};
use crate::oracle::{Context, Done};
use crate::program::{BufferId, Span};

pub(super) fn qkv(op: &Qkv, on: &Context) -> Done {
    let [_, heads, head_dim] = on.shape(op.q)?;
    let [kv_heads, ..] = on.shape::<4>(op.v_pool)?;
    let x = activations(on, &op.input, op.rows)?;
    let group = GroupShape { group: heads / kv_heads.max(1), head_dim };
    let tile = TileInputs { op, on, x, heads, kv_heads, head_dim };
    group.runs(op.kv_head, op.strips).into_iter().try_for_each(|run| tile.run(run))
}

/// The inputs that all runs of a task share.
struct TileInputs<'a> {
    op: &'a Qkv,
    on: &'a Context<'a>,
    x: Vec<f32>,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
}

impl TileInputs<'_> {
    fn run(&self, run: StripRun) -> Done {
        let (projection, head) = match run.part {
            QkvProjection::Query { head } => (&self.op.wq, head),
            QkvProjection::Key => (&self.op.wk, self.op.kv_head),
            QkvProjection::Value => (&self.op.wv, self.op.kv_head),
        };
        let dims = run.dims(self.head_dim);
        // One product for each interval of dimensions: [rows, width].
        let mut parts = Vec::new();
        for span in &dims {
            let base = head * self.head_dim;
            let features = Span::new(base + span.lo, base + span.hi);
            parts.push(product(self.on, &self.x, self.op.rows, projection.weight, projection.bias, features)?);
        }
        let width = run.span.len();
        for (at, row) in self.op.rows.iter().enumerate() {
            let values: Vec<f32> = parts.iter().flat_map(|part| &part[at * width..][..width]).copied().collect();
            let position = self.on.position(self.op.at.position, row)?;
            self.finish(run, head, row, position, &values, &dims)?;
        }
        Ok(())
    }

    /// Rotates and stores the values of one row's run.
    fn finish(
        &self,
        run: StripRun,
        head: usize,
        row: usize,
        position: Option<usize>,
        values: &[f32],
        dims: &[Span],
    ) -> Done {
        let on = self.on;
        let op = self.op;
        let rotated = match (&op.k, run.part, position) {
            (KeyOutput::RopeAppend { rope, .. }, QkvProjection::Query { .. } | QkvProjection::Key, Some(position)) => {
                let inv_freq = on.read(rope.inv_freq, run.span.lo, run.span.len())?;
                &naive::rope(values, &inv_freq, position, rope.scale)
            }
            (KeyOutput::RopeAppend { .. }, QkvProjection::Query { .. }, None) => &vec![0.0; values.len()],
            _ => values,
        };
        let place = match (run.part, &op.k) {
            (QkvProjection::Query { .. }, _) => Some((op.q, (row * self.heads + head) * self.head_dim)),
            (QkvProjection::Key, KeyOutput::Raw { out }) => Some((*out, (row * self.kv_heads + head) * self.head_dim)),
            (QkvProjection::Key, KeyOutput::RopeAppend { pool, .. }) => self.slot(*pool, head, row, position)?,
            (QkvProjection::Value, _) => self.slot(op.v_pool, head, row, position)?,
        };
        if let Some((buffer, start)) = place {
            for (span, values) in dims.iter().zip(rotated.chunks_exact(run.span.len())) {
                on.write(buffer, start + span.lo, values)?;
            }
        }
        Ok(())
    }

    /// The pool and offset of a row's token; `None` for an idle row.
    fn slot(
        &self,
        pool: BufferId,
        head: usize,
        row: usize,
        position: Option<usize>,
    ) -> Done<Option<(BufferId, usize)>> {
        let Some(position) = position else { return Ok(None) };
        let shape = self.on.pool_shape(pool)?;
        Ok(Some((pool, self.on.slot(self.op.at.page_table, row, position, head, shape)?)))
    }
}
