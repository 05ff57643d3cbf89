//! Linear layers by tiles of output features, with what is fused before and after the product.

mod operands;
mod oracle;

use super::{
    Access, AccessRole, Check, Footprint, OperandError, Operands, TableShard, TaskOp, index, interval, multiple,
    positive,
};
use crate::oracle::{Context, Done};
use crate::program::{BufferId, Region, Span};
use tilewright_layout::DType;

use operands::heads_of;
pub use operands::{Linear, LinearInput, LinearOutput};
pub(super) use operands::{activation_name, is_silu};
pub(super) use oracle::{activations, product};

impl TaskOp for Linear {
    fn name() -> &'static str {
        "linear"
    }

    fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        let [n, k] = ops.floats("weight", self.weight)?;
        let (rows, mut reads) = self.input.footprint_of_heads(ops, self.rows, [n, k], self.cols)?;
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
        let mut results = vec![tile(out)];
        match self.output {
            LinearOutput::Heads { out } => {
                let [_, heads, dim] = ops.floats("out", out)?;
                ops.floats_of("out", out, [rows, heads, dim])?;
                multiple("features", n, heads)?;
                let each = n / heads;
                interval("features of a head", Span::all(each), dim)?;
                let of_head = |head: usize| {
                    let [lo, hi] = [self.cols.lo, self.cols.hi].map(|col| col.clamp(head * each, (head + 1) * each));
                    Region::new(out, &[self.rows, Span::one(head), Span::new(lo - head * each, hi - head * each)])
                };
                results = heads_of(self.cols, each).iter().map(of_head).collect();
            }
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
            LinearOutput::Gated { up: Some(up), up_bias, .. } => layer("up", "up_bias", up, up_bias)?,
            LinearOutput::Gated { up: None, .. } => {}
            LinearOutput::Logits { soft_cap, out, shard, best_value, best_index, tile } => {
                soft_cap.map_or(Ok(()), |cap| positive("soft_cap", cap))?;
                let [_, tiles] = ops.shape("best_value", best_value)?;
                ops.exactly("best_value", best_value, DType::F32, [rows, tiles])?;
                ops.exactly("best_index", best_index, DType::I32, [rows, tiles])?;
                let TableShard { first, vocab } = shard.unwrap_or(TableShard { first: 0, vocab: n });
                interval("shard", Span::new(first, first.saturating_add(n)), vocab)?;
                ops.exactly("out", out, DType::F32, [rows, vocab])?;
                results = vec![Region::new(out, &[self.rows, Span::new(first + self.cols.lo, first + self.cols.hi)])];
                index("tile", tile, tiles)?;
                sending.extend([out, best_value, best_index]);
                writes
                    .extend([best_value, best_index].map(|buffer| Region::new(buffer, &[self.rows, Span::one(tile)])));
            }
        }
        if !matches!(self.output, LinearOutput::Logits { .. } | LinearOutput::Heads { .. }) {
            ops.floats_of("out", out, [rows, n])?;
        }
        if self.input.activations().contains(&out) {
            let expected = "another buffer than the input: the whole input row is read for every tile";
            return Err(OperandError::Aliased { operand: "out", buffer: out, expected });
        }
        writes.extend(results);
        Ok(Footprint::new(reads, writes).updating(updates).sending(sending))
    }

    fn oracle(&self, on: &Context) -> Done {
        oracle::linear(self, on)
    }

    fn accesses(&self) -> Vec<Access> {
        let even = self.cols.is_in_steps_of(2);
        let whole_strips = self.cols.is_in_steps_of(8);
        let (up, up_bias) = match self.output {
            LinearOutput::Gated { up, up_bias, .. } => (up, up_bias),
            LinearOutput::Store { .. } | LinearOutput::Heads { .. } => (None, None),
            LinearOutput::Add { .. } | LinearOutput::Logits { .. } => (None, None),
        };
        let mut all = self.input.accesses(self.rows, [self.weight].into_iter().chain(up));
        all.extend(Access::weights(self.bias.into_iter().chain(up_bias).chain(self.input.norm_weight())));
        match &self.output {
            LinearOutput::Store { out, sent } => {
                all.extend(sent.iter().chain([out]).map(|&out| Access::output(out).flagged_if(even)));
            }
            // Tasks of attention read parts of it.
            LinearOutput::Heads { out } => all.push(Access::output(*out).relaxed()),
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
            LinearOutput::Store { .. } | LinearOutput::Heads { .. } => None,
            LinearOutput::Add { .. } | LinearOutput::Gated { .. } => None,
        }
    }
}
