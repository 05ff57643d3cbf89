//! Memory order: flags, scopes, fences, atomics.

use super::{Io, Plant, plant};
use tilewright_codegen::build::block;
use tilewright_codegen::ir::attr::{AtomOp, AtomOrder, RedOrder, Scope};

fn blocks(name: &'static str, build: fn(&Io<'_>, bool), expect: &'static str) -> Plant {
    Plant { name, shape: block(32).cooperative(), blocks: 2, devices: 1, build, expect }
}

pub fn plants() -> Vec<Plant> {
    vec![
        blocks("relaxed_flag", relaxed_flag, "race"),
        blocks("relaxed_poll", relaxed_poll, "race"),
        blocks("weak_flag", weak_flag, "race"),
        blocks("narrow_release", narrow_release, "race of scopes"),
        blocks("fence_missing_at_writer", |io, wrong| fences(io, wrong, false), "race"),
        blocks("fence_missing_at_reader", |io, wrong| fences(io, false, wrong), "race"),
        blocks("leader_acquires_alone", leader_acquires_alone, "race"),
        blocks("narrow_counter", narrow_counter, "race of scopes"),
        blocks("store_beside_atomic", store_beside_atomic, "race"),
        blocks("relaxed_lock", relaxed_lock, "race"),
        plant("relaxed_within_block", 64, relaxed_within_block, "race"),
    ]
}

/// Block 0 writes data and a flag, block 1 polls the flag and reads.
fn message(io: &Io<'_>, send: impl Fn(), poll: impl Fn()) {
    let k = io.k;
    let leader = k.lane().eq(0);
    k.when(leader, || {
        k.if_else(k.block_id().eq(0), &send, &poll);
    });
}

fn read(io: &Io<'_>) {
    io.out.at(1).store(io.out.load() + 1.0);
}

fn relaxed_flag(io: &Io<'_>, wrong: bool) {
    let send = || {
        io.out.store(1.0f32);
        if wrong { io.flags.store_relaxed(1, Scope::Gpu) } else { io.flags.store_release(1, Scope::Gpu) }
    };
    message(io, send, || {
        io.k.loop_(|| io.k.break_if(io.flags.load_acquire(Scope::Gpu).eq(1)));
        read(io);
    });
}

fn relaxed_poll(io: &Io<'_>, wrong: bool) {
    let send = || {
        io.out.store(1.0f32);
        io.flags.store_release(1, Scope::Gpu);
    };
    message(io, send, || {
        let load = || if wrong { io.flags.load_relaxed(Scope::Gpu) } else { io.flags.load_acquire(Scope::Gpu) };
        io.k.loop_(|| io.k.break_if(load().eq(1)));
        read(io);
    });
}

fn weak_flag(io: &Io<'_>, wrong: bool) {
    let send = || {
        io.out.store(1.0f32);
        if wrong { io.flags.store(1u32) } else { io.flags.store_release(1, Scope::Gpu) }
    };
    message(io, send, || {
        io.k.loop_(|| io.k.break_if(io.flags.load_acquire(Scope::Gpu).eq(1)));
        read(io);
    });
}

fn narrow_release(io: &Io<'_>, wrong: bool) {
    let scope = if wrong { Scope::Cta } else { Scope::Gpu };
    let send = || {
        io.out.store(1.0f32);
        io.flags.store_release(1, scope);
    };
    message(io, send, || {
        io.k.loop_(|| io.k.break_if(io.flags.load_acquire(Scope::Gpu).eq(1)));
        read(io);
    });
}

fn fences(io: &Io<'_>, no_writer: bool, no_reader: bool) {
    let send = || {
        io.out.store(1.0f32);
        if !no_writer {
            io.k.fence(Scope::Gpu);
        }
        io.flags.store_relaxed(1, Scope::Gpu);
    };
    message(io, send, || {
        io.k.loop_(|| io.k.break_if(io.flags.load_relaxed(Scope::Gpu).eq(1)));
        if !no_reader {
            io.k.fence(Scope::Gpu);
        }
        read(io);
    });
}

fn leader_acquires_alone(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    k.when(k.block_id().eq(0), || {
        io.out.at(k.lane()).store(1.0f32);
        k.sync_warp();
        k.when(k.lane().eq(0), || io.flags.store_release(1, Scope::Gpu));
    });
    k.when(k.block_id().eq(1), || {
        k.when(k.lane().eq(0), || k.loop_(|| k.break_if(io.flags.load_acquire(Scope::Gpu).eq(1))));
        if wrong {
            // A shuffle holds the lanes together, and orders nothing.
            io.out.at(k.lane() + 64).store(k.lane().shfl_bfly(1).cast::<f32>());
        } else {
            k.sync_warp();
        }
        io.out.at(k.lane() + 32).store(io.out.at(k.lane()).load());
    });
}

fn narrow_counter(io: &Io<'_>, wrong: bool) {
    let scope = if wrong { Scope::Cta } else { Scope::Gpu };
    io.k.when(io.k.lane().eq(0), || io.flags.red(AtomOp::Add, 1, RedOrder::Relaxed(scope)));
}

fn store_beside_atomic(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let add = || io.flags.red(AtomOp::Add, 1, RedOrder::Relaxed(Scope::Gpu));
    let other = || if wrong { io.flags.store(7u32) } else { io.flags.store_relaxed(7u32, Scope::Gpu) };
    message(io, add, other);
    let _ = k;
}

fn relaxed_lock(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let order = if wrong { AtomOrder::Relaxed(Scope::Gpu) } else { AtomOrder::Acquire(Scope::Gpu) };
    k.when(k.lane().eq(0), || {
        k.loop_(|| k.break_if(io.flags.compare_swap(0, 1, order).eq(0)));
        io.out.store(k.block_id().cast::<f32>());
        io.flags.store_release(0, Scope::Gpu);
    });
}

fn relaxed_within_block(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let data = k.shared::<f32>("data", 1);
    let flag = k.shared::<u32>("flag", 1);
    k.when(k.tid().eq(0), || flag.store(0u32));
    k.barrier();
    k.when(k.tid().eq(0), || {
        data.store(1.0f32);
        if wrong { flag.store_relaxed(1, Scope::Cta) } else { flag.store_release(1, Scope::Cta) }
    });
    k.when(k.tid().eq(32), || {
        k.loop_(|| k.break_if(flag.load_acquire(Scope::Cta).eq(1)));
        io.out.store(data.load());
    });
}
