//! Asynchronous copies: groups, mbarriers, proxies.

use super::{Io, Plant, plant};
use tilewright_codegen::build::{Bulk, Mbarrier, Ptr, Shared};
use tilewright_codegen::ir::attr::{AtomOp, NoInc, ProxyFence, RedOrder, Scope, Trans};

pub fn plants() -> Vec<Plant> {
    vec![
        plant("cp_async_not_waited", 32, |io, wrong| cp_async(io, wrong, false), "race with an asynchronous operation"),
        plant("cp_async_no_barrier", 64, |io, wrong| cp_async(io, false, wrong), "race"),
        plant("cp_async_one_group_short", 32, cp_async_one_group_short, "race with an asynchronous operation"),
        plant("cp_async_leaked", 32, cp_async_leaked, "leaked copy"),
        plant("cp_async_source_bound", 32, cp_async_source_bound, "out of bounds"),
        plant("cp_async_by_mbarrier", 64, cp_async_by_mbarrier, "race"),
        plant("cp_async_to_bulk", 32, cp_async_to_bulk, "race between proxies"),
        plant(
            "bulk_expects_nothing",
            32,
            |io, wrong| bulk(io, if wrong { Bug::NoBytes } else { Bug::None }),
            "race with an asynchronous operation",
        ),
        plant(
            "bulk_expects_too_much",
            32,
            |io, wrong| bulk(io, if wrong { Bug::MoreBytes } else { Bug::None }),
            "deadlock",
        ),
        plant(
            "bulk_not_waited",
            32,
            |io, wrong| bulk(io, if wrong { Bug::NoWait } else { Bug::None }),
            "race with an asynchronous operation",
        ),
        plant(
            "bulk_wrong_parity",
            32,
            |io, wrong| bulk(io, if wrong { Bug::Parity } else { Bug::None }),
            "race with an asynchronous operation",
        ),
        plant(
            "bulk_init_not_fenced",
            32,
            |io, wrong| bulk(io, if wrong { Bug::NoInitFence } else { Bug::None }),
            "race between proxies",
        ),
        plant(
            "bulk_initialised_twice",
            32,
            |io, wrong| bulk(io, if wrong { Bug::TwoInits } else { Bug::None }),
            "double init",
        ),
        plant(
            "bulk_arrives_twice",
            32,
            |io, wrong| bulk(io, if wrong { Bug::TwoArrivals } else { Bug::None }),
            "too many arrivals",
        ),
        plant(
            "bulk_phase_never_seen",
            32,
            |io, wrong| bulk(io, if wrong { Bug::Leaked } else { Bug::None }),
            "leaked phase",
        ),
        plant("bulk_under_the_end", 32, bulk_under_the_end, "leaked copy"),
        plant("bulk_odd_size", 32, |io, wrong| bulk(io, if wrong { Bug::OddSize } else { Bug::None }), "bad operand"),
        plant(
            "bulk_over_the_end",
            32,
            |io, wrong| bulk(io, if wrong { Bug::Bound } else { Bug::None }),
            "out of bounds",
        ),
        plant(
            "bulk_misaligned_source",
            32,
            |io, wrong| bulk(io, if wrong { Bug::Misaligned } else { Bug::None }),
            "misaligned",
        ),
        plant("store_without_proxy_fence", 32, |io, wrong| bulk_store(io, wrong, false, false), "race between proxies"),
        plant("store_leaked", 32, |io, wrong| bulk_store(io, false, wrong, false), "leaked copy"),
        plant(
            "store_source_reused",
            32,
            |io, wrong| bulk_store(io, false, false, wrong),
            "race with an asynchronous operation",
        ),
        plant("store_read_back_early", 32, store_read_back_early, "race with an asynchronous operation"),
    ]
    .into_iter()
    .chain(reused())
    .collect()
}

