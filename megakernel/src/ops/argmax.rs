//! Greedy choice: the best of the tiles' best.

use serde::{Deserialize, Serialize};
use tilewright_layout::DType;

use super::{Check, Choice, Footprint, Operands, TaskOp, interval};
use crate::oracle::{Context, Done, TaskFault};
use crate::program::{BufferId, Region, Span};

/// `out[r]` = the index of the largest `value[r, tile]`; among equal values the lowest index. NaN
/// counts as `−∞`. Where the largest value is infinite, no token is likelier than the others: the
/// reference machine refuses the row, a device stores -1.
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

impl TaskOp for Argmax {
    fn name() -> &'static str {
        "argmax"
    }

    fn footprint(&self, ops: &Operands) -> Check<Footprint> {
        let [count, tiles] = ops.shape("value", self.value)?;
        ops.exactly("value", self.value, DType::F32, [count, tiles])?;
        ops.exactly("index", self.index, DType::I32, [count, tiles])?;
        ops.exactly("out", self.out, DType::I32, [count])?;
        interval("rows", self.rows, count)?;
        let part = |buffer| Region::new(buffer, &[self.rows, Span::all(tiles)]);
        Ok(Footprint::new(vec![part(self.value), part(self.index)], vec![Region::new(self.out, &[self.rows])]))
    }

    fn oracle(&self, on: &Context) -> Done {
        self.rows
            .iter()
            .try_for_each(|row| on.write_i32(self.out, row, best_of_tiles(on, self.value, self.index, row)?))
    }

    fn choice(&self) -> Option<Choice> {
        Some(Choice { out: self.out, index: self.index, logits: None, request: None })
    }
}

/// The index of the largest value of a row's tiles, of equals the lowest; NaN counts as −∞. Refuses
/// an infinite one.
pub(super) fn best_of_tiles(on: &Context, value: BufferId, index: BufferId, row: usize) -> Done<i32> {
    let [_, tiles] = on.shape(value)?;
    let mut best: Option<(f32, i32)> = None;
    for (tile, value) in on.read(value, row * tiles, tiles)?.into_iter().enumerate() {
        let value = if value.is_nan() { f32::NEG_INFINITY } else { value };
        let index = on.read_i32(index, row * tiles + tile)?;
        if best.is_none_or(|(most, lowest)| value > most || (value == most && index < lowest)) {
            best = Some((value, index));
        }
    }
    match best {
        Some((most, index)) if most.is_finite() => Ok(index),
        Some((found, _)) => Err(TaskFault::NoChoice { row, found }),
        None => Err(TaskFault::NoChoice { row, found: f32::NEG_INFINITY }),
    }
}
