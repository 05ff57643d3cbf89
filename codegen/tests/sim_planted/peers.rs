//! Two devices side by side: what one tells another, and how far. `x` begins with the device's
//! number.

use super::{Io, Plant};
use tilewright_codegen::build::{Val, block};
use tilewright_codegen::ir::attr::{AtomOp, RedOrder, Scope};

fn devices(name: &'static str, build: fn(&Io<'_>, bool), expect: &'static str) -> Plant {
    Plant { name, shape: block(64).cooperative(), blocks: 1, devices: 2, build, expect }
}

pub fn plants() -> Vec<Plant> {
    vec![
        devices("release_of_the_device_seen_by_a_peer", released, "race of scopes"),
        devices("fence_of_the_device_before_a_peers_flag", fenced, "race"),
        devices("acquire_of_the_device_of_a_peers_flag", acquired, "race of scopes"),
        devices("packets_of_the_device_for_a_peer", packets, "race of scopes"),
        devices("counter_of_two_devices", counter, "race of scopes"),
        devices("relaxed_counter_taken_for_arrival", overtaken, "uninitialised memory"),
        devices("handed_on_within_a_device", handed_on, "race"),
        devices("parameters_of_each_device", parameters, "race"),
    ]
}

/// Whether this is the second device.
fn second<'k>(io: &Io<'k>) -> Val<'k, bool> {
    io.x.load().ne(0.0)
}

/// Thread 0 of the first device sends, that of the second polls and reads.
fn message(io: &Io<'_>, send: impl Fn(), receive: impl Fn()) {
    io.k.when(io.k.tid().eq(0), || io.k.if_else(second(io), &receive, &send));
}

fn read(io: &Io<'_>) {
    io.out.at(1).store(io.out.load() + 1.0);
}

fn wait(io: &Io<'_>, scope: Scope) {
    io.k.loop_(|| io.k.break_if(io.flags.load_acquire(scope).eq(1)));
}

fn released(io: &Io<'_>, wrong: bool) {
    let send = || {
        io.out.store(1.0f32);
        io.flags.store_release(1u32, if wrong { Scope::Gpu } else { Scope::Sys });
    };
    message(io, send, || {
        wait(io, Scope::Sys);
        read(io);
    });
}

fn acquired(io: &Io<'_>, wrong: bool) {
    let send = || {
        io.out.store(1.0f32);
        io.flags.store_release(1u32, Scope::Sys);
    };
    message(io, send, || {
        wait(io, if wrong { Scope::Gpu } else { Scope::Sys });
        read(io);
    });
}

fn fenced(io: &Io<'_>, wrong: bool) {
    let send = || {
        io.out.store(1.0f32);
        io.k.fence(if wrong { Scope::Gpu } else { Scope::Sys });
        io.flags.store_relaxed(1u32, Scope::Sys);
    };
    message(io, send, || {
        wait(io, Scope::Sys);
        read(io);
    });
}

/// A number and its generation in one word.
fn packets(io: &Io<'_>, wrong: bool) {
    let word = io.flags.cast::<u64>();
    let scope = if wrong { Scope::Gpu } else { Scope::Sys };
    let send = || word.store_relaxed(io.k.lit(7u32).cast::<u64>() << 32 | 1u64, scope);
    message(io, send, || {
        let seen = io.k.var(0u64);
        io.k.loop_(|| {
            seen.set(word.load_relaxed(Scope::Sys));
            io.k.break_if((seen.get() & 0xffff_ffff).eq(1));
        });
        io.out.store((seen.get() >> 32).cast::<u32>().cast::<f32>());
    });
}

/// Both devices count, the second waits for both.
fn counter(io: &Io<'_>, wrong: bool) {
    let count = |scope| io.flags.red(AtomOp::Add, 1u32, RedOrder::Release(scope));
    let send = || {
        io.out.store(1.0f32);
        count(if wrong { Scope::Gpu } else { Scope::Sys });
    };
    message(io, send, || {
        count(Scope::Sys);
        io.k.loop_(|| io.k.break_if(io.flags.load_acquire(Scope::Sys).eq(2)));
        read(io);
    });
}

/// A relaxed count overtakes a relaxed store: what it seems to announce must not be read.
fn overtaken(io: &Io<'_>, wrong: bool) {
    let order = if wrong { RedOrder::Relaxed(Scope::Sys) } else { RedOrder::Release(Scope::Sys) };
    let send = || {
        io.out.store_relaxed(1.0f32, Scope::Sys);
        io.flags.red(AtomOp::Add, 1u32, order);
    };
    message(io, send, || {
        wait(io, Scope::Sys);
        io.out.at(1).store(io.out.load_relaxed(Scope::Sys));
    });
}

/// A thread passes on to the other thread of its device what a peer published: the device's scope
/// is enough for that.
fn handed_on(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let lane = io.k.tid() % 32;
    k.when(second(io) & lane.eq(0), || {
        let then = io.flags.at(1);
        k.if_else(
            k.warp().eq(0),
            || {
                wait(io, Scope::Sys);
                if wrong { then.store_relaxed(1u32, Scope::Gpu) } else { then.store_release(1u32, Scope::Gpu) }
            },
            || {
                k.loop_(|| k.break_if(then.load_acquire(Scope::Gpu).eq(1)));
                read(io);
            },
        );
    });
    k.when(!second(io) & k.tid().eq(0), || {
        io.out.store(1.0f32);
        io.flags.store_release(1u32, Scope::Sys);
    });
}

/// Each device writes where its own parameters say.
fn parameters(io: &Io<'_>, wrong: bool) {
    io.k.when(io.k.tid().eq(0), || {
        let at = if wrong { io.k.lit(0u32) } else { second(io).select(1u32, 0u32) };
        io.out.at(at).store(io.x.load());
    });
}
