//! Embedding: rows of a table, chosen by token ids.

use serde::{Deserialize, Serialize};
use tilewright_layout::DType;

use super::operand::{Check, Footprint, Operands, interval};
use crate::program::{BufferId, Region, Span};

/// `out[r, c] = table[ids[r], c]`; an idle row (`position[r] < 0`) becomes zeros.
///
/// An id outside of the table is refused by the host before the step starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Embed {
    /// Token ids, i32 `[rows]`.
    pub ids: BufferId,
    /// Position of every row, i32 `[rows]`; negative: the row is idle.
    pub position: BufferId,
    /// The table, `[vocab, hidden]`.
    pub table: BufferId,
    /// Output, `[rows, hidden]`.
    pub out: BufferId,
    /// Rows that this task fills.
    pub rows: Span,
    /// Columns that this task fills.
    pub cols: Span,
}

impl Embed {
    pub(super) fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        let [vocab, hidden] = ops.floats("table", self.table)?;
        let [rows, _] = ops.floats("out", self.out)?;
        ops.floats_of("out", self.out, [rows, hidden])?;
        ops.exactly("ids", self.ids, DType::I32, [rows])?;
        ops.exactly("position", self.position, DType::I32, [rows])?;
        interval("rows", self.rows, rows)?;
        interval("cols", self.cols, hidden)?;
        Ok(Footprint {
            reads: vec![
                Region::new(self.ids, &[self.rows]),
                Region::new(self.position, &[self.rows]),
                Region::new(self.table, &[Span::all(vocab), self.cols]),
            ],
            writes: vec![Region::new(self.out, &[self.rows, self.cols])],
        })
    }
}
