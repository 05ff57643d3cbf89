//! `c = a·bᵀ`: a is 64×64, b is 128×64, both bf16 with K contiguous, c is 64×128 in f32. One
//! warpgroup.
//!
//! Both tiles come by tensor map in the 128-byte swizzle (boxes of 64 columns), which is what the
//! descriptors name; a step of 16 in K is 32 bytes further into the swizzled row.

use crate::build::{Builder, Bulk, Descriptor, Global, Ptr, RegArray, SwizzleMode, WgmmaOperands};
use crate::ir::{WgmmaAtom, WgmmaKind};
use half::bf16;

/// Rows of 128 bytes in the 128-byte swizzle: eight of them make a group.
pub(super) const ROWS_OF_128: Descriptor = Descriptor { swizzle: SwizzleMode::B128, leading: 16, stride: 1024 };

/// The atom of 128 columns.
pub(super) const ATOM: WgmmaAtom = match WgmmaAtom::new(128, WgmmaKind::F32_BF16_BF16) {
    Some(atom) => atom,
    None => panic!("128 is a legal N"),
};

/// Parameters: tensor maps of a\[64, 64\] and b\[128, 64\], c\[64, 128\].
pub fn wgmma_tile(k: &Builder) {
    let a_map = k.tensor_map("a");
    let b_map = k.tensor_map("b");
    let c = k.global::<f32>("c");
    let a = k.shared_aligned::<bf16>("a", 64 * 64, 1024);
    let b = k.shared_aligned::<bf16>("b", 128 * 64, 1024);
    let arrived = k.mbarriers("arrived", 1);
    k.when(k.tid().eq(0), || {
        arrived.init(1);
        k.fence_mbarrier_init();
        arrived.arrive_expect_tx((64 + 128) * 128);
        let origin = [k.lit(0i32), k.lit(0i32)];
        a.tensor_load(a_map, &origin, arrived, Bulk::default());
        b.tensor_load(b_map, &origin, arrived, Bulk::default());
    });
    k.barrier();
    arrived.wait(0);

    let acc = k.regs_unset::<f32>(ATOM.acc_registers());
    k.wgmma_fence();
    for step in 0..4 {
        let [a, b] = [a, b].map(|tile| tile.at(16 * step).descriptor(ROWS_OF_128));
        acc.wgmma(ATOM, a, b, step > 0, WgmmaOperands::K_MAJOR);
    }
    k.wgmma_commit();
    k.wgmma_wait(0);
    store_fragment(k, acc, c);
}

/// Writes an accumulator of 64×128: thread t of the warpgroup holds, of each eight columns, two in
/// row `16·(t / 32) + (t mod 32) / 4` and two in the row eight below.
pub(super) fn store_fragment<'k>(k: &'k Builder, acc: RegArray<'k, f32>, c: Ptr<'k, Global, f32>) {
    let warp = k.warp() % 4;
    let lane = k.lane();
    let mine = c.at((warp * 16 + lane / 4) * 128 + lane % 4 * 2);
    for column in 0..16 {
        for half in 0..2 {
            let first = column * 4 + half * 2;
            mine.at(half * 8 * 128 + column * 8).store_vec([acc.get(first), acc.get(first + 1)]);
        }
    }
}
