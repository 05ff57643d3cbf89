//! Where pointers come from: the allocation in shared memory, and the offset where it is a constant.

use crate::ir::{Addr, Inst, Kernel, Op, Operand, SharedId, ValueId, ValueOp};
use std::collections::HashMap;

/// What is known of pointers to shared memory.
pub(super) struct Origins {
    of: HashMap<ValueId, Origin>,
}

/// A place in an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    /// The allocation.
    pub alloc: SharedId,
    /// Bytes from its start, if that is a constant.
    pub offset: Option<i64>,
}

impl Origins {
    /// Follows every pointer of the kernel back to its allocation.
    pub fn of(kernel: &Kernel) -> Origins {
        let mut origins = Origins { of: HashMap::new() };
        kernel.walk(&mut |stmt| {
            if let Op::Inst(Inst::Value(op)) = &stmt.op {
                origins.follow(op);
            }
        });
        origins
    }

    fn follow(&mut self, op: &ValueOp) {
        let (d, origin) = match *op {
            ValueOp::Shared { d, alloc } => (d, Some(Origin { alloc, offset: Some(0) })),
            ValueOp::PtrAdd { d, p, bytes, .. } => {
                let step = bytes.as_const().map(|c| c.as_i64());
                let moved = |o: Origin| Origin { offset: o.offset.zip(step).map(|(a, b)| a + b), ..o };
                (d, self.operand(p).map(moved))
            }
            ValueOp::MapA { d, p, .. } => (d, self.operand(p)),
            ValueOp::Param { .. }
            | ValueOp::ParamPtr { .. }
            | ValueOp::Special { .. }
            | ValueOp::Clock { .. }
            | ValueOp::PtrBits { .. }
            | ValueOp::PtrFrom { .. }
            | ValueOp::Get { .. }
            | ValueOp::Set { .. } => return,
        };
        if let Some(origin) = origin {
            self.of.insert(d, origin);
        }
    }

    fn operand(&self, operand: Operand) -> Option<Origin> {
        self.of.get(&operand.as_value()?).copied()
    }

    /// The place that an address names.
    pub fn addr(&self, addr: Addr) -> Option<Origin> {
        let base = self.operand(addr.base)?;
        Some(Origin { offset: base.offset.map(|o| o + i64::from(addr.offset)), ..base })
    }
}
