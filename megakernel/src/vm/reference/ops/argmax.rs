//! The best of the tiles' best.

use super::{Context, Done};
use crate::program::{Argmax, BufferId};

pub(super) fn argmax(op: &Argmax, on: &Context) -> Done {
    op.rows.iter().try_for_each(|row| on.write_i32(op.out, row, best_of_tiles(on, op.value, op.index, row)?))
}

/// The index of the largest value of a row's tiles, of equals the lowest; NaN counts as −∞.
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
    Ok(best.map_or(0, |(_, index)| index))
}
