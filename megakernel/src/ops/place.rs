//! The destination of a row's token, and the rotation of its heads.

use serde::{Deserialize, Serialize};
use tilewright_layout::DType;

use super::{CellUse, Check, Operands, Paging, multiple, positive};
use crate::program::{BufferId, Region, Span};

/// A rotation of pairs `(i, i + half)` by `position · inv_freq[i]` radians, both results times
/// `scale`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rotation {
    /// Radians per position, f32 `[head_dim / 2]`.
    pub inv_freq: BufferId,
    /// Factor on cosine and sine.
    pub scale: f32,
}

impl Rotation {
    pub(super) fn check(&self, ops: &Operands, head_dim: usize) -> Check {
        multiple("head_dim", head_dim, 2)?;
        ops.exactly("inv_freq", self.inv_freq, DType::F32, [head_dim / 2])?;
        positive("scale", self.scale)
    }
}

/// The cells that identify a row's token and sequence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowCells {
    /// Position of every row, i32 `[rows]`; negative: the row is idle, it appends nothing and
    /// attends to nothing.
    pub position: BufferId,
    /// Page of every run of `page_tokens` tokens, i32 `[rows, pages_per_sequence]`.
    pub page_table: BufferId,
}

impl RowCells {
    /// Checks both cells; gives the regions of them that the rows read.
    ///
    /// # Errors
    /// If a step input is invalid.
    pub fn footprint(&self, ops: &Operands, rows: Span, count: usize) -> Check<[Region; 2]> {
        ops.cell("position", self.position, [count])?;
        let [_, pages] = ops.shape("page_table", self.page_table)?;
        ops.cell("page_table", self.page_table, [count, pages])?;
        Ok([Region::new(self.position, &[rows]), Region::new(self.page_table, &[rows, Span::all(pages)])])
    }

    /// The roles of both step inputs, if the page table indexes the pages of these pools.
    ///
    /// # Errors
    /// If a buffer is not a pool.
    pub fn cells(&self, ops: &Operands, pools: &[BufferId]) -> Check<Vec<(BufferId, CellUse)>> {
        let mut cells = vec![(self.position, CellUse::Position)];
        for &pool in pools {
            let [_, pages, page_tokens, _] = ops.shape("pool", pool)?;
            let paging = Some(Paging { pages, page_tokens });
            cells.push((self.page_table, CellUse::PageTable { paging }));
        }
        if pools.is_empty() {
            cells.push((self.page_table, CellUse::PageTable { paging: None }));
        }
        Ok(cells)
    }
}
