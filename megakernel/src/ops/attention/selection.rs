//! The selection of attended tokens by an op of the same step.

use serde::{Deserialize, Serialize};
use tilewright_layout::DType;

use crate::ops::{Check, Operands, interval};
use crate::program::{BufferId, Region, Span};

/// Blocks of consecutive tokens that rows attend to, chosen within the step: by kv head, in any
/// order of blocks.
///
/// Block `b` of a kv head holds the tokens `b · block_tokens ..` of its pool `[pages ·
/// page_tokens]`: block `b mod (page_tokens / block_tokens)` of page `b / (page_tokens /
/// block_tokens)`. A selection of `last + 1` tokens has `ceil((last + 1) / block_tokens)` blocks,
/// all but the last of them whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selection {
    /// The blocks, i32 `[rows, kv_heads, most]`.
    pub blocks: BufferId,
    /// Number of selected tokens less 1, i32 `[kv_heads, rows]`; negative: none.
    pub last: BufferId,
    /// Tokens of a block; a page has a multiple of it.
    pub block_tokens: usize,
}

impl Selection {
    /// Checks both buffers; gives the regions of them that a kv head of the rows reads.
    pub(super) fn footprint(
        &self,
        ops: &Operands,
        [count, kv_heads]: [usize; 2],
        rows: Span,
        kv_head: usize,
    ) -> Check<[Region; 2]> {
        let [_, _, most] = ops.shape("blocks", self.blocks)?;
        ops.exactly("blocks", self.blocks, DType::I32, [count, kv_heads, most])?;
        ops.exactly("last", self.last, DType::I32, [kv_heads, count])?;
        interval("rows", rows, count)?;
        let head = Span::one(kv_head);
        Ok([Region::new(self.blocks, &[rows, head, Span::all(most)]), Region::new(self.last, &[head, rows])])
    }

    /// Most tokens of a row.
    pub(super) fn most_tokens(&self, ops: &Operands) -> usize {
        ops.shape::<3>("blocks", self.blocks).map_or(usize::MAX, |[_, _, most]| most.saturating_mul(self.block_tokens))
    }
}
