//! Invalid twins of the rules in `verify/sync`.

use crate::{edited, twins};
use insta::assert_snapshot;
use tilewright_codegen::build::block;
use tilewright_codegen::ir::attr::{BarId, BarScope, BarThreads, Scope};
use tilewright_codegen::ir::{Arch, Const, Inst, StmtKind, SyncOp};

#[test]
fn a_named_barrier_has_a_legal_id_and_count() {
    let said = twins(Arch::Sm80, block(64), |k, fault| {
        if fault {
            k.bar_sync(16, 64);
            k.bar_sync(1, 33);
            k.bar_arrive(1, 96);
        } else {
            k.bar_sync(15, 64);
        }
    });
    assert_snapshot!(said, @"
    `bar.sync 16 64`: barrier id is 16: sm_80 allows 0 to 15
    `bar.sync 1 33`: threads at a barrier is 33: sm_80 allows 32 to 1024 threads, a multiple of 32
    `bar.arrive 1 96`: more threads meet at the barrier than the block has: lower the count
    ");
}

#[test]
fn an_mbarrier_is_initialised_somewhere() {
    let said = twins(Arch::Sm90a, block(32), |k, fault| {
        let bar = k.mbarriers("full", 2);
        if !fault {
            bar.init(1);
        }
        bar.arrive();
        bar.at(1).wait(0);
    });
    assert_snapshot!(said, @"`mbarrier.arrive shared[v0], 1`: mbarrier `full` is used and never initialised: one thread must init it, and a barrier must follow");
}

#[test]
fn an_mbarrier_lies_among_its_own() {
    let said = twins(Arch::Sm90a, block(32), |k, fault| {
        k.mbarriers("full", 2).at(if fault { 2 } else { 1 }).init(1);
    });
    assert_snapshot!(said, @"`mbarrier.init shared[v0+16], 1`: access to bytes 16..24 of `full`, which has 16: shorten the access or enlarge the allocation");
}

#[test]
fn data_is_no_mbarrier() {
    let said = edited(
        Arch::Sm90a,
        block(32),
        |k| {
            k.shared::<u64>("s", 1).store(0);
            k.mbarriers("full", 1).init(1);
        },
        |kernel| {
            let place = kernel.body.iter().find_map(|stmt| match &stmt.op {
                StmtKind::Inst(Inst::Mem(tilewright_codegen::ir::MemOp::St { at, .. })) => Some(*at),
                _ => None,
            });
            for stmt in &mut kernel.body {
                if let StmtKind::Inst(Inst::Sync(SyncOp::MbarInit { bar, .. })) = &mut stmt.op {
                    *bar = place.unwrap();
                }
            }
        },
    );
    assert_snapshot!(said, @"`mbarrier.init shared[v0], 1`: `s` holds data: declare it as mbarriers");
}

#[test]
fn an_mbarrier_expects_arrivals() {
    let said = twins(Arch::Sm90a, block(32), |k, fault| k.mbarriers("full", 1).init(if fault { 0 } else { 1 }));
    assert_snapshot!(said, @"`mbarrier.init shared[v0], 0`: an mbarrier expects 1 to 1048575 arrivals");
}

#[test]
fn a_far_mbarrier_is_operated_at_cluster_scope() {
    let said = edited(
        Arch::Sm90a,
        block(32).cluster(2),
        |k| {
            let bar = k.mbarriers("full", 1);
            bar.init(1);
            k.cluster_sync();
            bar.on(0).arrive();
        },
        |kernel| {
            for stmt in &mut kernel.body {
                if let StmtKind::Inst(Inst::Sync(SyncOp::MbarArrive { scope, count, .. })) = &mut stmt.op {
                    (*scope, *count) = (BarScope::Cta, Const::u32(0).into());
                }
            }
        },
    );
    assert_snapshot!(said, @"
    `mbarrier.arrive cluster[v1], 0`: operand `count` must be a constant of at least 1
    `mbarrier.arrive cluster[v1], 0`: an mbarrier of another block is operated at cluster scope
    ");
}

#[test]
fn cluster_scope_needs_a_target_with_clusters() {
    let said = twins(Arch::Sm80, block(32), |k, fault| {
        let bar = k.mbarriers("full", 1);
        bar.init(1);
        if fault {
            k.fence(Scope::Cluster);
            bar.wait_at(0, BarScope::Cluster);
        }
    });
    assert_snapshot!(said, @"
    `fence.acq_rel.cluster`: cluster scope is not on sm_80: it needs sm_90 and later; record another instruction for this target
    `v1 = mbarrier.test_wait.cluster shared[v0], 0`: an mbarrier at cluster scope is not on sm_80: it needs sm_90 and later; record another instruction for this target
    ");
}

/// The row's fields take any number; the limits are the verifier's.
#[test]
fn fields_are_checked_and_not_only_what_the_builder_writes() {
    let said = edited(
        Arch::Sm80,
        block(32),
        |k| k.barrier(),
        |kernel| {
            kernel.body[0].op = StmtKind::Inst(SyncOp::BarSync { id: BarId(0), threads: BarThreads(0) }.into());
        },
    );
    assert_snapshot!(said, @"`bar.sync 0 0`: threads at a barrier is 0: sm_80 allows 32 to 1024 threads, a multiple of 32");
}

#[test]
fn arrivals_are_counted_one_by_one_before_sm_90() {
    let said = edited(
        Arch::Sm80,
        block(32),
        |k| {
            let bar = k.mbarriers("full", 1);
            bar.init(2);
            bar.arrive();
        },
        |kernel| {
            for stmt in &mut kernel.body {
                if let StmtKind::Inst(Inst::Sync(SyncOp::MbarArrive { count, .. })) = &mut stmt.op {
                    *count = Const::u32(2).into();
                }
            }
        },
    );
    assert_snapshot!(said, @"`mbarrier.arrive shared[v0], 2`: mbarrier.arrive with a count is not on sm_80: it needs sm_90 and later; record another instruction for this target");
}

#[test]
fn only_an_arrival_orders_the_async_proxy_alone() {
    let said = twins(Arch::Sm90a, block(32), |k, fault| {
        let bar = k.mbarriers("full", 1);
        bar.init(1);
        bar.arrive_async();
        bar.wait_at(0, if fault { BarScope::Async } else { BarScope::Cta });
    });
    assert_snapshot!(said, @"`v1 = mbarrier.try_wait.async shared[v0], 0`: the scope `async` is an arrival's: wait, and expect bytes, at the block's or the cluster's");
}
