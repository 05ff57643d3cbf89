//! Memory: shapes, hints by space, atomics by type, places that are known.

use super::arith::{illegal, needs};
use super::{ErrorKind, Faults};
use crate::ir::attr::{AtomOp, LdCache, LdOrder, Prefetch, Scope, StCache, StOrder};
use crate::ir::{Access, Addr, Inst, Knowledge, MemOp, Needs, SharedKind, Space, Stmt, Ty};

/// Vectors, hints, orders and atomic operations exist as they are combined.
pub(super) fn verify_mem(faults: &mut Faults<'_>, stmt: &Stmt, op: &MemOp) {
    match op {
        MemOp::Ld { ty, d, at, policy, order, cache, prefetch } => {
            vector(faults, stmt, *ty, d.len());
            load(faults, stmt, space(faults, *at), *order, *cache);
            if policy.is_some() && *order == LdOrder::Volatile {
                illegal(faults, stmt, "a volatile access takes no policy: leave it out, or load relaxed");
            }
            if (*prefetch != Prefetch::None || policy.is_some()) && space(faults, *at) != Space::Global {
                illegal(faults, stmt, "prefetch sizes and policies are for global memory: leave them out");
            }
            ordered(faults, stmt, *ty, *order != LdOrder::Weak, order.scope());
        }
        MemOp::St { ty, at, v, policy, order, cache } => {
            vector(faults, stmt, *ty, v.len());
            let global = space(faults, *at) == Space::Global;
            if !global && (*cache != StCache::Default || policy.is_some()) {
                illegal(faults, stmt, "hints of a store are for global memory: leave them out");
            }
            if policy.is_some() && *order == StOrder::Volatile {
                illegal(faults, stmt, "a volatile access takes no policy: leave it out, or store relaxed");
            }
            if *order != StOrder::Weak && *cache != StCache::Default {
                illegal(faults, stmt, "a store with an order takes no hint: leave the hint out");
            }
            ordered(faults, stmt, *ty, *order != StOrder::Weak, order.scope());
        }
        MemOp::Atom { ty, at, op, order, .. } => {
            atomic(faults, stmt, *ty, *op, *at);
            ordered(faults, stmt, *ty, true, order.scope());
        }
        MemOp::Red { ty, at, op, order, .. } => {
            atomic(faults, stmt, *ty, *op, *at);
            if *op == AtomOp::Exch {
                illegal(faults, stmt, "red has no exch: store, or use atom");
            }
            ordered(faults, stmt, *ty, true, order.scope());
        }
        MemOp::Cas { ty, order, .. } => ordered(faults, stmt, *ty, true, order.scope()),
        MemOp::PrefetchL2 { .. } | MemOp::CreatePolicy { .. } => {}
    }
}

fn space(faults: &Faults<'_>, at: Addr) -> Space {
    match faults.kernel.type_of(at.base) {
        Some(Ty::Ptr(space)) => space,
        _ => Space::Global,
    }
}

fn vector(faults: &mut Faults<'_>, stmt: &Stmt, ty: Ty, count: usize) {
    let bytes = count * ty.bytes() as usize;
    let legal = matches!(count, 1 | 2 | 4 | 8) && bytes <= 16 && (ty.bytes() > 1 || count <= 4);
    faults.require(legal, stmt, || ErrorKind::VectorShape { count: count as u32, ty });
}

/// Hints go with weak global loads; parameters are loaded weakly.
fn load(faults: &mut Faults<'_>, stmt: &Stmt, space: Space, order: LdOrder, cache: LdCache) {
    if cache != LdCache::Default && space != Space::Global {
        illegal(faults, stmt, "hints of a load are for global memory: leave them out");
    }
    if cache != LdCache::Default && order != LdOrder::Weak {
        illegal(faults, stmt, "a load with an order takes no hint: leave the hint out");
    }
    if space == Space::Param && order != LdOrder::Weak {
        illegal(faults, stmt, "parameters do not change: load them weakly");
    }
}

/// Ordered accesses are of 32 or 64 bits; cluster scope needs sm_90.
fn ordered(faults: &mut Faults<'_>, stmt: &Stmt, ty: Ty, ordered: bool, scope: Option<Scope>) {
    if ordered && ty.bits() < 32 {
        illegal(faults, stmt, "an access with an order has 32 or 64 bits: widen the element");
    }
    if scope == Some(Scope::Cluster) {
        needs(faults, stmt, "cluster scope", Needs::Sm90);
    }
}

/// The operation exists for the type, in the space, on the target.
fn atomic(faults: &mut Faults<'_>, stmt: &Stmt, ty: Ty, op: AtomOp, at: Addr) {
    let legal = match op {
        AtomOp::Add => true,
        AtomOp::Min | AtomOp::Max => matches!(ty, Ty::U32 | Ty::S32 | Ty::U64),
        AtomOp::And | AtomOp::Or | AtomOp::Xor | AtomOp::Exch => matches!(ty, Ty::U32 | Ty::U64),
        AtomOp::Inc | AtomOp::Dec => ty == Ty::U32,
    };
    faults.require(legal, stmt, || ErrorKind::IllegalType {
        found: ty,
        expected: match op {
            AtomOp::Min | AtomOp::Max => "u32, s32 or u64 for min and max".into(),
            AtomOp::Inc | AtomOp::Dec => "u32 for inc and dec".into(),
            AtomOp::Add | AtomOp::And | AtomOp::Or | AtomOp::Xor | AtomOp::Exch => {
                "u32 or u64 for this operation".into()
            }
        },
    });
    if ty == Ty::BF16x2 {
        needs(faults, stmt, "an atomic on bf16x2", Needs::Sm90);
    }
    if matches!(ty, Ty::F16x2 | Ty::BF16x2) && space(faults, at) != Space::Global {
        illegal(faults, stmt, "atomics on pairs are for global memory");
    }
}

/// Addresses in shared memory that are known are aligned, and within their allocation, which holds
/// data.
pub(super) fn verify_place(faults: &mut Faults<'_>, stmt: &Stmt, inst: &Inst, known: &Knowledge) {
    for Access { addr, align, bytes, .. } in inst.accesses() {
        let Some(origin) = known.addr(addr).place else { continue };
        let Some(alloc) = faults.kernel.alloc(origin.alloc) else { continue };
        if matches!(alloc.kind, SharedKind::Mbarriers(_)) {
            let holds = "mbarriers";
            let remedy = "access it by mbarrier instructions alone";
            faults.at(stmt, ErrorKind::WrongKind { name: alloc.name.clone(), holds, remedy });
            continue;
        }
        let Some(start) = origin.offset else { continue };
        let offset = start + i64::from(alloc.offset);
        faults.require(offset % i64::from(align) == 0, stmt, || ErrorKind::Misaligned { offset, bytes: align });
        let end = start + i64::from(bytes.unwrap_or(0));
        faults.require(start >= 0 && end <= i64::from(alloc.bytes), stmt, || ErrorKind::OutOfBounds {
            name: alloc.name.clone(),
            start,
            end,
            bytes: alloc.bytes,
        });
    }
}
