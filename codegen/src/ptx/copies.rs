//! Finds copies of values: through casts, registers, and packs of the same parts. Also finds
//! predicates that are constant in spite of their operands.
//!
//! Some faults of `ptxas` need two operands that it finds to be equal, or a predicate that it finds
//! to be constant, and it looks through all of these. Equal results of equal computations are not
//! found, nor comparisons that ranges decide.
//!
//! Others need a constant that it knows. `ptxas` unrolls loops and follows branches, so that
//! [`MinusZeros`] asks what a value *may* be.

use crate::ir::attr::Cmp;
use crate::ir::{
    ArithOp, BitsOp, Block, Const, ConvertOp, Inst, Kernel, Operand, Regs, Role, StmtKind, Ty, ValueId, ValueOp, VarId,
};
use half::{bf16, f16};
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

/// The source of every value of a kernel.
#[derive(Default)]
pub(super) struct CopySources {
    /// The first value with the bits of a value, or the constant.
    sources: HashMap<ValueId, Operand>,
    /// The first pack of parts.
    packs: HashMap<Vec<Operand>, ValueId>,
    /// The parts of a first pack.
    parts: HashMap<ValueId, Vec<Operand>>,
}

/// The sources of what registers hold where a statement begins.
type Held = HashMap<(VarId, u32), Operand>;

impl CopySources {
    /// Learns from every statement of a kernel.
    pub fn of(kernel: &Kernel) -> CopySources {
        let mut copies = CopySources::default();
        copies.block(&kernel.body, &mut Held::new());
        copies
    }

    /// The first value with the bits of an operand, or the constant, as an unsigned number.
    pub fn source(&self, operand: Operand) -> Operand {
        match operand {
            Operand::Value(value) => self.sources.get(&value).copied().unwrap_or(operand),
            Operand::Const(value) => Const::new(unsigned(value.ty.bits()), value.bits).into(),
        }
    }

    fn block(&mut self, block: &Block, held: &mut Held) {
        for stmt in block {
            match &stmt.op {
                StmtKind::Inst(inst) => self.instruction(inst, held),
                StmtKind::If { then, otherwise, .. } => {
                    let mut other = held.clone();
                    self.block(then, held);
                    self.block(otherwise, &mut other);
                    held.retain(|register, source| other.get(register) == Some(source));
                }
                StmtKind::For { body, .. } | StmtKind::Loop { body } => {
                    // Writes of an iteration are visible to the next one and after the loop.
                    forget_written(body, held);
                    self.block(body, &mut held.clone());
                }
                StmtKind::Break => {}
            }
        }
    }

    fn instruction(&mut self, inst: &Inst, held: &mut Held) {
        match inst {
            Inst::Convert(ConvertOp::Bitcast { d, a, .. })
            | Inst::Value(ValueOp::PtrBits { d, p: a, .. } | ValueOp::PtrFrom { d, bits: a, .. }) => {
                self.sources.insert(*d, self.source(*a));
            }
            Inst::Value(ValueOp::Get { d, r, .. }) => {
                let source = *held.entry((r.var, r.start)).or_insert(Operand::Value(*d));
                self.sources.insert(*d, source);
            }
            Inst::Value(ValueOp::Set { r, a, .. }) => {
                held.insert((r.var, r.start), self.source(*a));
            }
            Inst::Convert(ConvertOp::Pack { ty, d, parts, .. }) => self.pack(*ty, *d, parts),
            Inst::Convert(ConvertOp::Unpack { ty, parts, a, .. }) => self.unpack(*ty, parts, *a),
            Inst::Arith(ArithOp::Setp { ty, d, a, b, cmp }) => {
                self.predicate(*d, compared(*ty, [self.source(*a), self.source(*b)], *cmp));
            }
            Inst::Bits(BitsOp::And { ty: Ty::Pred, d, a, b }) => {
                let parts = [self.constant(*a), self.constant(*b)];
                self.predicate(*d, all(parts));
            }
            Inst::Bits(BitsOp::Or { ty: Ty::Pred, d, a, b }) => {
                // Not both are false.
                let parts = [self.constant(*a), self.constant(*b)].map(|part| part.map(|part| !part));
                self.predicate(*d, all(parts).map(|neither| !neither));
            }
            Inst::Bits(BitsOp::Xor { ty: Ty::Pred, d, a, b }) => {
                let differ = self.constant(*a).zip(self.constant(*b)).map(|(a, b)| a != b);
                self.predicate(*d, if self.source(*a) == self.source(*b) { Some(false) } else { differ });
            }
            Inst::Bits(BitsOp::Not { ty: Ty::Pred, d, a }) => {
                self.predicate(*d, self.constant(*a).map(|a| !a));
            }
            Inst::Arith(_)
            | Inst::Bits(_)
            | Inst::Convert(_)
            | Inst::Value(_)
            | Inst::Mem(_)
            | Inst::Warp(_)
            | Inst::Sync(_)
            | Inst::Copy(_)
            | Inst::Mma(_)
            | Inst::Control(_) => forget(inst, held),
        }
    }

