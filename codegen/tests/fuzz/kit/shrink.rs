//! The smallest program that still differs: statements are left out as long as it does.

use super::batch::Batch;
use std::ops::ControlFlow;
use tilewright_codegen::ir::{Kernel, StmtId, StmtKind};

/// Leaves out statements for as long as `differs` holds of what remains, or until it breaks: what
/// is smallest then is given. What the verifier refuses is not tried.
pub fn shrink(mut batch: Batch, differs: &mut dyn FnMut(&Batch) -> ControlFlow<(), bool>) -> Batch {
    // Breaks when the caller's time is up; `batch` is what there is by then.
    let _ = smallest(&mut batch, differs);
    batch
}

fn smallest(batch: &mut Batch, differs: &mut dyn FnMut(&Batch) -> ControlFlow<(), bool>) -> ControlFlow<()> {
    let programs: Vec<StmtId> =
        batch.kernel.kernel().body.iter().filter(|s| matches!(s.op, StmtKind::If { .. })).map(|s| s.id).collect();
    // All programs but one, each in turn; where several are needed, one less at a time.
    let alone = |kept: &StmtId| programs.iter().filter(|id| *id != kept).copied().collect::<Vec<_>>();
    for kept in &programs {
        if leave_out(batch, &alone(kept), differs)? {
            break;
        }
    }
    for id in programs {
        leave_out(batch, &[id], differs)?;
    }
    loop {
        let before = statements(batch.kernel.kernel()).len();
        // Long stretches first: most statements do not matter.
        for length in [64, 16, 4, 1] {
            for some in statements(batch.kernel.kernel()).rchunks(length).map(<[StmtId]>::to_vec) {
                leave_out(batch, &some, differs)?;
            }
        }
        if statements(batch.kernel.kernel()).len() == before {
            return ControlFlow::Continue(());
        }
    }
}

/// Leaves those statements out if what remains still differs; whether it does.
fn leave_out(
    batch: &mut Batch,
    out: &[StmtId],
    differs: &mut dyn FnMut(&Batch) -> ControlFlow<(), bool>,
) -> ControlFlow<(), bool> {
    let mut kernel = batch.kernel.kernel().clone();
    kernel.edit(&mut |block| block.retain(|stmt| !out.contains(&stmt.id)));
    if let Some(smaller) = batch.with(kernel)
        && differs(&smaller)?
    {
        *batch = smaller;
        return ControlFlow::Continue(true);
    }
    ControlFlow::Continue(false)
}

/// Every statement.
pub fn statements(kernel: &Kernel) -> Vec<StmtId> {
    let mut all = Vec::new();
    kernel.walk(&mut |stmt| all.push(stmt.id));
    all
}
