//! Attention of one kv head over a split of the tokens, or of those that were selected.

mod operands;
mod oracle;
mod selection;

use super::{
    Access, Check, Footprint, OperandError, Operands, Partial, TaskOp, Written, index, interval, multiple, positive,
};
use crate::oracle::{Context, Done};
use crate::program::{Region, Span};
use tilewright_layout::DType;

pub use operands::Attention;
pub use selection::Selection;

impl TaskOp for Attention {
    fn name() -> &'static str {
        "attention"
    }

    fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        let [count, heads, dim] = ops.floats("q", self.q)?;
        let pool @ [kv_heads, pages, page_tokens, _] = ops.pool("k_pool", self.k_pool)?;
        ops.pool_of("k_pool", self.k_pool, [kv_heads, pages, page_tokens, dim])?;
        ops.pool_of("v_pool", self.v_pool, pool)?;
        let shares = self.shares_pool();
        let dtype = ops.get("k_pool", self.k_pool)?.dtype;
        if ops.get("v_pool", self.v_pool)?.dtype != dtype {
            let buffer = self.v_pool;
            let expected = "of the type of `k_pool`";
            return Err(OperandError::Aliased { operand: "v_pool", buffer, expected });
        }
        multiple("heads", heads, kv_heads)?;
        index("kv_head", self.kv_head, kv_heads)?;
        interval("rows", self.rows, count)?;
        positive("scale", self.scale)?;
        let refused = |operand, problem: String| OperandError::Refused { operand, problem };
        self.modifier().check().map_err(|error| refused("scores", error.to_string()))?;
        if self.selection.is_some() && self.window.is_some() {
            return Err(refused("window", "blocks of tokens are selected from all of a row's".to_owned()));
        }
        if shares && self.selection.is_some() {
            return Err(refused("selection", "blocks are selected of keys with values of their own".to_owned()));
        }
        let [_, _, splits, values] = ops.shape("acc", self.acc)?;
        index("split", self.split, splits)?;
        let values = if shares { values.min(dim) } else { dim };
        ops.exactly("acc", self.acc, DType::F32, [count, heads, splits, values])?;
        ops.exactly("stats", self.stats, DType::F32, [count, heads, splits, 2])?;
        let group = heads / kv_heads;
        let queries = Span::new(self.kv_head * group, (self.kv_head + 1) * group);
        let tokens =
            |p| Region::new(p, &[Span::one(self.kv_head), Span::all(pages), Span::all(page_tokens), Span::all(dim)]);
        let part = |buffer, last| Region::new(buffer, &[self.rows, queries, Span::one(self.split), Span::all(last)]);
        let mut reads = vec![Region::new(self.q, &[self.rows, queries, Span::all(dim)]), tokens(self.k_pool)];
        if !shares {
            reads.push(tokens(self.v_pool));
        }
        if let Some(sinks) = self.sinks {
            ops.exactly("sinks", sinks, DType::F32, [heads])?;
            reads.push(Region::new(sinks, &[queries]));
        }
        reads.extend(self.at.footprint(ops, self.rows, count)?);
        if let Some(selection) = &self.selection {
            multiple("page_tokens", page_tokens, selection.block_tokens)?;
            reads.extend(selection.footprint(ops, [count, kv_heads], self.rows, self.kv_head)?);
        }
        let cells = self.at.cells(ops, &[self.k_pool, self.v_pool])?;
        Ok(Footprint::new(reads, vec![part(self.acc, values), part(self.stats, 2)]).cells(cells))
    }

    fn oracle(&self, on: &Context) -> Done {
        oracle::attention(self, on)
    }

    fn accesses(&self) -> Vec<Access> {
        let cells = [self.at.position, self.at.page_table];
        let partial = Partial { acc: self.acc, rows: self.rows, written: Some(Written { pool: self.k_pool, cells }) };
        let q = Access::input(self.q).relaxed();
        let q =
            if self.selection.is_none() && !self.shares_pool() { q.with_token([self.k_pool, self.v_pool]) } else { q };
        let acc = Access::output(self.acc).of_partial(partial).splitting_if(true);
        let stats = Access::output(self.stats).of_partial(partial);
        [q, acc, stats].into_iter().chain(Access::weights(self.sinks)).collect()
    }

    /// Of a pool its split's share of the tokens, for each row.
    fn drawn(&self, region: &Region, ops: &Operands, context: usize) -> usize {
        if ![self.k_pool, self.v_pool].contains(&region.buffer) {
            return region.elements();
        }
        let Some([_, _, page, dim]) = region.spans().first_chunk::<4>().copied() else { return 0 };
        let context = self.window.map_or(context, |window| context.min(window as usize));
        let context = self.selection.as_ref().map_or(context, |selection| selection.most_tokens(ops).min(context));
        let splits = ops.shape::<4>("acc", self.acc).map_or(1, |[_, _, splits, _]| splits);
        let share = context.div_ceil(page.len().max(1)).div_ceil(splits.max(1)) * page.len();
        self.rows.len() * context.saturating_sub(self.split * share).min(share) * dim.len()
    }
}