    /// The value of a predicate that is a constant.
    fn constant(&self, predicate: Operand) -> Option<bool> {
        self.source(predicate).as_const().map(|value| value.bits != 0)
    }

    fn predicate(&mut self, d: ValueId, value: Option<bool>) {
        self.sources.extend(value.map(|value| (d, Const::pred(value).into())));
    }

    fn pack(&mut self, ty: Ty, d: ValueId, parts: &[Operand]) {
        let parts: Vec<Operand> = parts.iter().map(|&part| self.source(part)).collect();
        let width = ty.bits() / parts.len().max(1) as u32;
        let constants: Option<Vec<Const>> = parts.iter().map(|part| part.as_const()).collect();
        let source = match constants {
            Some(parts) => {
                let bits = parts.iter().rev().fold(0, |above, part| above << width | part.bits);
                Const::new(unsigned(ty.bits()), bits).into()
            }
            None => Operand::Value(*self.packs.entry(parts.clone()).or_insert(d)),
        };
        if source == Operand::Value(d) {
            self.parts.insert(d, parts);
        }
        self.sources.insert(d, source);
    }

    /// `ty` is the type of a part.
    fn unpack(&mut self, ty: Ty, parts: &[ValueId], a: Operand) {
        let sources: Vec<Operand> = match self.source(a) {
            Operand::Const(whole) => (0..parts.len() as u32)
                .map(|i| Const::new(unsigned(ty.bits()), whole.bits >> (i * ty.bits())).into())
                .collect(),
            Operand::Value(whole) => match self.parts.get(&whole) {
                Some(packed) if packed.len() == parts.len() => packed.clone(),
                _ => return,
            },
        };
        self.sources.extend(parts.iter().copied().zip(sources));
    }
}

/// Whether all are true, if that is known.
fn all(parts: [Option<bool>; 2]) -> Option<bool> {
    match parts {
        [Some(false), _] | [_, Some(false)] => Some(false),
        [Some(true), Some(true)] => Some(true),
        [None, _] | [_, None] => None,
    }
}

/// The outcome of a comparison of sources, if it does not depend on a value.
fn compared(ty: Ty, [a, b]: [Operand; 2], cmp: Cmp) -> Option<bool> {
    match (a.as_const(), b.as_const()) {
        (Some(a), Some(b)) => Some(cmp.holds(order(ty, a.bits, b.bits))),
        _ if a != b => None,
        // A value is equal to itself, or not a number.
        _ if ty.is_float() => {
            let same = cmp.holds(Some(Ordering::Equal));
            (same == cmp.holds(None)).then_some(same)
        }
        _ => Some(cmp.holds(Some(Ordering::Equal))),
    }
}

