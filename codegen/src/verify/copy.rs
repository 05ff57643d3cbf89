//! Asynchronous copies: sizes, coordinates, receivers.

use super::arith::illegal;
use super::{ErrorKind, Faults};
use crate::ir::attr::{AtomOp, CpBytes, CpCache};
use crate::ir::{Addr, CopyOp, Operand, OperandSlot, Stmt, Ty, TyClass};

/// Copies have the sizes and coordinates that the hardware copies. Rules on operands of a name
/// apply to all rows with such an operand.
pub(super) fn verify_copy(faults: &mut Faults<'_>, stmt: &Stmt, op: &CopyOp) {
    let mut to = None;
    let mut completes = None;
    op.visit(&mut |spec, slot| match (spec.name, slot) {
        ("bytes", OperandSlot::Use(bytes)) => sixteens(faults, stmt, bytes),
        ("at", OperandSlot::Uses(at)) => axes(faults, stmt, at),
        ("multicast", OperandSlot::Maybe(mask)) => receivers(faults, stmt, mask),
        ("dst", OperandSlot::Mem(addr)) => to = Some(addr),
        ("bar", OperandSlot::Mem(addr)) => completes = Some(addr),
        _ => {}
    });
    if let (Some(dst), Some(bar)) = (to, completes) {
        completes_there(faults, stmt, dst, bar);
    }
    if let CopyOp::CpAsync { bytes, cache, filled, .. } = op {
        if *bytes != CpBytes::B16 && *cache == CpCache::Cg {
            illegal(faults, stmt, "cp.async past level one copies 16 bytes: use ca for 4 and 8");
        }
        if filled.and_then(Operand::as_const).is_some_and(|n| n.bits > u64::from(bytes.count())) {
            illegal(faults, stmt, "cp.async reads at most the bytes that it copies: lower `filled`");
        }
    } else if let CopyOp::ReduceS2G { ty, op, .. } = op {
        reduces(faults, stmt, *op, *ty, false);
    } else if let CopyOp::ReduceS2C { ty, op, .. } = op {
        reduces(faults, stmt, *op, *ty, true);
    } else if let CopyOp::TensorReduce { op: AtomOp::Exch, .. } = op {
        illegal(faults, stmt, "a reduction has no exch: copy, or use atom");
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
    let to = faults.kernel.type_of(dst.base);
    let at = faults.kernel.type_of(bar.base);
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
