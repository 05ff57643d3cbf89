//! The smallest program that still differs: statements are left out one by one as long as it does.

use super::batch::Batch;
use tilewright_codegen::ir::{Kernel, Op, StmtId};

/// Leaves out statements for as long as `differs` holds of what remains. What the verifier refuses is not tried.
pub fn shrink(mut batch: Batch, differs: &mut dyn FnMut(&Batch) -> bool) -> Batch {
    // Whole programs first.
    let programs: Vec<StmtId> =
        batch.kernel.kernel().body.iter().filter(|s| matches!(s.op, Op::If { .. })).map(|s| s.id).collect();
    for id in programs {
        batch = without(batch, id, differs);
    }
    loop {
        let before = statements(batch.kernel.kernel()).len();
        for id in statements(batch.kernel.kernel()).into_iter().rev() {
            batch = without(batch, id, differs);
        }
        if statements(batch.kernel.kernel()).len() == before {
            return batch;
        }
    }
}

/// The batch without that statement, if it still differs; else as it was.
fn without(batch: Batch, id: StmtId, differs: &mut dyn FnMut(&Batch) -> bool) -> Batch {
    let mut kernel = batch.kernel.kernel().clone();
    kernel.edit(&mut |block| block.retain(|stmt| stmt.id != id));
    batch.with(kernel).filter(|smaller| differs(smaller)).unwrap_or(batch)
}

/// Every statement.
pub fn statements(kernel: &Kernel) -> Vec<StmtId> {
    let mut all = Vec::new();
    kernel.walk(&mut |stmt| all.push(stmt.id));
    all
}
