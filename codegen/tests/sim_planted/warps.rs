//! Warps and barriers: lanes, counts, exits.

use super::{Io, Plant, plant};
use tilewright_codegen::ir::attr::ShflMode;

pub fn plants() -> Vec<Plant> {
    vec![
        plant("missing_bar_warp", 32, missing_bar_warp, "race"),
        plant("shuffle_orders_nothing", 32, shuffle_orders_nothing, "race"),
        plant("shuffle_outside_mask", 32, shuffle_outside_mask, "shuffle outside mask"),
        plant("barrier_never_full", 64, barrier_never_full, "rejected by the verifier"),
        plant("barrier_counts_differ", 96, barrier_counts_differ, "barrier count"),
        plant("arrive_is_not_wait", 64, arrive_is_not_wait, "race"),
        plant("wrong_barrier_id", 128, wrong_barrier_id, "deadlock"),
        plant("leader_reads_without_barrier", 64, leader_reads_without_barrier, "race"),
        plant("polls_for_ever", 64, polls_for_ever, "deadlock"),
        plant("early_exit", 64, early_exit, "early exit"),
    ]
}

fn missing_bar_warp(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let tile = k.shared::<f32>("tile", 32);
    tile.at(k.lane()).store(1.0f32);
    if !wrong {
        k.sync_warp();
    }
    io.out.at(k.lane()).store(tile.at(k.lane() ^ 1).load());
}

fn shuffle_orders_nothing(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let tile = k.shared::<f32>("tile", 32);
    tile.at(k.lane()).store(1.0f32);
    let seen = k.lane().shfl_bfly(1);
    if !wrong {
        k.sync_warp();
    }
    io.out.at(k.lane()).store(tile.at(seen).load());
}

fn shuffle_outside_mask(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let by = if wrong { 16 } else { 8 };
    k.when(k.lane().lt(16), || {
        let other = k.lane().shfl(ShflMode::Bfly, by, 32, 0xffff);
        io.out.at(k.lane()).store(other.cast::<f32>());
    });
}

fn barrier_never_full(io: &Io<'_>, wrong: bool) {
    io.k.bar_sync(1, if wrong { 96 } else { 64 });
}

fn barrier_counts_differ(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    k.if_else(k.warp().eq(0), || k.bar_sync(1, 96), || k.bar_sync(1, if wrong { 64 } else { 96 }));
}

fn arrive_is_not_wait(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let tile = k.shared::<f32>("tile", 32);
    let write = || {
        tile.at(k.lane()).store(1.0f32);
        k.bar_arrive(1, 64);
    };
    let read = || {
        if wrong {
            k.bar_arrive(1, 64)
        } else {
            k.bar_sync(1, 64)
        }
        io.out.at(k.lane()).store(tile.at(k.lane()).load());
    };
    // Written once before, so that the read finds something either way.
    k.when(k.warp().eq(1), || tile.at(k.lane()).store(0.0f32));
    k.barrier();
    k.if_else(k.warp().eq(0), write, read);
}

fn wrong_barrier_id(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let id = if wrong { 2 } else { 1 };
    k.if_else(k.warp().lt(2), || k.bar_sync(1, 128), || k.bar_sync(id, 128));
}

fn leader_reads_without_barrier(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let partial = k.shared::<f32>("partial", 2);
    k.when(k.lane().eq(0), || partial.at(k.warp()).store(1.0f32));
    if wrong {
        k.sync_warp();
    } else {
        k.barrier();
    }
    k.when(k.tid().eq(0), || io.out.store(partial.load() + partial.at(1).load()));
}

fn polls_for_ever(io: &Io<'_>, wrong: bool) {
    use tilewright_codegen::ir::attr::Scope;
    let k = io.k;
    let value = if wrong { 1u32 } else { 2u32 };
    k.when(k.tid().eq(32), || io.flags.store_release(value, Scope::Gpu));
    k.when(k.tid().eq(0), || k.loop_(|| k.break_if(io.flags.load_acquire(Scope::Gpu).eq(2))));
}

fn early_exit(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    if wrong {
        k.when(k.warp().eq(1), || k.exit());
    }
    io.out.at(k.tid()).store(1.0f32);
    k.bar_sync(1, 64);
}
