//! Limits of the target: how the kernel is launched, and what it takes.

use super::{ErrorKind, Faults};
use crate::ir::{Inst, Limit, ParamKind, Stmt, StmtKind, Ty, ValueOp};

/// Threads, shared memory, parameters and cluster are within the target's limits.
pub(super) fn verify_launch(faults: &mut Faults<'_>) {
    let kernel = faults.kernel;
    let mut within = |limit: Limit, found: u32| {
        if !limit.allows(kernel.arch, found) {
            faults.whole(ErrorKind::BeyondLimit { limit, found, target: kernel.arch });
        }
    };
    within(Limit::ThreadsPerBlock, kernel.launch.threads_per_block());
    within(Limit::SharedPerBlock, kernel.shared_bytes());
    within(Limit::ClusterBlocks, kernel.launch.blocks_per_cluster());
    within(Limit::ParamBytes, kernel.param_offsets().1);
    verify_params(faults);
    verify_param_names(faults);
    verify_name(faults);
    verify_shared(faults);
}

/// The name is an identifier.
fn verify_name(faults: &mut Faults<'_>) {
    let name = &faults.kernel.name;
    let legal = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !legal {
        faults.whole(ErrorKind::IllegalName { name: name.clone() });
    }
}

/// Allocations are aligned as they say, and follow one another.
fn verify_shared(faults: &mut Faults<'_>) {
    let mut end = 0;
    for alloc in &faults.kernel.shared {
        let aligned = alloc.align.is_power_of_two() && alloc.align <= 1024 && alloc.offset.is_multiple_of(alloc.align);
        if !aligned || alloc.offset < end {
            faults.whole(ErrorKind::Misplaced { name: alloc.name.clone(), offset: alloc.offset });
        }
        end = alloc.offset.saturating_add(alloc.bytes);
    }
}

/// Parameters are scalars of at least 8 bits, pointers to global memory, aligned structures or
/// tensor maps.
fn verify_params(faults: &mut Faults<'_>) {
    for param in &faults.kernel.params {
        let legal = match param.kind {
            ParamKind::Value(Ty::Ptr(space)) => space == crate::ir::Space::Global,
            ParamKind::Value(ty) => ty != Ty::Pred,
            ParamKind::Bytes { bytes, align } => bytes > 0 && align.is_power_of_two() && align <= 16,
            ParamKind::TensorMap => true,
        };
        if !legal {
            faults.whole(ErrorKind::IllegalParam { name: param.name.clone() });
        }
    }
}

/// Checks that every parameter has a name of its own: launches are checked by it. The error stands
/// at the second declaration.
fn verify_param_names(faults: &mut Faults<'_>) {
    let params = &faults.kernel.params;
    for (index, param) in params.iter().enumerate() {
        if params[..index].iter().all(|earlier| earlier.name != param.name) {
            continue;
        }
        let declares = |stmt: &&Stmt| {
            matches!(
                &stmt.op,
                StmtKind::Inst(Inst::Value(ValueOp::Param { param, .. } | ValueOp::ParamPtr { param, .. }))
                    if param.index() == index
            )
        };
        let kind = ErrorKind::SameParam { name: param.name.clone() };
        match faults.statements().into_iter().find(declares) {
            Some(stmt) => faults.at(stmt, kind),
            None => faults.whole(kind),
        }
    }
}
