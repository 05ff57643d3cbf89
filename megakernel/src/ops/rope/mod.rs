//! Rotation of heads with an optional norm before it.

mod operands;
mod oracle;

use super::{Access, Check, Footprint, OperandError, Operands, TaskOp, interval, positive};
use crate::oracle::{Context, Done};
use crate::program::{Region, Span};

pub(crate) use operands::HeadExtents;
pub use operands::{HeadColumns, HeadOutput, Rope};

impl TaskOp for Rope {
    fn name() -> &'static str {
        "rope"
    }

    fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        let extents @ HeadExtents { rows: count, heads, width: head_width, from, dim, .. } = self.extents(ops)?;
        interval("rows", self.rows, count)?;
        interval("heads", self.heads, heads)?;
        if let Some(rope) = &self.rope {
            rope.check(ops, dim)?;
        }
        let mut read = self.heads;
        let mut weights = None;
        if let Some(norm) = &self.norm {
            positive("eps", norm.eps)?;
            let [width] = ops.floats("norm weight", norm.weight)?;
            let mut columns = Span::all(dim);
            if width != dim && self.columns.is_none() {
                ops.floats_of("norm weight", norm.weight, [heads.saturating_mul(dim)])?;
                columns = Span::new(self.heads.lo * dim, self.heads.hi * dim);
                read = Span::all(heads);
            } else {
                ops.floats_of("norm weight", norm.weight, [dim])?;
            }
            weights = Some(Region::new(norm.weight, &[columns]));
        }
        let mut reads = match self.columns {
            None => vec![Region::new(self.x, &[self.rows, read, Span::all(dim)])],
            Some(_) => {
                let first = self.heads.iter().map(|head| head * head_width + from);
                first.map(|first| Region::new(self.x, &[self.rows, Span::new(first, first + dim)])).collect()
            }
        };
        reads.extend(self.rope.as_ref().map(|rope| Region::new(rope.inv_freq, &[Span::all(dim / 2)])));
        reads.extend(weights);
        let [position, page_table] = self.at.footprint(ops, self.rows, count)?;
        reads.push(position);
        let mut pools = Vec::new();
        match self.output {
            HeadOutput::Store { out } if out == self.x => {
                let expected = "another buffer than `x`";
                return Err(OperandError::Aliased { operand: "out", buffer: out, expected });
            }
            HeadOutput::Store { .. } => {}
            HeadOutput::Append { pool } => {
                reads.push(page_table);
                pools.push(pool);
            }
        }
        let write = self.output.part(ops, extents, self.columns, [self.rows, self.heads])?;
        Ok(Footprint::new(reads, vec![write]).cells(self.at.cells(ops, &pools)?))
    }

    fn oracle(&self, on: &Context) -> Done {
        oracle::rope(self, on)
    }

    fn accesses(&self) -> Vec<Access> {
        let out = match self.output {
            HeadOutput::Store { out } => Some(Access::output(out).relaxed()),
            HeadOutput::Append { .. } => None,
        };
        let weights = Access::weights(self.norm.iter().map(|norm| norm.weight));
        out.into_iter().chain([Access::input(self.x).relaxed()]).chain(weights).collect()
    }
}
