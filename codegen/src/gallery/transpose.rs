//! `y = xᵀ` for a square matrix of n×n, n a multiple of 32: a tile of 32×32 a block, (n/32)² blocks
//! of 32×8 threads.
//!
//! The column is exchanged by the row, so that rows and columns of the tile both touch 32 different
//! banks.

use crate::build::{Builder, Val};
use crate::ir::attr::SpecialReg;

/// Parameters: n, x\[n, n\], y\[n, n\].
pub fn transpose<'k>(k: &'k Builder) {
    let n = k.param::<u32>("n");
    let x = k.global::<f32>("x");
    let y = k.global::<f32>("y");
    let tile = k.shared::<f32>("tile", 32 * 32);
    let at = |row: Val<'k, u32>, column: Val<'k, u32>| tile.at(row * 32 + (column ^ row));

    let column = k.special(SpecialReg::TidX);
    let first_row = k.special(SpecialReg::TidY);
    let i = k.special(SpecialReg::CtaidY) * 32;
    let j = k.special(SpecialReg::CtaidX) * 32;
    for step in 0..4 {
        let row = first_row + 8 * step;
        at(row, column).store(x.at((i + row) * n + j + column).load());
    }
    k.barrier();
    for step in 0..4 {
        let row = first_row + 8 * step;
        y.at((j + row) * n + i + column).store(at(column, row).load());
    }
}
