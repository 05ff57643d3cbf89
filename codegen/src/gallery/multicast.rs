//! `out[b, i] = x[b / 2, i] + b mod 2`, rows of 1024 floats: one row is fetched once for the two
//! blocks of a cluster.
//!
//! Both blocks make their mbarriers before the first cluster barrier, so that no byte arrives at
//! one not yet made; a phase does not end before its block has said how many it expects. The last
//! barrier keeps a block's shared memory alive until the other has its bytes.

use crate::build::{Builder, Bulk};

const ROW: u32 = 1024;

/// Parameters: x\[clusters, 1024\], out\[2·clusters, 1024\].
pub fn multicast(k: &Builder) {
    let x = k.global::<f32>("x");
    let out = k.global::<f32>("out");
    let row = k.shared_aligned::<f32>("row", ROW, 128);
    let arrived = k.mbarriers("arrived", 1);
    let leader = k.tid().eq(0);
    let rank = k.cluster_rank();

    k.when(leader, || {
        arrived.init(1);
        k.fence_mbarrier_init();
    });
    k.cluster_sync();
    k.when(leader, || arrived.arrive_expect_tx(ROW * 4));
    k.when(leader & rank.eq(0), || {
        let both = k.lit(0b11u16);
        row.bulk_load(x.at(k.block_id() / 2 * ROW), ROW * 4, arrived, Bulk::default().multicast(both));
    });
    arrived.wait(0);

    for step in 0..ROW / k.threads() {
        let i = k.tid() + step * k.threads();
        out.at(k.block_id() * ROW + i).store(row.at(i).load() + rank.cast::<f32>());
    }
    k.cluster_sync();
}
