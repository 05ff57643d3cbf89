//! Each tile of 32 rows × 32 floats of a matrix, doubled: by tensor map into shared memory and by
//! another out of it.
//!
//! Grid: columns / 32 by rows / 32. Maps: boxes of 32×32, no swizzle.

use crate::build::{Builder, Bulk};
use crate::ir::attr::{ProxyFence, SpecialReg};

/// Parameters: tensor maps of x and of y, both \[rows, columns\].
pub fn tensor_tile(k: &Builder) {
    let x = k.tensor_map("x");
    let y = k.tensor_map("y");
    let tile = k.shared_aligned::<f32>("tile", 32 * 32, 128);
    let arrived = k.mbarriers("arrived", 1);
    let leader = k.tid().eq(0);
    let at = [SpecialReg::CtaidX, SpecialReg::CtaidY].map(|axis| (k.special(axis) * 32).cast::<i32>());

    k.when(leader, || {
        arrived.init(1);
        k.fence_mbarrier_init();
        arrived.arrive_expect_tx(32 * 32 * 4);
        tile.tensor_load(x, &at, arrived, Bulk::default());
    });
    k.barrier();
    arrived.wait(0);

    let mine = tile.at(k.tid() * 8);
    for half in [mine, mine.at(4)] {
        half.store_vec(half.load_vec::<4>().map(|v| v * 2.0));
    }
    k.fence_proxy_async(ProxyFence::Shared);
    k.barrier();
    k.when(leader, || {
        tile.tensor_store(y, &at);
        k.bulk_commit();
        k.bulk_wait(0);
    });
}
