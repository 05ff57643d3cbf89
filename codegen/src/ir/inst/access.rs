//! The memory accesses of an instruction, derived from its row: data, and mbarriers.

use super::row::{Flag, OperandSlot, Role, Rule};
use super::{CopyOp, Inst};
use crate::ir::Addr;

/// An access to memory as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The address.
    pub addr: Addr,
    /// The alignment of the address, in bytes.
    pub align: u32,
    /// Bytes that belong together: no part of them is accessed without the others.
    pub unit: u32,
    /// Bytes from the address on that are accessed, where that is known.
    pub bytes: Option<u32>,
}

impl Inst {
    /// The accesses to memory as data, in the order of the operands. Accesses of unknown size are
    /// taken to be single bytes.
    ///
    /// ```
    /// use tilewright_codegen::ir::{Addr, Const, Inst, MemOp, Space, Ty, attr::{AtomOp, RedOrder, Scope}};
    /// let at: Addr = Addr { base: Const::new(Ty::Ptr(Space::Shared), 64).into(), offset: 0 };
    /// let v = Const::f32(1.0).into();
    /// let order = RedOrder::Relaxed(Scope::Cta);
    /// let red: Inst = MemOp::Red { ty: Ty::F32, at, v, op: AtomOp::Add, order }.into();
    /// assert_eq!((red.accesses()[0].unit, red.accesses()[0].bytes), (4, Some(4)));
    /// ```
    pub fn accesses(&self) -> Vec<Access> {
        let mut places = Vec::new();
        let mut elements = 1;
        let mut size = None;
        self.visit(&mut |spec, slot| match slot {
            OperandSlot::Mem(addr) if spec.role != Role::MemAt && matches!(spec.rule, Rule::In(_)) => places.push(addr),
            OperandSlot::Defs(values) => elements = values.len() as u32,
            OperandSlot::Uses(operands) => elements = operands.len() as u32,
            OperandSlot::Use(operand) if spec.name == "bytes" => size = Some(operand.as_const().map(|c| c.bits as u32)),
            OperandSlot::Mem(_)
            | OperandSlot::Use(_)
            | OperandSlot::Def(_)
            | OperandSlot::Maybe(_)
            | OperandSlot::Regs(_) => {}
        });
        let whole = |bytes: u32| (bytes, bytes, Some(bytes));
        let (align, unit, bytes) = if let Inst::Copy(CopyOp::CpAsync { bytes, .. }) = self {
            whole(bytes.count())
        } else if self.is(Flag::Boxes) {
            (128, 16, None)
        } else if self.is(Flag::Units) {
            (16, 16, size.unwrap_or(Some(16)))
        } else {
            self.args().first().map_or((1, 1, None), |ty| whole(ty.bytes() * elements))
        };
        places.into_iter().map(|addr| Access { addr, align, unit, bytes }).collect()
    }

    /// The mbarriers that the instruction operates on.
    pub fn mbarriers(&self) -> Vec<Addr> {
        let mut all = Vec::new();
        self.visit(&mut |spec, slot| {
            if let (Rule::Bar(_), OperandSlot::Mem(addr)) = (spec.rule, slot) {
                all.push(addr);
            }
        });
        all
    }
}
