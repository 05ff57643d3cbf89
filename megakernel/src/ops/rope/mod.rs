//! Rotation of heads with an optional norm before it.

mod operands;
mod oracle;

use super::{Access, Check, Footprint, OperandError, Operands, TaskOp, interval, positive};
use crate::oracle::{Context, Done};
use crate::program::{Region, Span};

pub use operands::{HeadOutput, Rope};

impl TaskOp for Rope {
    fn name() -> &'static str {
        "rope"
    }

    fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        let shape @ [count, heads, dim] = ops.floats("x", self.x)?;
        interval("rows", self.rows, count)?;
        interval("heads", self.heads, heads)?;
        self.rope.check(ops, dim)?;
        let mut read = self.heads;
        let mut weights = None;
        if let Some(norm) = &self.norm {
            positive("eps", norm.eps)?;
            let [width] = ops.floats("norm weight", norm.weight)?;
            let mut columns = Span::all(dim);
            if width != dim {
                ops.floats_of("norm weight", norm.weight, [heads.saturating_mul(dim)])?;
                columns = Span::new(self.heads.lo * dim, self.heads.hi * dim);
                read = Span::all(heads);
            }
            weights = Some(Region::new(norm.weight, &[columns]));
        }
        let mut reads = vec![
            Region::new(self.x, &[self.rows, read, Span::all(dim)]),
            Region::new(self.rope.inv_freq, &[Span::all(dim / 2)]),
        ];
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
        let write = self.output.footprint(ops, shape, self.rows, self.heads)?;
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