/// The order of two constants of a type; nothing where one is not a number.
fn order(ty: Ty, a: u64, b: u64) -> Option<Ordering> {
    let float: fn(u64) -> f64 = match ty {
        Ty::F16 => |bits| f16::from_bits(bits as u16).to_f64(),
        Ty::BF16 => |bits| bf16::from_bits(bits as u16).to_f64(),
        Ty::F32 => |bits| f32::from_bits(bits as u32).into(),
        Ty::F64 => f64::from_bits,
        Ty::Pred
        | Ty::U8
        | Ty::S8
        | Ty::U16
        | Ty::S16
        | Ty::U32
        | Ty::S32
        | Ty::U64
        | Ty::S64
        | Ty::F16x2
        | Ty::BF16x2
        | Ty::Ptr(_) => {
            let [a, b] = [a, b].map(|bits| Const::new(ty, bits));
            return Some(if ty.is_signed() { a.as_i64().cmp(&b.as_i64()) } else { a.bits.cmp(&b.bits) });
        }
    };
    float(a).partial_cmp(&float(b))
}

/// The unsigned type of a width.
fn unsigned(bits: u32) -> Ty {
    match bits {
        1 => Ty::Pred,
        8 => Ty::U8,
        16 => Ty::U16,
        32 => Ty::U32,
        _ => Ty::U64,
    }
}

/// Values with 16 bits that may be the constant 0x8000, a half of −0: by casts, registers, packs
/// and choices, in any order of statements, or computed from constants only.
#[derive(Default)]
pub(super) struct MinusZeros {
    halves: Spread,
    constants: Spread,
}

/// Values and registers with a property that copies keep.
#[derive(Default)]
struct Spread {
    values: HashSet<ValueId>,
    registers: HashSet<(VarId, u32)>,
}

impl Spread {
    fn has(&self, operand: Operand) -> bool {
        operand.as_value().is_some_and(|value| self.values.contains(&value))
    }

    fn len(&self) -> usize {
        self.values.len() + self.registers.len()
    }
}

impl MinusZeros {
    /// Learns from the statements of a kernel until nothing is added: a loop reads values that it
    /// writes later.
    pub fn of(kernel: &Kernel) -> MinusZeros {
        let mut found = MinusZeros::default();
        loop {
            let before = [found.halves.len(), found.constants.len()];
            kernel.walk(&mut |stmt| {
                if let StmtKind::Inst(inst) = &stmt.op {
                    found.instruction(inst);
                }
            });
            if [found.halves.len(), found.constants.len()] == before {
                return found;
            }
        }
    }

    /// Whether 16 bits of an operand may be the constant 0x8000.
    pub fn may_be(&self, operand: Operand) -> bool {
        match operand.as_const() {
            None => self.halves.has(operand),
            Some(value) => (0..value.ty.bits() / 16).any(|half| (value.bits >> (16 * half)) as u16 == 0x8000),
        }
    }

    fn may_be_constant(&self, operand: Operand) -> bool {
        operand.as_const().is_some() || self.constants.has(operand)
    }

