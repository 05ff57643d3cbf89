//! `out[b, c] = Σₜ x[b, t, c]` for c below 1024: bulk copies of 4 KiB run ahead through a ring of
//! four stages.
//!
//! Warps 0 to 3 add; one lane of warp 4 fetches. A stage goes round: empty → (expected, fetched) →
//! full → read → empty, the last after a proxy fence.

use super::cursor::StageCursor;
use crate::build::{Builder, Bulk};
use crate::ir::attr::{Eviction, ProxyFence};

const STAGES: u32 = 4;
const TILE: u32 = 1024;
/// Warps that add.
const CONSUMERS: u32 = 4;

/// Parameters: tiles, x\[blocks, tiles, 1024\], out\[blocks, 1024\].
pub fn bulk_ring(k: &Builder) {
    let tiles = k.param::<u32>("tiles");
    let x = k.global::<f32>("x");
    let out = k.global::<f32>("out");
    let ring = k.shared_aligned::<f32>("ring", STAGES * TILE, 128);
    let full = k.mbarriers("full", STAGES);
    let empty = k.mbarriers("empty", STAGES);
    k.when(k.tid().eq(0), || {
        for stage in 0..STAGES {
            full.at(stage).init(1);
            empty.at(stage).init(32 * CONSUMERS);
        }
        k.fence_mbarrier_init();
    });
    k.barrier();

    let produce = || {
        let source = x.at((k.block_id() * tiles).mul_wide(TILE));
        let policy = k.policy(Eviction::First);
        let cursor = StageCursor::new(k, STAGES, 1);
        k.for_(0, tiles, |tile| {
            let (stage, parity) = cursor.here();
            empty.at(stage).wait(parity);
            full.at(stage).arrive_expect_tx(TILE * 4);
            let bar = full.at(stage);
            ring.at(stage * TILE).bulk_load(source.at(tile * TILE), TILE * 4, bar, Bulk::default().policy(policy));
            cursor.advance();
        });
    };
    let consume = || {
        let sums = k.regs(8, 0.0f32);
        let cursor = StageCursor::new(k, STAGES, 0);
        k.for_(0, tiles, |_| {
            let (stage, parity) = cursor.here();
            full.at(stage).wait(parity);
            for i in 0..8 {
                sums.set(i, sums.get(i) + ring.at(stage * TILE + k.tid()).at(128 * i).load());
            }
            // The copy that comes next is of the other proxy: it waits for no read that is still on
            // its way.
            k.fence_proxy_async(ProxyFence::Shared);
            // Every lane: `compute-sanitizer` does not see that a lane arrives for those that it
            // met at a warp's barrier.
            empty.at(stage).arrive();
            cursor.advance();
        });
        for i in 0..8 {
            out.at(k.block_id() * TILE + k.tid()).at(128 * i).store(sums.get(i));
        }
    };
    k.if_else(k.warp().lt(CONSUMERS), consume, || k.when(k.lane().eq(0), produce));
}
