//! The smallest program that still differs: statements are left out one by one as long as it does.

use super::batch::Batch;
use tilewright_codegen::ir::{Kernel, StmtId};

/// Leaves out statements for as long as `differs` holds of what remains. What the verifier refuses is not tried.
pub fn shrink(mut batch: Batch, differs: &mut dyn FnMut(&Batch) -> bool) -> Batch {
    loop {
        let before = statements(batch.kernel.kernel()).len();
        for id in statements(batch.kernel.kernel()).into_iter().rev() {
            let mut kernel = batch.kernel.kernel().clone();
            kernel.edit(&mut |block| block.retain(|stmt| stmt.id != id));
            if let Some(smaller) = batch.with(kernel).filter(|smaller| differs(smaller)) {
                batch = smaller;
            }
        }
        if statements(batch.kernel.kernel()).len() == before {
            return batch;
        }
    }
}

/// Every statement.
pub fn statements(kernel: &Kernel) -> Vec<StmtId> {
    let mut all = Vec::new();
    kernel.walk(&mut |stmt| all.push(stmt.id));
    all
}