fn reused() -> Vec<Plant> {
    vec![
        plant("stage_kept_given_back", 64, |io, wrong| given_back(io, wrong, Reads::Kept), "race between proxies"),
        plant("stage_stored_given_back", 64, |io, wrong| given_back(io, wrong, Reads::Stored), "race between proxies"),
        plant(
            "stage_of_matrices_given_back",
            64,
            |io, wrong| given_back(io, wrong, Reads::Matrix),
            "race between proxies",
        ),
        plant("copied_into_what_was_read", 64, read_before_a_copy, "race between proxies"),
        plant(
            "reduction_source_reused",
            32,
            |io, wrong| reduction(io, wrong, false, false),
            "race with an asynchronous operation",
        ),
        plant(
            "reduction_read_early",
            32,
            |io, wrong| reduction(io, false, wrong, false),
            "race with an asynchronous operation",
        ),
        Plant {
            blocks: 2,
            ..plant("reduction_beside_an_atomic", 32, |io, wrong| reduction(io, false, false, wrong), "race")
        },
    ]
}

/// A row of 128 floats fetched by its own threads, each four of them; read crosswise.
fn cp_async(io: &Io<'_>, no_wait: bool, no_barrier: bool) {
    let k = io.k;
    let mine = k.tid() * 4;
    let n = k.threads() * 4;
    let tile = k.shared_aligned::<f32>("tile", n, 16);
    tile.at(mine).cp_async(io.x.at(mine));
    k.cp_async_commit();
    if !no_wait {
        k.cp_async_wait(0);
    }
    if !no_barrier {
        k.barrier();
    }
    io.out.at(k.tid()).store(tile.at(n - 1 - k.tid()).load());
    k.cp_async_wait(0);
}

fn cp_async_one_group_short(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let mine = k.tid() * 4;
    let tile = k.shared_aligned::<f32>("tile", 256, 16);
    for stage in 0..2u32 {
        tile.at(mine + stage * 128).cp_async(io.x.at(mine + stage * 128));
        k.cp_async_commit();
    }
    k.cp_async_wait(u32::from(wrong));
    io.out.at(mine).store_vec(tile.at(mine + 128).load_vec::<4>());
    k.cp_async_wait(0);
}

fn cp_async_leaked(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let tile = k.shared_aligned::<f32>("tile", 128, 16);
    tile.at(k.tid() * 4).cp_async(io.x.at(k.tid() * 4));
    k.cp_async_commit();
    if !wrong {
        k.cp_async_wait(0);
    }
}

fn cp_async_source_bound(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let tile = k.shared_aligned::<f32>("tile", 128, 16);
    let first = k.tid() * 4 + 4096 - if wrong { 124 } else { 128 };
    tile.at(k.tid() * 4).cp_async(io.x.at(first));
    k.cp_async_commit();
    k.cp_async_wait(0);
}

/// Warp 0 fetches, warp 1 waits at an mbarrier that follows the copies.
fn cp_async_by_mbarrier(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let tile = k.shared_aligned::<f32>("tile", 128, 16);
    let arrived = k.mbarriers("arrived", 1);
    k.when(k.tid().eq(0), || arrived.init(32));
    k.barrier();
    let fetch = || {
        let mine = k.lane() * 4;
        if wrong {
            // The arrival comes before the copy that it should follow.
            arrived.arrive_after_cp_async(k, NoInc::Yes);
        }
        tile.at(mine).cp_async(io.x.at(mine));
        if !wrong {
            arrived.arrive_after_cp_async(k, NoInc::Yes);
        }
        k.cp_async_commit();
        k.cp_async_wait(0);
    };
    let read = || {
        arrived.wait(0);
        io.out.at(k.lane()).store(tile.at(127 - k.lane()).load());
    };
    k.if_else(k.warp().eq(0), fetch, read);
}

/// A bulk copy moves data that `cp.async` wrote.
fn cp_async_to_bulk(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let tile = k.shared_aligned::<f32>("tile", 128, 128);
    let mine = k.tid() * 4;
    tile.at(mine).cp_async(io.x.at(mine));
    k.cp_async_commit();
    k.cp_async_wait(0);
    if !wrong {
        k.fence_proxy_async(ProxyFence::Shared);
    }
    k.barrier();
    k.when(k.tid().eq(0), || {
        tile.bulk_store(io.out, 512);
        k.bulk_commit();
        k.bulk_wait(0);
    });
}

