//! A product of f32 matrices by tensor cores in tf32: tiles through shared memory, fragments
//! double-buffered in registers.

use crate::mma::{AtomLayout, MmaSync, Tf32, TiledMma};
use crate::tile::prelude::*;
use tilewright_layout::typed::{KMajor, OperandTile, Within};

/// Rows and columns of a block's tile of D, and K of a stage.
const TILE: u32 = 64;
const DEPTH: u32 = 32;
/// Three stages of an operand, swizzled rows of 128 bytes.
type OperandStages = OperandTile<KMajor, 32, 192, 32>;
/// The part of a stage's operand that a warp multiplies.
type WarpOperand = Within<OperandStages, 64, 32>;
/// Four warps of 32×32.
type Tf32Mma<'k> = TiledMma<'k, MmaSync<Tf32>, WarpOperand, WarpOperand, AtomLayout<2, 2>>;

/// `D = A·Bᵀ` of f32, 64×64 of D a block of 128 threads. Operands are rounded to tf32, so that D
/// differs from the product of the f32s by Σ|aᵢbᵢ| · 2⁻¹⁰ and what the sums lose. Parameters: `m`,
/// `n`, `k`, strides `as`, `bs`, `ds` of the rows; `a` (m rows of k), `b` (n rows of k), `d` (m
/// rows of n); k, `as` and `bs` are multiples of 4.
pub fn gemm_tf32(k: &Builder) {
    let [m, n, depth, a_row, b_row, d_row] = ["m", "n", "k", "as", "bs", "ds"].map(|name| k.param::<u32>(name));
    let across = (n + (TILE - 1)) / TILE;
    let place = [k.block_id() / across, k.block_id() % across].map(Index::any);
    let operands = [("a", "a_stages", m, a_row, place[0]), ("b", "b_stages", n, b_row, place[1])];
    let sides = operands.map(|(name, stages, rows, stride, tile)| {
        let modes = Modes::row_major([rows.into(), depth.into()], stride).vectors(4);
        let strip = LayoutTensor::new(k.global::<f32>(name), modes).range(0, tile * TILE, TILE);
        let stages = LayoutTensor::<f32, OperandStages, _>::shared(k, stages);
        let around = || stages.tiles_around::<64, 32>(k, Along::Rows, 0.into());
        (strip.parts_along(1, DEPTH).start(), around(), around())
    });
    let fetch = || {
        let all = ThreadGroup::block(k);
        for (next, empty, _) in &sides {
            k.when(next.valid(), || all.copy_async(next.here(), empty.here()));
            next.advance();
            empty.advance();
        }
        k.cp_async_commit();
    };
    fetch();
    fetch();
    let product = Tf32Mma::new(k);
    k.for_step(0u32, depth, DEPTH, |_| {
        k.cp_async_wait(1);
        k.barrier();
        // The stage that all threads left before this barrier is filled again.
        fetch();
        let [a, b] = sides.each_ref().map(|(_, _, full)| full.here());
        let load = |step| {
            let a = product.load_a(a, step);
            let b = product.load_b(b, step);
            let a: Vec<_> = a.iter().map(|a| a.map(rounded)).collect();
            (a, b.iter().map(|b| b.map(rounded)).collect::<Vec<_>>())
        };
        let mut here = load(0);
        for step in 1..=Tf32Mma::STEPS {
            let next = (step < Tf32Mma::STEPS).then(|| load(step));
            product.mma(&here.0, &here.1);
            here = next.unwrap_or(here);
        }
        sides.iter().for_each(|(_, _, full)| full.advance());
    });
    let d = LayoutTensor::new(k.global::<f32>("d"), Modes::row_major([m.into(), n.into()], d_row));
    product.store_d(d.clipped_tile([TILE, TILE], place));
}

/// A register of an operand, rounded to the nearest tf32.
#[track_caller]
fn rounded(word: Val<'_, u32>) -> Val<'_, u32> {
    word.bits::<f32>().tf32()
}
