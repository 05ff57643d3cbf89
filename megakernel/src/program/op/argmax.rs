//! Greedy choice: the best of the tiles' best.

use serde::{Deserialize, Serialize};
use tilewright_layout::DType;

use super::operand::{Check, Footprint, Operands, interval};
use crate::program::{BufferId, Region, Span};

/// `out[r]` = the index of the largest `value[r, tile]`; among equal values the lowest index. NaN counts as `−∞`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Argmax {
    /// Largest logit of every tile, f32 `[rows, tiles]`.
    pub value: BufferId,
    /// Its index, i32 `[rows, tiles]`.
    pub index: BufferId,
    /// The chosen ids, i32 `[rows]`.
    pub out: BufferId,
    /// Rows that this task decides.
    pub rows: Span,
}

impl Argmax {
    pub(super) fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        let [count, tiles] = ops.shape("value", self.value)?;
        ops.exactly("value", self.value, DType::F32, [count, tiles])?;
        ops.exactly("index", self.index, DType::I32, [count, tiles])?;
        ops.exactly("out", self.out, DType::I32, [count])?;
        interval("rows", self.rows, count)?;
        let part = |buffer| Region::new(buffer, &[self.rows, Span::all(tiles)]);
        Ok(Footprint {
            reads: vec![part(self.value), part(self.index)],
            writes: vec![Region::new(self.out, &[self.rows])],
        })
    }
}
