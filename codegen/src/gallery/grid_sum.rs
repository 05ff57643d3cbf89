//! `share[i] = x[i] / Σ x`: every block of the grid needs a sum over all of them, in one launch.
//!
//! Each block adds its 128 elements, publishes the part and then counts itself done with release;
//! it reads the parts once it has seen, with acquire, that all are done. The counter only grows:
//! launch number `epoch` (from 0) waits for (epoch + 1) · blocks, so nothing is zeroed between
//! launches. All blocks must be resident: a cooperative launch.

use crate::build::Builder;
use crate::ir::attr::{AtomOp, RedOrder, Scope};

/// Parameters: epoch, x\[128·blocks\], parts\[4·blocks\], done\[1\], share\[128·blocks\].
pub fn grid_sum(k: &Builder) {
    let epoch = k.param::<u32>("epoch");
    let x = k.global::<f32>("x");
    let parts = k.global::<f32>("parts");
    let done = k.global::<u32>("done");
    let share = k.global::<f32>("share");
    let i = k.block_id() * k.threads() + k.tid();
    let warps = k.threads() / 32;

    let mine = x.at(i).load();
    let of_warp = mine.warp_reduce(|a, b| a + b);
    k.when(k.lane().eq(0), || parts.at(k.block_id() * warps + k.warp()).store(of_warp));
    k.barrier();
    k.when(k.tid().eq(0), || {
        done.red(AtomOp::Add, 1, RedOrder::Release(Scope::Gpu));
        let all = k.blocks() * (epoch + 1);
        k.loop_(|| k.break_if(done.load_acquire(Scope::Gpu).ge(all)));
    });
    k.barrier();

    let total = k.var(0.0f32);
    k.for_(0, k.blocks() * warps, |part| total.set(total.get() + parts.at(part).load()));
    share.at(i).store(mine.div_rn(total));
}