#[derive(Clone, Copy, PartialEq)]
enum Bug {
    None,
    NoBytes,
    MoreBytes,
    NoWait,
    Parity,
    NoInitFence,
    TwoInits,
    TwoArrivals,
    Leaked,
    OddSize,
    Bound,
    Misaligned,
}

fn arrive(arrived: Mbarrier<'_, Shared>, bug: Bug) {
    match bug {
        Bug::NoBytes => arrived.arrive(),
        Bug::MoreBytes => arrived.arrive_expect_tx(1040),
        _ => arrived.arrive_expect_tx(1024),
    }
    if bug == Bug::TwoArrivals {
        arrived.arrive();
    }
}

/// 256 floats by one bulk copy.
fn bulk(io: &Io<'_>, bug: Bug) {
    let k = io.k;
    let tile: Ptr<'_, Shared, f32> = k.shared_aligned("tile", 512, 128);
    let arrived = k.mbarriers("arrived", 1);
    for i in 0..8u32 {
        tile.at(k.tid() + 32 * i).store(0.0f32);
    }
    k.fence_proxy_async(ProxyFence::Shared);
    k.when(k.tid().eq(0), || {
        arrived.init(1);
        if bug == Bug::TwoInits {
            arrived.init(1);
        }
        if bug != Bug::NoInitFence {
            k.fence_mbarrier_init();
        }
    });
    k.barrier();
    // Through a register, so that the verifier cannot know it.
    let size = k.var(if bug == Bug::OddSize { 1020u32 } else { 1024u32 });
    let first = match bug {
        Bug::Bound => 4096 - 128,
        Bug::Misaligned => 2,
        _ => 0,
    };
    let first = k.tid() + first;
    k.when(k.tid().eq(0), || {
        arrive(arrived, bug);
        tile.bulk_load(io.x.at(first), size.get(), arrived, Bulk::default());
    });
    match bug {
        Bug::NoWait => {}
        Bug::Parity => arrived.wait(1),
        Bug::Leaked => {
            // A warp lives on until the bytes are there, and no thread waits for them.
            k.for_(0, 40_000u32, |_| k.comment("time passes"));
            return;
        }
        _ => arrived.wait(0),
    }
    io.out.at(k.tid()).store(tile.at(k.tid()).load());
    arrived.wait(0);
}

/// A block that ends, where it ought not, while bytes are on their way to it.
fn bulk_under_the_end(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let tile = k.shared_aligned::<f32>("tile", 256, 128);
    let arrived = k.mbarriers("arrived", 1);
    k.when(k.tid().eq(0), || {
        arrived.init(1);
        k.fence_mbarrier_init();
        arrived.arrive_expect_tx(1024);
        tile.bulk_load(io.x, 1024, arrived, Bulk::default());
        if !wrong {
            arrived.wait(0);
        }
    });
}

fn bulk_store(io: &Io<'_>, no_fence: bool, no_wait: bool, reuse: bool) {
    let k = io.k;
    let tile: Ptr<'_, Shared, f32> = k.shared_aligned("tile", 32, 128);
    tile.at(k.tid()).store(io.x.at(k.tid()).load());
    if !no_fence {
        k.fence_proxy_async(ProxyFence::Shared);
    }
    k.barrier();
    k.when(k.tid().eq(0), || {
        tile.bulk_store(io.out, 128);
        k.bulk_commit();
        if !reuse && !no_wait {
            k.bulk_wait_read(0);
        }
    });
    if !no_wait {
        k.barrier();
        tile.at(k.tid()).store(0.0f32);
        k.when(k.tid().eq(0), || k.bulk_wait(0));
    }
}

/// The use that a consumer makes of its stage.
#[derive(Clone, Copy, PartialEq)]
enum Reads {
    /// Keeps the value in a register, and stores it in the end.
    Kept,
    /// Stores the value before it releases the stage.
    Stored,
    /// By `ldmatrix`.
    Matrix,
}

