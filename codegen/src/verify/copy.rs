//! Asynchronous copies: sizes, coordinates, who receives.

use super::arith::illegal;
use super::{ErrorKind, Faults};
use crate::ir::attr::{AtomOp, CpBytes, CpCache};
use crate::ir::{Addr, CopyOp, Operand, Stmt, Ty, TyClass};

/// Copies have the sizes and coordinates that the hardware copies.
pub(super) fn verify_copy(faults: &mut Faults<'_>, stmt: &Stmt, op: &CopyOp) {
    match op {
        CopyOp::CpAsync { bytes, cache, filled, .. } => {
            if *bytes != CpBytes::B16 && *cache == CpCache::Cg {
                illegal(faults, stmt, "cp.async past level one copies 16 bytes: use ca for 4 and 8");
            }
            if filled.and_then(Operand::as_const).is_some_and(|n| n.bits > u64::from(bytes.count())) {
                illegal(faults, stmt, "cp.async reads at most the bytes that it copies: lower `filled`");
            }
        }
        CopyOp::BulkG2S { dst, bytes, bar, multicast, .. } => {
            sixteens(faults, stmt, *bytes);
            completes_there(faults, stmt, *dst, *bar);
            receivers(faults, stmt, *multicast);
        }
        CopyOp::ReduceS2G { ty, bytes, op, .. } => {
            sixteens(faults, stmt, *bytes);
            reduces(faults, stmt, *op, *ty, false);
        }
        CopyOp::ReduceS2C { ty, bytes, op, .. } => {
            sixteens(faults, stmt, *bytes);
            reduces(faults, stmt, *op, *ty, true);
        }
        CopyOp::BulkS2G { bytes, .. } | CopyOp::BulkS2C { bytes, .. } | CopyOp::BulkPrefetch { bytes, .. } => {
            sixteens(faults, stmt, *bytes);
        }
        CopyOp::TensorLoad { at, dst, bar, multicast, .. } => {
            axes(faults, stmt, at);
            completes_there(faults, stmt, *dst, *bar);
            receivers(faults, stmt, *multicast);
        }
        CopyOp::TensorStore { at, .. } | CopyOp::BoxPrefetch { at, .. } => axes(faults, stmt, at),
        CopyOp::TensorReduce { at, op, .. } => {
            axes(faults, stmt, at);
            if *op == AtomOp::Exch {
                illegal(faults, stmt, "a reduction has no exch: copy, or use atom");
            }
        }
        CopyOp::CpAsyncCommit {}
        | CopyOp::CpAsyncWait { .. }
        | CopyOp::CpAsyncMbarArrive { .. }
        | CopyOp::TensorPrefetch { .. }
        | CopyOp::BulkCommit {}
        | CopyOp::BulkWait { .. } => {}
    }
}

/// A bulk copy moves a multiple of 16 bytes, and some.
fn sixteens(faults: &mut Faults<'_>, stmt: &Stmt, bytes: Operand) {
    if bytes.as_const().is_some_and(|n| n.bits == 0 || n.bits % 16 != 0) {
        illegal(faults, stmt, "a bulk copy moves a multiple of 16 bytes above zero: round the size up");
    }
}

/// A tensor has 1 to 5 axes.
fn axes(faults: &mut Faults<'_>, stmt: &Stmt, at: &[Operand]) {
    faults.require((1..=5).contains(&at.len()), stmt, || ErrorKind::IllegalChoice {
        what: "a tensor copy has 1 to 5 coordinates",
    });
}

/// The reduction exists for the type, in global memory or in the cluster's.
fn reduces(faults: &mut Faults<'_>, stmt: &Stmt, op: AtomOp, ty: Ty, cluster: bool) {
    let types = || {
        let legal = TyClass::Reduced.members().iter().filter(|&&ty| op.reduces(ty, cluster));
        let names: Vec<&str> = legal.map(|ty| ty.name()).collect();
        let place = if cluster { "the cluster's shared memory" } else { "global memory" };
        let list = if names.is_empty() { "no type".into() } else { names.join(", ") };
        format!("{list} for {} in {place}", op.name())
    };
    faults.require(op.reduces(ty, cluster), stmt, || ErrorKind::IllegalType { found: ty, expected: types() });
}

/// The mbarrier of a load lies in the same space as its destination.
fn completes_there(faults: &mut Faults<'_>, stmt: &Stmt, dst: Addr, bar: Addr) {
    let (to, at) = (faults.kernel.type_of(dst.base), faults.kernel.type_of(bar.base));
    faults.require(to == at, stmt, || ErrorKind::IllegalChoice {
        what: "a load completes on an mbarrier of the block that it writes to: name both in shared, or both in cluster",
    });
}

/// A mask of receivers names blocks of the cluster.
fn receivers(faults: &mut Faults<'_>, stmt: &Stmt, mask: Option<Operand>) {
    let blocks = faults.kernel.launch.blocks_per_cluster();
    if mask.and_then(Operand::as_const).is_some_and(|m| m.bits == 0 || m.bits >> blocks != 0) {
        illegal(faults, stmt, "the multicast mask names a block that the cluster does not have, or none");
    }
}
