//! Two products one after the other: sums of the first become the A operand of the second, in
//! registers.

use crate::mma::{AtomLayout, InputType, MmaSync, TiledMma};
use crate::tile::prelude::*;
use half::bf16;
use tilewright_layout::typed::{KMajor, OperandTile, Within};

/// An operand of the first product.
type ProductTile = OperandTile<KMajor, 16, 64, 64>;
/// The B operand of the second, two tiles of 64 columns of D.
type Columns = OperandTile<KMajor, 16, 128, 64>;
/// Four warps of 16 rows: each holds whole rows of A·Bᵀ.
type ChainedMma<'k, B> = TiledMma<'k, MmaSync<bf16>, ProductTile, B, AtomLayout<4, 1>>;

/// `D = bf16(A·Bᵀ)·Cᵀ`, 64 rows of D a block of 128 threads. Parameters: `m`; `n`, 128 at most; `a`
/// (bf16, m rows of 64), `b` (bf16, 64 rows of 64), `c` (bf16, n rows of 64), `d` (f32, m rows of
/// n).
pub fn two_products(k: &Builder) {
    let [m, n] = ["m", "n"].map(|name| k.param::<u32>(name));
    let all = ThreadGroup::block(k);
    let block = Index::any(k.block_id());
    let rows = |name, extent| {
        LayoutTensor::new(k.global::<bf16>(name), Modes::row_major([extent, 64.into()], 64u32).vectors(8))
    };
    let [a, b] = ["a_tile", "b_tile"].map(|name| LayoutTensor::<bf16, ProductTile, _>::shared(k, name));
    let c = LayoutTensor::<bf16, Columns, _>::shared(k, "c_tiles");
    all.copy_async(rows("a", m.into()).clipped_tile([64, 64], [block, 0.into()]), a);
    all.copy_async(rows("b", 64.into()).clipped_tile([64, 64], [0.into(), 0.into()]), b);
    all.copy_async(rows("c", n.into()).clipped_tile([128, 64], [0.into(), 0.into()]), c);
    k.cp_async_commit();
    k.cp_async_wait(0);
    k.barrier();

    let first = ChainedMma::<ProductTile>::new(k);
    first.multiply(a, b);
    let part = |step: u32| first.sums().copy_local_to_local::<bf16, <bf16 as InputType>::WarpA>(0, 16 * step);
    let weights: Vec<_> = (0..4).map(|step| part(step).expect("a thread of m16n8 holds the pairs of its A")).collect();

    let d = LayoutTensor::new(k.global::<f32>("d"), Modes::row_major([m.into(), n.into()], n));
    c.tiles_along::<64, 64>(k, Along::Rows, 0.into()).until((n + 63) / 64).each(|c, number| {
        let second = ChainedMma::<Within<Columns, 64, 64>>::new(k);
        for (step, weights) in (0..).zip(weights.chunks(1)) {
            second.mma(weights, &second.load_b(c, step));
        }
        second.store_d(d.clipped_tile([64, 64], [block, number]));
    });
}
