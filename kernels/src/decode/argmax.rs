//! Greedy choice: the best of the tiles' best, a warp for each row.

use tilewright_codegen::build::{Global, Ptr, Val};

use super::ConsumerWarps;
use super::linear::{key, shuffled, unkey};

/// Rows to decide.
#[derive(Clone, Copy)]
pub struct Argmax<'k> {
    /// Largest logit of every tile, f32 `[rows, tiles]`.
    pub value: Ptr<'k, Global, f32>,
    /// Its index, i32 `[rows, tiles]`.
    pub index: Ptr<'k, Global, i32>,
    /// Tiles.
    pub tiles: u32,
    /// The chosen ids, i32 `[rows]`.
    pub out: Ptr<'k, Global, i32>,
    /// Rows.
    pub rows: u32,
    /// First row.
    pub first_row: Val<'k, u32>,
}

/// Decides: of the largest the lowest index; NaN counts as −∞.
pub fn argmax<'k>(team: ConsumerWarps<'k>, argmax: Argmax<'k>) {
    let k = team.k;
    k.for_step(k.warp(), argmax.rows, team.warps, |row| {
        let row = argmax.first_row + row;
        let best = best_of_tiles(team, argmax.value, argmax.index, row, argmax.tiles);
        k.when(k.lane().eq(0), || argmax.out.at(row).store(best.cast::<i32>()));
    });
}

/// The index of the largest value of a row's tiles, of equals the lowest; by a whole warp, the same in all of its lanes.
pub(super) fn best_of_tiles<'k>(
    team: ConsumerWarps<'k>,
    value: Ptr<'k, Global, f32>,
    index: Ptr<'k, Global, i32>,
    row: Val<'k, u32>,
    tiles: u32,
) -> Val<'k, u32> {
    let k = team.k;
    let best = k.var(0u64);
    for start in (0..tiles).step_by(32) {
        let tile = k.lane() + start;
        k.when(tile.lt(tiles), || {
            let at = row * tiles + tile;
            let (value, index) = (value.at(at).load(), index.at(at).load().cast::<u32>());
            best.set(best.get().max(key(team, value, index)));
        });
    }
    let best = [16u32, 8, 4, 2, 1].into_iter().fold(best.get(), |best, bits| best.max(shuffled(team, best, bits)));
    unkey(best).1
}
