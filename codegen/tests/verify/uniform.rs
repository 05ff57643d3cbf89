//! Invalid twins of the rules in `verify/uniform`.

use crate::twins;
use insta::assert_snapshot;
use tilewright_codegen::build::{WgmmaOperands, block};
use tilewright_codegen::ir::attr::{Scope, Trans};
use tilewright_codegen::ir::{Arch, WgmmaAtom, WgmmaKind};

#[test]
fn a_barrier_does_not_stand_behind_a_lane_condition() {
    let said = twins(Arch::Sm80, block(64), |k, fault| {
        let few = if fault { k.tid().lt(7) } else { k.block_id().lt(7) };
        k.when(few, || k.barrier());
    });
    assert_snapshot!(said, @"`bar.sync 0 64`: bar.sync stands where threads of one warp may part: condition v1 of #2 may differ within it; move it out of the branch or make the condition the same for the warp");
}

#[test]
fn the_barrier_of_the_block_does_not_stand_in_a_role() {
    let said = twins(Arch::Sm80, block(64), |k, fault| {
        k.when(k.warp().lt(1), || if fault { k.barrier() } else { k.bar_sync(1, 32) });
    });
    assert_snapshot!(said, @"`bar.sync 0 64`: bar.sync stands where threads of one block may part: condition v2 of #3 may differ within it; move it out of the branch or make the condition the same for the block");
}

#[test]
fn a_loop_that_lanes_leave_apart_holds_no_barrier() {
    let said = twins(Arch::Sm80, block(64), |k, fault| {
        let x = k.global::<u32>("x");
        k.for_(0, 8u32, |i| {
            let done = if fault { x.at(k.tid()).load() } else { x.at(i).load() };
            k.break_if(done.eq(0));
            k.barrier();
        });
    });
    assert_snapshot!(said, @"`bar.sync 0 64`: bar.sync stands where threads of one warp may part: loop #1 may be left by some threads of it before others; move it out of the branch or make the condition the same for the warp");
}

#[test]
fn a_register_set_in_a_lane_condition_is_no_condition_for_a_barrier() {
    let said = twins(Arch::Sm80, block(64), |k, fault| {
        let go = k.var(0u32);
        k.when(k.tid().eq(3), || {
            if fault {
                go.set(1)
            }
        });
        k.when(go.get().eq(1), || k.barrier());
    });
    assert_snapshot!(said, @"`bar.sync 0 64`: bar.sync stands where threads of one warp may part: condition v3 of #7 may differ within it; move it out of the branch or make the condition the same for the warp");
}

#[test]
fn no_thread_ends_before_a_barrier() {
    let said = twins(Arch::Sm80, block(64), |k, fault| {
        let done = if fault { k.tid().ge(40) } else { k.block_id().ge(40) };
        k.when(done, || k.exit());
        k.barrier();
    });
    assert_snapshot!(said, @"`bar.sync 0 64`: bar.sync stands where threads of one warp may part: some threads of it may have ended at #3; move it out of the branch or make the condition the same for the warp");
}

#[test]
fn what_is_read_while_others_write_is_not_the_same_for_all() {
    let said = twins(Arch::Sm80, block(64), |k, fault| {
        let flag = k.global::<u32>("flag");
        let seen = if fault { flag.load_acquire(Scope::Gpu) } else { flag.load() };
        k.when(seen.eq(1), || k.barrier());
    });
    assert_snapshot!(said, @"`bar.sync 0 64`: bar.sync stands where threads of one warp may part: condition v2 of #3 may differ within it; move it out of the branch or make the condition the same for the warp");
}

#[test]
fn a_matrix_is_loaded_by_whole_warps() {
    let said = twins(Arch::Sm80, block(64), |k, fault| {
        let s = k.shared::<u32>("s", 256).at(k.lane() * 4);
        let who = if fault { k.tid().lt(48) } else { k.tid().lt(32) };
        k.when(who, || _ = s.ldmatrix::<4>(Trans::No));
    });
    assert_snapshot!(said, @"`v7, v8, v9, v10 = ldmatrix.x4 shared[v4]`: ldmatrix stands where threads of one warp may part: condition v6 of #7 may differ within it; move it out of the branch or make the condition the same for the warp");
}

#[test]
fn wgmma_is_for_whole_warpgroups_and_the_same_for_each() {
    let said = twins(Arch::Sm90a, block(256), |k, fault| {
        let atom = WgmmaAtom::new(8, WgmmaKind::F32_F16_F16).unwrap();
        let acc = k.regs(4, 0.0f32);
        k.when(k.warp().lt(if fault { 3 } else { 4 }), || k.wgmma_fence());
        k.wgmma_fence();
        let place = if fault { k.tid().cast::<u64>() } else { (k.warp() / 4).cast::<u64>() };
        acc.wgmma(atom, place, k.lit(0u64), true, WgmmaOperands::K_MAJOR);
        k.wgmma_commit();
        k.wgmma_wait(0);
    });
    assert_snapshot!(said, @"
    `wgmma.fence`: wgmma.fence stands where threads of one warpgroup may part: condition v2 of #7 may differ within it; move it out of the branch or make the condition the same for the warpgroup
    `wgmma.ss.M64N8K16_F32_F16_F16.k.k r0[0..4], v3, 0, true`: wgmma.ss stands where threads of one warpgroup may part: operand `a` may differ within it; move it out of the branch or make the condition the same for the warpgroup
    ");
}

/// Warp uniformity follows from votes, broadcasts and multiples of the warp's size.
#[test]
fn what_a_warp_agrees_on_lets_it_meet() {
    use tilewright_codegen::build::record;
    use tilewright_codegen::verify::verify;
    let kernel = record("agreed", Arch::Sm80, block(128), |k| {
        let x = k.global::<u32>("x").at(k.tid()).load();
        for agreed in [x.gt(3).any(), x.shfl_idx(0).gt(3), k.tid().ge(96), (k.tid() / 64).eq(1), k.warp().eq(2)] {
            k.when(agreed, || k.bar_sync(1, 32));
        }
    });
    assert!(verify(kernel).is_ok());
}

/// Every warp asks its lanes about the same things: the block may meet where they vote.
#[test]
fn lanes_that_vote_alike_in_every_warp_let_the_block_meet() {
    let said = twins(Arch::Sm80, block(64), |k, fault| {
        let x = k.global::<u32>("x");
        let any = k.var(0u32);
        let at = if fault { k.tid() } else { k.lane() };
        k.when(at.lt(k.param::<u32>("n")), || any.set(x.at(at).load()));
        k.when(any.get().ne(0).ballot().gt(3), || k.barrier());
    });
    assert_snapshot!(said, @"`bar.sync 0 64`: bar.sync stands where threads of one block may part: condition v10 of #14 may differ within it; move it out of the branch or make the condition the same for the block");
}

/// A shuffle mixes what lanes have: the warp alone agrees on a vote about it.
#[test]
fn votes_on_what_was_shuffled_let_the_warp_alone_meet() {
    let said = twins(Arch::Sm80, block(256), |k, fault| {
        let mixed = if fault { (k.tid() + k.lane()).shfl_idx(k.lane()) } else { k.lane() };
        k.when(mixed.gt(7).ballot().gt(3), || k.barrier());
    });
    assert_snapshot!(said, @"`bar.sync 0 256`: bar.sync stands where threads of one block may part: condition v6 of #7 may differ within it; move it out of the branch or make the condition the same for the block");
}
