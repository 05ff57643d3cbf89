//! The op that selects: first blocks, winners, last blocks.

use serde::{Deserialize, Serialize};
use tilewright_layout::DType;
use tilewright_megakernel::ops::{Footprint, OperandError, Operands, RowCells, TaskOp, index, interval, multiple};
use tilewright_megakernel::program::{BufferId, Region, Span};
use tilewright_megakernel::vm::reference::{Context, TaskFault};

use super::score::split_of;
use crate::memory::{BlockSelection, Budget};

/// Selects the blocks that rows attend to, exactly: of a kv head the first blocks, the candidates
/// with the largest scores (equal ones by position, NaN after everything else), the last blocks, as
/// a [`Selection`](tilewright_megakernel::ops::Selection).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Select {
    /// Tokens of a block.
    pub block_tokens: usize,
    /// The number of blocks that a row attends to.
    pub budget: Budget,
    /// Key pool, `[kv_heads, pages, page_tokens, head_dim]`: what pages are.
    pub k_pool: BufferId,
    /// The step inputs that locate rows' tokens.
    pub at: RowCells,
    /// The kv head.
    pub kv_head: usize,
    /// Rows that this task selects for.
    pub rows: Span,
    /// Scores as [`Score`](super::Score) leaves them, f32 `[rows, kv_heads, splits, blocks of a
    /// split]`.
    pub scores: BufferId,
    /// The selected blocks, i32 `[rows, kv_heads, most]`.
    pub blocks: BufferId,
    /// Number of selected tokens less 1, i32 `[kv_heads, rows]`; -1 for an idle row.
    pub last: BufferId,
}

impl TaskOp for Select {
    fn name() -> &'static str {
        "flow_select"
    }

    fn footprint(&self, ops: &Operands) -> Result<Footprint, OperandError> {
        let [kv_heads, _, page_tokens, _] = ops.pool("k_pool", self.k_pool)?;
        multiple("page_tokens", page_tokens, self.block_tokens)?;
        index("kv_head", self.kv_head, kv_heads)?;
        let [count, _, splits, share] = ops.shape("scores", self.scores)?;
        ops.exactly("scores", self.scores, DType::F32, [count, kv_heads, splits, share])?;
        interval("rows", self.rows, count)?;
        let [_, width] = ops.shape("page_table", self.at.page_table)?;
        let [_, _, most] = ops.shape("blocks", self.blocks)?;
        ops.exactly("blocks", self.blocks, DType::I32, [count, kv_heads, most])?;
        ops.exactly("last", self.last, DType::I32, [kv_heads, count])?;
        let all = width * (page_tokens / self.block_tokens);
        let head = Span::one(self.kv_head);
        let needed = self.budget.selected(all);
        if most < needed || share < all.div_ceil(splits) {
            let problem =
                format!("{most} blocks and {splits} splits of {share}; of {all} blocks {needed} are selected");
            return Err(OperandError::Refused { operand: "blocks", problem });
        }
        let mut reads = vec![Region::new(self.scores, &[self.rows, head, Span::all(splits), Span::all(share)])];
        reads.extend(self.at.footprint(ops, self.rows, count)?);
        let writes = vec![
            Region::new(self.blocks, &[self.rows, head, Span::all(most)]),
            Region::new(self.last, &[head, self.rows]),
        ];
        Ok(Footprint::new(reads, writes).cells(self.at.cells(ops, &[self.k_pool])?))
    }

    fn oracle(&self, on: &Context) -> Result<(), TaskFault> {
        let [_, kv_heads, splits, share] = on.shape(self.scores)?;
        let [count, _, most] = on.shape(self.blocks)?;
        let pool = on.pool_shape(self.k_pool)?;
        let per_page = pool.page_tokens / self.block_tokens.max(1);
        for row in self.rows.iter() {
            let at = row * kv_heads + self.kv_head;
            let Some(position) = on.position(self.at.position, row)? else {
                on.write_i32(self.last, self.kv_head * count + row, -1)?;
                continue;
            };
            let pages = on.table(self.at.page_table, row, position, pool)?;
            let all = position / self.block_tokens + 1;
            let table: Vec<u32> =
                (0..all).map(|block| (pages[block / per_page] * per_page + block % per_page) as u32).collect();
            let mut scores = Vec::new();
            if let Some(candidates) = self.budget.candidates(all) {
                for split in 0..splits {
                    let count = split_of(&candidates, splits, split).len();
                    on.read_onto(self.scores, (at * splits + split) * share, count, &mut scores)?;
                }
            }
            let selected = BlockSelection::of(&self.budget, &table, &scores);
            for (entry, &block) in selected.blocks.iter().enumerate() {
                on.write_i32(self.blocks, at * most + entry, block as i32)?;
            }
            let tokens = selected.tokens(self.block_tokens, position % self.block_tokens + 1);
            on.write_i32(self.last, self.kv_head * count + row, tokens as i32 - 1)?;
        }
        Ok(())
    }
}
