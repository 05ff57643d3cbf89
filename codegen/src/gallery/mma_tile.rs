//! `c = a·bᵀ`: a is 16×64, b is 8×64, both bf16 and row-major, c is 16×8 in f32. One warp.
//!
//! Rows of 128 bytes are staged in chunks of 16, chunk c of row r at place `c ^ (r mod 8)`:
//! `ldmatrix` then reads eight rows from eight different groups of banks.

use crate::build::{Builder, Global, Ptr, Shared, Val};
use crate::ir::MmaAtom;
use crate::ir::attr::Trans;
use half::bf16;

const K: u32 = 64;

/// The address of a chunk of eight elements of a row.
fn chunk<'k>(tile: Ptr<'k, Shared, bf16>, row: Val<'k, u32>, chunk: Val<'k, u32>) -> Ptr<'k, Shared, bf16> {
    tile.at(row * K + (chunk ^ (row & 7)) * 8)
}

/// Parameters: a\[16, 64\], b\[8, 64\], c\[16, 8\].
pub fn mma_tile(k: &Builder) {
    let a = k.global::<bf16>("a");
    let b = k.global::<bf16>("b");
    let c = k.global::<f32>("c");
    let a_tile = k.shared_aligned::<bf16>("a", 16 * K, 128);
    let b_tile = k.shared_aligned::<bf16>("b", 8 * K, 128);
    let lane = k.lane();
    let stage = |tile, source: Ptr<'_, Global, bf16>, rows: u32| {
        for step in 0..rows / 4 {
            let row = lane / 8 + 4 * step;
            let column = lane % 8;
            chunk(tile, row, column).cp_async(source.at(row * K + column * 8));
        }
    };
    stage(a_tile, a, 16);
    stage(b_tile, b, 8);
    k.cp_async_commit();
    k.cp_async_wait(0);
    k.sync_warp();

    let acc = k.regs(4, 0.0f32);
    for step in 0..K / 16 {
        let a = chunk(a_tile, lane % 16, lane / 16 + 2 * step).ldmatrix::<4>(Trans::No);
        let b = chunk(b_tile, lane % 8, lane / 8 % 2 + 2 * step).ldmatrix::<2>(Trans::No);
        acc.mma(MmaAtom::M16N8K16_F32_BF16_BF16, &a, &b);
    }
    let mine = c.at(lane / 4 * 8 + lane % 4 * 2);
    mine.store_vec([acc.get(0), acc.get(1)]);
    mine.at(8 * 8).store_vec([acc.get(2), acc.get(3)]);
}
