//! Barriers: ids and counts, mbarriers that are initialised and hold nothing else.

use super::arith::{illegal, needs};
use super::{ErrorKind, Faults};
use crate::ir::attr::{BarId, BarScope, BarThreads, Scope};
use crate::ir::{
    Addr, Inst, Knowledge, Limit, Needs, Operand, SharedId, SharedKind, Space, Stmt, StmtKind, SyncOp, Ty,
};
use std::collections::BTreeSet;

/// Barriers have legal ids and counts; scopes and spaces go together.
pub(super) fn verify_sync(faults: &mut Faults<'_>, stmt: &Stmt, op: &SyncOp) {
    match op {
        SyncOp::BarSync { id, threads } | SyncOp::BarArrive { id, threads } => named(faults, stmt, *id, *threads),
        SyncOp::Fence { order } => {
            if order.scope() == Some(Scope::Cluster) {
                needs(faults, stmt, "cluster scope", Needs::Sm90);
            }
        }
        SyncOp::MbarInit { count, .. } => arrivals(faults, stmt, *count),
        SyncOp::MbarArrive { bar, count, scope } => {
            faults.require(count.as_const().is_some_and(|c| c.bits >= 1), stmt, || ErrorKind::NotConstant {
                operand: "count",
                what: " of at least 1",
            });
            if count.as_const().is_some_and(|c| c.bits > 1) {
                needs(faults, stmt, "mbarrier.arrive with a count", Needs::Sm90);
            }
            reach(faults, stmt, *bar, *scope);
        }
        SyncOp::MbarArriveTx { bar, scope, .. } | SyncOp::MbarExpectTx { bar, scope, .. } => {
            reach(faults, stmt, *bar, *scope);
            arrives(faults, stmt, *scope);
        }
        SyncOp::MbarTestWait { bar, scope, .. } => {
            reach(faults, stmt, *bar, *scope);
            arrives(faults, stmt, *scope);
        }
        SyncOp::MbarTryWait { scope, .. } => arrives(faults, stmt, *scope),
        SyncOp::MbarInval { .. }
        | SyncOp::FenceProxyAsync { .. }
        | SyncOp::FenceMbarInit {}
        | SyncOp::ClusterArrive { .. }
        | SyncOp::ClusterWait {}
        | SyncOp::GridWait {}
        | SyncOp::GridLaunch {} => {}
    }
}

/// A named barrier's id and count are legal, and no more threads meet than the block has.
fn named(faults: &mut Faults<'_>, stmt: &Stmt, BarId(id): BarId, BarThreads(threads): BarThreads) {
    let target = faults.kernel.arch;
    for (limit, found) in [(Limit::BarrierId, id), (Limit::BarrierThreads, threads)] {
        faults.require(limit.allows(target, found), stmt, || ErrorKind::BeyondLimit { limit, found, target });
    }
    if threads > faults.kernel.launch.threads_in_warps() {
        illegal(faults, stmt, "more threads meet at the barrier than the block has: lower the count");
    }
}

fn arrivals(faults: &mut Faults<'_>, stmt: &Stmt, count: Operand) {
    if count.as_const().is_some_and(|c| c.bits == 0 || c.bits >= 1 << 20) {
        illegal(faults, stmt, "an mbarrier expects 1 to 1048575 arrivals");
    }
}

/// Checks that operations on another block's mbarrier have cluster scope, which needs sm_90.
fn reach(faults: &mut Faults<'_>, stmt: &Stmt, bar: Addr, scope: BarScope) {
    let remote = faults.kernel.type_of(bar.base) == Some(Ty::Ptr(Space::Cluster));
    if remote && scope == BarScope::Cta {
        illegal(faults, stmt, "an mbarrier of another block is operated at cluster scope");
    }
    if scope != BarScope::Cta {
        needs(faults, stmt, "an mbarrier at cluster scope", Needs::Sm90);
    }
}

/// Only a plain arrival may order the async proxy alone.
fn arrives(faults: &mut Faults<'_>, stmt: &Stmt, scope: BarScope) {
    if scope == BarScope::Async {
        illegal(
            faults,
            stmt,
            "the scope `async` is an arrival's: wait, and expect bytes, at the block's or the cluster's",
        );
    }
}

/// Checks that every mbarrier that is used is initialised somewhere, and is an mbarrier.
pub(super) fn verify_mbarriers(faults: &mut Faults<'_>) {
    let known = Knowledge::of(faults.kernel);
    let mut initialised = BTreeSet::<SharedId>::new();
    let mut used = Vec::new();
    for stmt in faults.statements() {
        let StmtKind::Inst(inst) = &stmt.op else { continue };
        for bar in inst.mbarriers() {
            let Some(origin) = known.addr(bar).place else { continue };
            let Some(alloc) = faults.kernel.alloc(origin.alloc) else { continue };
            if alloc.kind == SharedKind::Data {
                let holds = "data";
                let remedy = "declare it as mbarriers";
                faults.at(stmt, ErrorKind::WrongKind { name: alloc.name.clone(), holds, remedy });
            } else if let Some(start) = origin.offset
                && (start < 0 || start + 8 > i64::from(alloc.bytes))
            {
                let name = alloc.name.clone();
                let end = start + 8;
                let bytes = alloc.bytes;
                faults.at(stmt, ErrorKind::OutOfBounds { name, start, end, bytes });
            }
            if matches!(inst, Inst::Sync(SyncOp::MbarInit { .. })) {
                initialised.insert(origin.alloc);
            } else {
                used.push((stmt, origin.alloc));
            }
        }
    }
    let mut told = BTreeSet::new();
    for (stmt, id) in used {
        if let Some(alloc) = faults.kernel.alloc(id)
            && !initialised.contains(&id)
            && told.insert(id)
        {
            faults.at(stmt, ErrorKind::NeverInitialised { name: alloc.name.clone() });
        }
    }
}