    fn instruction(&mut self, inst: &Inst) {
        match inst {
            Inst::Convert(ConvertOp::Bitcast { d, a, .. })
            | Inst::Value(ValueOp::PtrBits { d, p: a, .. } | ValueOp::PtrFrom { d, bits: a, .. }) => {
                self.copy(&[*d], &[*a]);
            }
            Inst::Value(ValueOp::Get { d, r, .. }) => {
                for spread in [&mut self.halves, &mut self.constants] {
                    spread.values.extend(spread.registers.contains(&(r.var, r.start)).then_some(*d));
                }
            }
            Inst::Value(ValueOp::Set { r, a, .. }) => {
                let half = self.may_be(*a);
                let constant = self.may_be_constant(*a);
                self.halves.registers.extend(half.then_some((r.var, r.start)));
                self.constants.registers.extend(constant.then_some((r.var, r.start)));
            }
            Inst::Convert(ConvertOp::Pack { d, parts, .. }) => self.copy(&[*d], parts),
            Inst::Convert(ConvertOp::Unpack { parts, a, .. }) => self.copy(parts, &[*a]),
            Inst::Arith(ArithOp::Select { d, a, b, .. }) => self.copy(&[*d], &[*a, *b]),
            Inst::Arith(_) | Inst::Bits(_) | Inst::Convert(_) => {
                if inst.uses().into_iter().all(|operand| self.may_be_constant(operand)) {
                    let results = inst.defs();
                    self.halves.values.extend(&results);
                    self.constants.values.extend(&results);
                }
            }
            Inst::Value(_)
            | Inst::Mem(_)
            | Inst::Warp(_)
            | Inst::Sync(_)
            | Inst::Copy(_)
            | Inst::Mma(_)
            | Inst::Control(_) => {}
        }
    }

    fn copy(&mut self, to: &[ValueId], from: &[Operand]) {
        if from.iter().any(|&operand| self.may_be(operand)) {
            self.halves.values.extend(to);
        }
        if from.iter().any(|&operand| self.may_be_constant(operand)) {
            self.constants.values.extend(to);
        }
    }
}

/// Forgets the registers that an instruction writes.
fn forget(inst: &Inst, held: &mut Held) {
    for (role, Regs { var, start, len }) in inst.regs() {
        if role != Role::RegR {
            for index in start..start + len {
                held.remove(&(var, index));
            }
        }
    }
}

/// Forgets the registers that a block writes.
fn forget_written(block: &Block, held: &mut Held) {
    for stmt in block {
        match &stmt.op {
            StmtKind::Inst(inst) => forget(inst, held),
            StmtKind::If { then, otherwise, .. } => {
                forget_written(then, held);
                forget_written(otherwise, held);
            }
            StmtKind::For { body, .. } | StmtKind::Loop { body } => forget_written(body, held),
            StmtKind::Break => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_are_known_where_no_value_decides_them() {
        let value = Operand::Value(ValueId(3));
        let constant = |ty, bits| Operand::Const(Const::new(ty, bits));
        assert_eq!(compared(Ty::U32, [value, value], Cmp::Lt), Some(false));
        assert_eq!(compared(Ty::U32, [value, value], Cmp::Ge), Some(true));
        assert_eq!(compared(Ty::F32, [value, value], Cmp::Gt), Some(false));
        assert_eq!(compared(Ty::F32, [value, value], Cmp::Equ), Some(true));
        assert_eq!(compared(Ty::F32, [value, value], Cmp::Ne), Some(false));
        // It may be a NaN.
        assert_eq!(compared(Ty::F32, [value, value], Cmp::Eq), None);
        assert_eq!(compared(Ty::F32, [value, value], Cmp::Neu), None);
        assert_eq!(compared(Ty::U32, [value, Operand::Value(ValueId(4))], Cmp::Lt), None);
        let [minus_one, one] = [u64::MAX, 1].map(|bits| constant(Ty::U32, bits));
        assert_eq!(compared(Ty::S32, [minus_one, one], Cmp::Lt), Some(true));
        assert_eq!(compared(Ty::U32, [minus_one, one], Cmp::Lt), Some(false));
        let [nan, half] = [0x7e00, 0x3800].map(|bits| constant(Ty::U16, bits));
        assert_eq!(compared(Ty::F16, [nan, half], Cmp::Lt), Some(false));
        assert_eq!(compared(Ty::F16, [half, nan], Cmp::Neu), Some(true));
    }

    #[test]
    fn one_false_part_decides_a_conjunction() {
        assert_eq!(all([None, Some(false)]), Some(false));
        assert_eq!(all([Some(true), None]), None);
        assert_eq!(all([Some(true), Some(true)]), Some(true));
    }
}
