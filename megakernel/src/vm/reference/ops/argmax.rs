//! The best of the tiles' best.

use super::{Context, Done};
use crate::program::Argmax;

pub(super) fn argmax(op: &Argmax, on: &Context) -> Done {
    let [_, tiles] = on.shape(op.value)?;
    for row in op.rows.iter() {
        let values = on.read(op.value, row * tiles, tiles)?;
        let mut best: Option<(f32, i32)> = None;
        for (tile, &value) in values.iter().enumerate() {
            let value = if value.is_nan() { f32::NEG_INFINITY } else { value };
            let index = on.read_i32(op.index, row * tiles + tile)?;
            if best.is_none_or(|(most, lowest)| value > most || (value == most && index < lowest)) {
                best = Some((value, index));
            }
        }
        on.write_i32(op.out, row, best.map_or(0, |(_, index)| index))?;
    }
    Ok(())
}
