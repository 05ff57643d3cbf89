//! Padding: zeros that stand for elements beyond the edge of a tensor, and the reductions that they
//! would falsify.
//!
//! A zero adds nothing to a sum, but it is larger than every negative number: a maximum over a
//! masked load is wrong where all elements are below zero, a minimum where all are above. Such a
//! reduction is refused while it is recorded.

use crate::ir::{ArithOp, Inst, Operand, ValueId, ValueOp};

/// The origins of a kernel's values, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Padding {
    of: Vec<ValueOrigin>,
    /// Whether any value is padded.
    any: bool,
}

/// The origin of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ValueOrigin {
    #[default]
    Elsewhere,
    /// A register or another lane: the running value of a reduction, perhaps.
    Running,
    /// Zero where a mask says that there is no element, or computed from such a value.
    Padded,
}

impl Padding {
    /// The refusal of a kernel that reduces padded values by their order.
    pub const REFUSAL: &'static str = "maximum or minimum of a masked load: elements beyond the edge would count as 0; load them with `load_or` and a fill that leaves the result alone";

    fn source(&self, operand: Operand) -> ValueOrigin {
        let of = |value: ValueId| self.of.get(value.index()).copied();
        operand.as_value().and_then(of).unwrap_or_default()
    }

    fn set(&mut self, value: ValueId, source: ValueOrigin) {
        if self.of.len() <= value.index() {
            self.of.resize(value.index() + 1, ValueOrigin::Elsewhere);
        }
        self.of[value.index()] = source;
    }

    /// Records that a value is padded.
    pub fn mark(&mut self, operand: Operand) {
        if let Some(value) = operand.as_value() {
            self.set(value, ValueOrigin::Padded);
            self.any = true;
        }
    }

    /// Records the origin of the values of an instruction.
    pub fn learn(&mut self, inst: &Inst) {
        if let Inst::Value(ValueOp::Get { d, .. }) = inst {
            self.set(*d, ValueOrigin::Running);
        } else if matches!(inst, Inst::Warp(_)) {
            inst.defs().into_iter().for_each(|value| self.set(value, ValueOrigin::Running));
        } else if self.any && Self::keeps_padding(inst) {
            let is_padded = |operand| self.source(operand) == ValueOrigin::Padded;
            if inst.uses().into_iter().any(is_padded) {
                inst.defs().into_iter().for_each(|value| self.set(value, ValueOrigin::Padded));
            }
        }
    }

    /// Whether a padded operand makes the result padded: of arithmetic and conversions, but not of
    /// a choice.
    fn keeps_padding(inst: &Inst) -> bool {
        let chooses = matches!(inst, Inst::Arith(ArithOp::Select { .. } | ArithOp::Setp { .. }));
        matches!(inst, Inst::Arith(_) | Inst::Convert(_)) && !chooses
    }

    /// Whether an instruction reduces padded values by their order. A bound that is a constant or a
    /// parameter clamps each element by itself, and is fine.
    pub fn falsifies(&self, inst: &Inst) -> bool {
        let Inst::Arith(ArithOp::Max { a, b, .. } | ArithOp::Min { a, b, .. }) = inst else { return false };
        let a = self.source(*a);
        let b = self.source(*b);
        let padded = a == ValueOrigin::Padded || b == ValueOrigin::Padded;
        padded && a != ValueOrigin::Elsewhere && b != ValueOrigin::Elsewhere
    }
}
