//! `out[c] = Σₜ x[t, 511 − c]` for c below 512: one block, tiles of 512 floats, three stages of
//! `cp.async`.
//!
//! Two tiles are on their way while one is added. A thread reads what another one fetched, hence
//! the barrier; it also frees the stage that was read the round before.

use crate::build::Builder;

const STAGES: u32 = 3;
const TILE: u32 = 512;

/// Parameters: tiles, x\[tiles, 512\], out\[512\].
pub fn pipeline(k: &Builder) {
    let tiles = k.param::<u32>("tiles");
    let x = k.global::<f32>("x");
    let out = k.global::<f32>("out");
    let ring = k.shared::<f32>("ring", STAGES * TILE);
    let mine = k.tid() * 4;
    let fetch = |tile, stage| {
        k.when(crate::build::Val::lt(tile, tiles), || ring.at(stage * TILE + mine).cp_async(x.at(tile * TILE + mine)));
        k.cp_async_commit();
    };
    for first in 0..STAGES - 1 {
        fetch(k.lit(first), k.lit(first));
    }

    let sum = k.regs(4, 0.0f32);
    k.for_(0, tiles, |tile| {
        k.cp_async_wait(STAGES - 2);
        k.barrier();
        let opposite = ring.at(tile % STAGES * TILE + (TILE - 4 - mine)).load_vec::<4>();
        for (i, value) in (0..4).zip(opposite) {
            sum.set(i, sum.get(i) + value);
        }
        let next = tile + (STAGES - 1);
        fetch(next, next % STAGES);
    });
    out.at(mine).store_vec([3, 2, 1, 0].map(|i| sum.get(i)));
}
