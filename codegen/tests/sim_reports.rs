//! The words of reports: what is wrong, where, and what to do.

use tilewright_codegen::build::{Builder, Bulk, block, record};
use tilewright_codegen::ir::{Arch, Const};
use tilewright_codegen::sim::{self, Arg, Launch, Memory, Outcome, SimError};
use tilewright_codegen::verify::verify;

/// The report of a kernel of `threads` threads, under the first seed that has one, without this
/// file's path.
fn report(threads: u32, build: impl Fn(&Builder)) -> String {
    let kernel = verify(record("sample", Arch::Sm90a, block(threads), build)).expect("it verifies");
    for seed in 0..20 {
        let mut memory = Memory::new();
        let args = kernel.kernel().params.iter().map(|p| Arg::Ptr(memory.upload(&p.name, &[0.0f32; 64]))).collect();
        let launch = Launch::new([1, 1, 1], args);
        if let Outcome::Fault(fault) = sim::run(&kernel, &launch, &mut memory, seed).expect("it launches") {
            // Lines move whenever this file is edited.
            return fault.to_string().lines().map(without_place).collect::<Vec<_>>().join("\n");
        }
    }
    panic!("no fault under 20 seeds");
}

fn without_place(line: &str) -> String {
    match (line.find(" (codegen/"), line.find("), block")) {
        (Some(from), Some(to)) => format!("{} (here{}", &line[..from], &line[to..]),
        _ => line.into(),
    }
}

#[test]
fn a_race_names_both_accesses() {
    let text = report(64, |k| {
        let out = k.global::<f32>("out");
        let tile = k.shared::<f32>("tile", 32);
        k.when(k.warp().eq(0), || tile.at(k.lane()).store(1.0f32));
        k.barrier();
        k.when(k.tid().eq(0), || tile.at(3).store(2.0f32));
        k.when(k.tid().eq(32), || out.store(tile.at(3).load()));
    });
    insta::assert_snapshot!(text, @"
    race in kernel sample, seed 0
    at #13 `st.f32 shared[v1+12], {2.0}` (here), block (0, 0, 0) warp 0 lane 0
      writes 4 bytes of shared memory at 0x40c (tile + 12); nothing orders it after the access below; put a barrier, or a release and an acquire, between them
    and #16 `v10 = ld.f32 shared[v1+12]` (here), block (0, 0, 0) warp 1 lane 0
      reads
    ");
}

#[test]
fn an_address_outside_names_its_buffer() {
    let text = report(32, |k| {
        let out = k.global::<f32>("out");
        out.at(k.tid() + 33).store(1.0f32);
    });
    insta::assert_snapshot!(text, @"
    out of bounds in kernel sample, seed 0
    at #5 `st.f32 global[v4], {1.0}` (here), block (0, 0, 0) warp 0 lane 31
      accesses 4 bytes of global memory at 0x1000000300 (out + 256), outside of every allocation; bound the index
    ");
}

#[test]
fn a_copy_not_waited_for_is_named() {
    let text = report(32, |k| {
        let out = k.global::<f32>("out");
        let tile = k.shared_aligned::<f32>("tile", 128, 16);
        let mine = k.tid() * 4;
        k.when(k.tid().eq(5), || {
            tile.at(mine).cp_async(out.at(8));
            k.cp_async_commit();
            out.at(0).store(tile.at(mine).load());
        });
    });
    insta::assert_snapshot!(text, @"
    race with an asynchronous operation in kernel sample, seed 0
    at #10 `v7 = ld.f32 shared[v6]` (here), block (0, 0, 0) warp 0 lane 5
      reads 4 bytes of shared memory at 0x450 (tile + 80); the asynchronous operation below uses them and was not waited for by this thread
    and #8 `cp.async.16.cg shared[v6], global[v0+32]` (here), block (0, 0, 0) warp 0 lane 5
      issued a copy that writes
    ");
}

#[test]
fn a_missing_proxy_fence_is_named() {
    let text = report(32, |k| {
        let out = k.global::<f32>("out");
        let tile = k.shared_aligned::<f32>("tile", 32, 128);
        tile.at(k.tid()).store(1.0f32);
        k.barrier();
        k.when(k.tid().eq(0), || {
            tile.bulk_store(out, 128);
            k.bulk_commit();
            k.bulk_wait(0);
        });
    });
    insta::assert_snapshot!(text, @"
    race between proxies in kernel sample, seed 0
    at #9 `cp.async.bulk.s2g global[v0], shared[v1], 128` (here), block (0, 0, 0) warp 0 lane 0
      reads 4 bytes of shared memory at 0x400 (tile); the write below is of the other proxy; put fence.proxy.async between them
    and #5 `st.f32 shared[v4], {1.0}` (here), block (0, 0, 0) warp 0 lane 0
      writes
    ");
}

#[test]
fn a_deadlock_names_who_waits_for_what() {
    let text = report(64, |k| {
        let out = k.global::<f32>("out");
        let tile = k.shared_aligned::<f32>("tile", 32, 128);
        let arrived = k.mbarriers("arrived", 1);
        k.when(k.tid().eq(0), || {
            arrived.init(1);
            k.fence_mbarrier_init();
        });
        k.barrier();
        k.when(k.tid().eq(0), || {
            arrived.arrive_expect_tx(144);
            tile.bulk_load(out, 128, arrived, Bulk::default());
        });
        k.when(k.warp().eq(0), || arrived.wait(0));
        k.barrier();
    });
    insta::assert_snapshot!(text, @"
    deadlock in kernel sample, seed 0
    at #16 `v7 = mbarrier.try_wait shared[v2], 0` (here), block (0, 0, 0) warp 0
      no warp can make progress; stuck:
      #16 `v7 = mbarrier.try_wait shared[v2], 0` (here), block (0, 0, 0) warp 0: waits for the phase of parity 0 of mbarrier arrived + 0: 0 phases completed, 0 arrivals and 16 bytes pending
      #19 `bar.sync 0 64` (here), block (0, 0, 0) warp 1: waits for barrier 0, where 32 of 64 threads are
    ");
}

#[test]
fn a_launch_that_cannot_be_made_says_why() {
    let kernel = record("sample", Arch::Sm90a, block(32), |k| {
        k.param::<u32>("n");
    });
    let kernel = verify(kernel).expect("it verifies");
    let run = |grid, args| sim::run(&kernel, &Launch::new(grid, args), &mut Memory::new(), 0).expect_err("no launch");
    let n = || Arg::Scalar(Const::u32(1));
    insta::assert_snapshot!(run([1, 1, 1], vec![]), @"kernel sample takes 1 arguments, the launch has 0");
    insta::assert_snapshot!(run([1, 1, 1], vec![Arg::Scalar(Const::f32(1.0))]), @"argument 0 (n) of kernel sample is a u32, the launch gives a f32");
    insta::assert_snapshot!(run([0, 1, 1], vec![n()]), @"kernel sample: a grid of [0, 1, 1] blocks of 32 threads in clusters of [1, 1, 1] cannot be launched");
    assert!(matches!(run([1, 1, 1], vec![n(), n()]), SimError::ArgCount { expected: 1, found: 2, .. }));
}
