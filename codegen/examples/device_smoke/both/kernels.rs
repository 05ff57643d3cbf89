//! The kernels of the checks, recorded: every device runs them.

use tilewright_codegen::build::{Builder, Bulk, block, record};
use tilewright_codegen::gallery;
use tilewright_codegen::ir::attr::{AtomOp, RedOrder, Scope};
use tilewright_codegen::ir::{Arch, LaunchBounds};
use tilewright_codegen::verify::{Verified, VerifyErrors, verify};

fn recorded(name: &str, launch: LaunchBounds, build: fn(&Builder)) -> Result<Verified, VerifyErrors> {
    verify(record(name, Arch::Sm90a, launch, build))
}

/// y = a · x + y, one element a thread.
pub fn saxpy() -> Result<Verified, VerifyErrors> {
    recorded("saxpy", block(256), gallery::saxpy)
}

/// Each block writes its slot, waits for all blocks at a counter, and sums all slots: right only if
/// all are resident.
pub fn gather() -> Result<Verified, VerifyErrors> {
    recorded("gather", block(32).cooperative(), |k| {
        let counter = k.global::<u32>("counter");
        let slots = k.global::<u32>("slots");
        let sums = k.global::<u32>("sums");
        k.when(k.tid().eq(0), || {
            slots.at(k.block_id()).store(k.block_id() + 1);
            counter.red(AtomOp::Add, 1, RedOrder::Release(Scope::Gpu));
            k.loop_(|| k.break_if(counter.load_acquire(Scope::Gpu).ge(k.blocks())));
            let sum = k.var(0u32);
            k.for_(0, k.blocks(), |slot| sum.set(sum.get() + slots.at(slot).load()));
            sums.at(k.block_id()).store(sum.get());
        });
    })
}

/// Words of shared memory that `reverse` uses: 200 KiB.
pub const REVERSED: u32 = 51_200;

/// Numbers 0.. written backwards into shared memory and read forwards.
pub fn reverse() -> Result<Verified, VerifyErrors> {
    recorded("reverse", block(1024), |k| {
        let out = k.global::<u32>("out");
        let pool = k.shared::<u32>("pool", REVERSED);
        for step in 0..REVERSED / 1024 {
            let i = k.tid() + step * 1024;
            pool.at(k.lit(REVERSED - 1) - i).store(i);
        }
        k.barrier();
        for step in 0..REVERSED / 1024 {
            let i = k.tid() + step * 1024;
            out.at(i).store(pool.at(i).load());
        }
    })
}

/// Blocks of a cluster of `ring`.
pub const RING: u32 = 4;

/// Each block of a cluster writes its number into the shared memory of the next.
pub fn ring() -> Result<Verified, VerifyErrors> {
    recorded("ring", block(32).cluster(RING), |k| {
        let out = k.global::<u32>("out");
        let slot = k.shared::<u32>("slot", 1);
        let leader = k.tid().eq(0);
        k.cluster_sync();
        k.when(leader, || slot.on((k.cluster_rank() + 1) % RING).store(k.block_id()));
        k.cluster_sync();
        k.when(leader, || out.at(k.block_id()).store(slot.load()));
    })
}

/// Answers in word 1 what it finds in word 0, and counts in word 2 how often it ran.
pub fn answer() -> Result<Verified, VerifyErrors> {
    recorded("answer", block(32), |k| {
        let words = k.global::<u64>("words");
        k.when(k.tid().eq(0), || {
            let told = words.load_acquire(Scope::Sys);
            words.at(2).store_release(words.at(2).load_acquire(Scope::Sys) + 1, Scope::Sys);
            words.at(1).store_release(told, Scope::Sys);
        });
    })
}

/// Copies a box of 64 × 64 elements of 2 bytes by a tensor map, and writes shared memory out as it
/// is.
pub fn tile() -> Result<Verified, VerifyErrors> {
    recorded("tile", block(128), |k| {
        let map = k.tensor_map("map");
        let out = k.global::<u32>("out");
        let at = [k.param::<i32>("x"), k.param::<i32>("y")];
        let tile = k.shared_aligned::<u32>("box", 64 * 32, 1024);
        let arrived = k.mbarriers("arrived", 1);
        k.when(k.tid().eq(0), || {
            arrived.init(1);
            k.fence_mbarrier_init();
            arrived.arrive_expect_tx(8192);
            tile.tensor_load(map, &at, arrived, Bulk::default());
        });
        k.barrier();
        arrived.wait(0);
        for step in 0..4 {
            let i = (k.tid() + step * 128) * 4;
            out.at(i).store_vec(tile.at(i).load_vec::<4>());
        }
    })
}