/// A stage that one thread fills twice by bulk copies. A warp reads it twice and releases it, with
/// or without a proxy fence before the release.
fn given_back(io: &Io<'_>, wrong: bool, reads: Reads) {
    let k = io.k;
    let tile: Ptr<'_, Shared, f32> = k.shared_aligned("tile", 128, 128);
    let full = k.mbarriers("full", 1);
    let empty = k.mbarriers("empty", 1);
    k.when(k.tid().eq(0), || {
        full.init(1);
        empty.init(1);
        k.fence_mbarrier_init();
    });
    k.barrier();
    let fill = || {
        for round in 0..2u32 {
            if round == 1 {
                empty.wait(0);
            }
            full.arrive_expect_tx(512);
            tile.bulk_load(io.x.at(128 * round), 512, full, Bulk::default());
        }
    };
    let read = || {
        let sum = k.var(0.0f32);
        for round in 0..2u32 {
            full.wait(round);
            if reads == Reads::Matrix {
                let [rows] = tile.at(k.lane() % 8 * 4).ldmatrix::<1>(Trans::No);
                sum.set(sum.get() + rows.bits::<f32>());
            } else {
                sum.set(sum.get() + tile.at(127 - k.lane()).load());
            }
            if reads == Reads::Stored {
                io.out.at(k.lane() + 32 * round).store(sum);
            }
            if !wrong {
                k.fence_proxy_async(ProxyFence::Shared);
            }
            k.sync_warp();
            k.when(k.lane().eq(0), || empty.arrive());
        }
        io.out.at(k.lane()).store(sum);
    };
    k.if_else(k.warp().eq(0), read, || k.when(k.tid().eq(32), fill));
}

/// A block that reads a tile meets at a barrier, and a thread of it copies into the tile.
fn read_before_a_copy(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let tile: Ptr<'_, Shared, f32> = k.shared_aligned("tile", 64, 128);
    let full = k.mbarriers("full", 1);
    k.when(k.tid().eq(0), || {
        full.init(1);
        k.fence_mbarrier_init();
    });
    tile.at(k.tid()).store(1.0);
    k.fence_proxy_async(ProxyFence::Shared);
    k.barrier();
    io.out.at(k.tid()).store(tile.at(63 - k.tid()).load());
    if wrong {
        // It orders other memory.
        k.fence_proxy_async(ProxyFence::Global);
    } else {
        k.fence_proxy_async(ProxyFence::Shared);
    }
    k.barrier();
    k.when(k.tid().eq(0), || {
        full.arrive_expect_tx(256);
        tile.bulk_load(io.x, 256, full, Bulk::default());
    });
    full.wait(0);
}

/// Every block adds to eight words by one reduction; or one by an atomic operation, which is of the
/// other proxy.
fn reduction(io: &Io<'_>, reused: bool, early: bool, atomic: bool) {
    let k = io.k;
    let own: Ptr<'_, Shared, u32> = k.shared_aligned("own", 32, 128);
    own.at(k.tid()).store(k.tid());
    k.fence_proxy_async(ProxyFence::Shared);
    k.barrier();
    let reduce = || {
        own.bulk_reduce(AtomOp::Add, io.flags, 32);
        k.bulk_commit();
        if reused {
            own.store(1);
        }
        if early {
            io.out.store(io.flags.load().cast::<f32>());
        }
        k.bulk_wait(0);
    };
    k.when(k.tid().eq(0), || match atomic {
        true => k.if_else(k.block_id().eq(0), reduce, || {
            io.flags.red(AtomOp::Add, 1, RedOrder::Relaxed(Scope::Gpu));
        }),
        false => reduce(),
    });
}

fn store_read_back_early(io: &Io<'_>, wrong: bool) {
    let k = io.k;
    let tile: Ptr<'_, Shared, f32> = k.shared_aligned("tile", 32, 128);
    tile.at(k.tid()).store(io.x.at(k.tid()).load());
    k.fence_proxy_async(ProxyFence::Shared);
    k.barrier();
    k.when(k.tid().eq(0), || {
        tile.bulk_store(io.out, 128);
        k.bulk_commit();
        if wrong {
            k.bulk_wait_read(0)
        } else {
            k.bulk_wait(0)
        }
        io.out.at(64).store(io.out.load());
        k.bulk_wait(0);
    });
}
