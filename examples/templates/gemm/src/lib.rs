//! `c = a · bᵀ`: a[m, k] and b[n, k] of `bf16`, c[m, n] of f32, any m, n and k; tiles of 64×64×32,
//! a ring of three stages.

use half::bf16;
use tilewright::codegen::build::{block, record};
use tilewright::codegen::ir::attr::SpecialReg;
use tilewright::codegen::ir::{Arch, Kernel};
use tilewright::kernels::mma::{AtomLayout, MmaSync, TiledMma};
use tilewright::kernels::ring::{GroupRing, StageTile};
use tilewright::kernels::tile::{LayoutTensor, Modes, ThreadGroup};
use tilewright::layout::typed::{KMajor, OperandTile};

/// Rows and columns of a block's part of c, and k of a stage.
pub const TILE: [u32; 3] = [64, 64, 32];

/// A tile of either operand in shared memory, swizzled for `ldmatrix`.
type Operand = OperandTile<KMajor, 16, 64, 32>;

/// Names the ring.
enum Operands {}

/// The kernel, for a grid of ⌈n / 64⌉ × ⌈m / 64⌉ blocks. Parameters: `m`, `n`, `k`, then `a`, `b`,
/// `c`; `k` is a multiple of 8.
pub fn gemm(arch: Arch) -> Kernel {
    record("gemm", arch, block(128), |k| {
        let [m, n, depth] = ["m", "n", "k"].map(|name| k.param::<u32>(name));
        let [a, b] = [("a", m), ("b", n)].map(|(name, rows)| {
            LayoutTensor::new(k.global::<bf16>(name), Modes::row_major([rows.into(), depth.into()], depth).vectors(8))
        });
        let c = LayoutTensor::new(k.global::<f32>("c"), Modes::row_major([m.into(), n.into()], n));
        let [column, row] = [SpecialReg::CtaidX, SpecialReg::CtaidY].map(|axis| k.special(axis));

        let steps = (depth + (TILE[2] - 1)) / TILE[2];
        let stage = (StageTile::<bf16, Operand>::typed(), StageTile::<bf16, Operand>::typed());
        let mut ring = GroupRing::new::<Operands, _>(k, stage, 3, |step, (to_a, to_b)| {
            let all = ThreadGroup::block(k);
            all.copy_async(a.clipped_tile([TILE[0], TILE[2]], [row.into(), step.into()]), to_a);
            all.copy_async(b.clipped_tile([TILE[1], TILE[2]], [column.into(), step.into()]), to_b);
        });
        let product = TiledMma::<MmaSync<bf16>, Operand, Operand, AtomLayout<2, 2>>::new(k);
        k.moving().for_(0, steps, |_| {
            let (current, free) = ring.turn();
            let claimed = free.fill();
            let (a, b) = current.tiles();
            product.multiply(a, b);
            current.done(claimed);
        });
        ring.finish();
        product.store_d(c.clipped_tile([TILE[0], TILE[1]], [row.into(), column.into()]));
    })
}

#[cfg(test)]
mod laws;
