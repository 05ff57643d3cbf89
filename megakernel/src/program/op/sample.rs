//! The choice of the next token as each row's request says.

use serde::{Deserialize, Serialize};
use tilewright_layout::DType;

use super::operand::{Check, Footprint, Operands, interval};
use crate::program::{BufferId, Region, Span};

/// `out[r]` = the token that `request[r]` asks for: the greedy choice, which is that of `argmax`, or one drawn from
/// `logits[r, :]` as [`naive::sample`](tilewright_kernels::naive::sample) draws it; -1 for an idle row.
///
/// A row of `request` is a [`Request`](tilewright_kernels::sample::Request) as words of 32 bits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Logits, f32 `[rows, vocab]`.
    pub logits: BufferId,
    /// Largest logit of every tile, f32 `[rows, tiles]`.
    pub value: BufferId,
    /// Its index, i32 `[rows, tiles]`.
    pub index: BufferId,
    /// Position of every row, i32 `[rows]`; negative: the row is idle.
    pub position: BufferId,
    /// What each row asks for, i32 `[rows, 8]`.
    pub request: BufferId,
    /// The chosen ids, i32 `[rows]`.
    pub out: BufferId,
    /// Rows that this task decides.
    pub rows: Span,
}

/// Words of a row's request.
pub const REQUEST_WORDS: usize = size_of::<tilewright_kernels::sample::Request>() / 4;

impl Sample {
    pub(super) fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        let [count, vocab] = ops.shape("logits", self.logits)?;
        let [_, tiles] = ops.shape("value", self.value)?;
        ops.exactly("logits", self.logits, DType::F32, [count, vocab])?;
        ops.exactly("value", self.value, DType::F32, [count, tiles])?;
        ops.exactly("index", self.index, DType::I32, [count, tiles])?;
        ops.exactly("position", self.position, DType::I32, [count])?;
        ops.exactly("request", self.request, DType::I32, [count, REQUEST_WORDS])?;
        ops.exactly("out", self.out, DType::I32, [count])?;
        interval("rows", self.rows, count)?;
        let part = |buffer, width| Region::new(buffer, &[self.rows, Span::all(width)]);
        Ok(Footprint {
            reads: vec![
                part(self.logits, vocab),
                part(self.value, tiles),
                part(self.index, tiles),
                Region::new(self.position, &[self.rows]),
                part(self.request, REQUEST_WORDS),
            ],
            writes: vec![Region::new(self.out, &[self.rows])],
        })
    }
}
