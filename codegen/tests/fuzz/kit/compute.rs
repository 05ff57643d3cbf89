//! Computing instructions: any row whose results depend on its operands alone, and those of a warp.

use super::draw::{Hands, draw};
use super::program::{Gen, Site, word};
use tilewright_codegen::ir::attr::{Cmp, LdCache, LdOrder, Prefetch, SpecialReg};
use tilewright_codegen::ir::{
    Addr, ArithOp, BitsOp, Const, ConvertOp, CopyOp, Flag, Inst, InstRow, MemOp, Operand, Ty, ValueId, ValueOp, WarpOp,
};

/// Fits an instruction into its surroundings, so that what it does is defined. False where it
/// cannot stand.
pub fn tame(inst: &mut Inst, hands: &mut dyn Hands) -> bool {
    match inst {
        Inst::Arith(ArithOp::Div { ty, b, .. } | ArithOp::Rem { ty, b, .. }) => *b = hands.nonzero(*ty, *b),
        Inst::Arith(ArithOp::Neg { ty, a, .. } | ArithOp::Abs { ty, a, .. }) if ty.is_int() => {
            *a = hands.negatable(*ty, *a);
        }
        // The driver's compiler folds what it makes of a half that it knows, and was seen to be
        // wrong.
        Inst::Convert(ConvertOp::Pack { parts, .. }) => return parts.iter().all(|part| part.as_const().is_none()),
        Inst::Bits(BitsOp::Shl { n, .. } | BitsOp::Shr { n, .. }) => *n = hands.position(*n),
        Inst::Bits(BitsOp::ShfL { n, .. } | BitsOp::ShfR { n, .. }) => *n = hands.position(*n),
        Inst::Bits(BitsOp::Bfe { ty, pos, len, .. } | BitsOp::Bfi { ty, pos, len, .. }) => {
            (*pos, *len) = hands.field(ty.bits());
        }
        // The driver's compiler knows the counter of a loop that runs once, and was seen to convert
        // the high half of such a register wrongly.
        Inst::Convert(ConvertOp::Fp8ToHalf { a, .. }) => *a = hands.unknown(*a),
        // What differs from machine to machine, or from place to place in a batch.
        Inst::Value(ValueOp::Special { reg, .. }) => {
            return !matches!(
                reg,
                SpecialReg::Smid
                    | SpecialReg::CtaidX
                    | SpecialReg::NctaidX
                    | SpecialReg::ClusteridX
                    | SpecialReg::NclusteridX
            );
        }
        Inst::Warp(op) => return gathered(op, hands),
        Inst::Mem(op) => return reaches(op, hands),
        Inst::Copy(CopyOp::CpAsync { filled, bytes, .. }) => {
            let count = hands.choice(bytes.count() as usize + 1) as u32;
            *filled = filled.map(|_| word(count));
        }
        _ => {}
    }
    true
}

/// The lanes of the mask are those that are here.
fn gathered(op: &mut WarpOp, hands: &mut dyn Hands) -> bool {
    let Some(here) = hands.mask() else { return false };
    match op {
        WarpOp::Shfl { width, mask, .. } => {
            *width = word(1 << hands.choice(6));
            *mask = here;
            true
        }
        WarpOp::Vote { mask, .. }
        | WarpOp::Ballot { mask, .. }
        | WarpOp::MatchAny { mask, .. }
        | WarpOp::MatchAll { mask, .. }
        | WarpOp::Redux { mask, .. }
        | WarpOp::Elect { mask, .. }
        | WarpOp::SyncWarp { mask } => {
            *mask = here;
            true
        }
        WarpOp::ActiveMask { .. } => false,
    }
}

/// Policies are policies; the read-only path is for what is never written; vectors of eight.
fn reaches(op: &mut MemOp, hands: &mut dyn Hands) -> bool {
    match op {
        MemOp::Ld { ty, d, policy, cache, .. } => {
            *policy = policy.map(|_| hands.policy());
            if d.len() == 4 && ty.bits() == 16 && hands.choice(2) == 1 {
                d.extend([(); 4].map(|()| hands.value(*ty)));
            }
            !matches!(cache, LdCache::Nc | LdCache::NcNoAllocate) || hands.read_only()
        }
        MemOp::St { ty, v, policy, .. } => {
            *policy = policy.map(|_| hands.policy());
            if v.len() == 4 && ty.bits() == 16 && hands.choice(2) == 1 {
                v.extend([(); 4].map(|()| hands.any(*ty)));
            }
            true
        }
        MemOp::Atom { .. }
        | MemOp::Cas { .. }
        | MemOp::Red { .. }
        | MemOp::PrefetchL2 { .. }
        | MemOp::CreatePolicy { .. } => true,
    }
}

/// Rows whose result is the same whatever the payload of a NaN among their operands, or as open
/// itself.
pub fn takes_any_nan(row: &InstRow) -> bool {
    matches!(row.mnemonic, "add" | "sub" | "mul" | "fma" | "setp" | "neg" | "abs")
}

/// Whether the IR leaves the payload of a NaN result open.
fn leaves_payload(inst: &Inst) -> bool {
    match inst {
        Inst::Arith(
            ArithOp::Neg { ty, .. } | ArithOp::Abs { ty, .. } | ArithOp::Min { ty, .. } | ArithOp::Max { ty, .. },
        ) => ty.is_float(),
        Inst::Arith(
            ArithOp::Add { ty, .. }
            | ArithOp::Sub { ty, .. }
            | ArithOp::Mul { ty, .. }
            | ArithOp::Fma { ty, .. }
            | ArithOp::DivRn { ty, .. }
            | ArithOp::SqrtRn { ty, .. }
            | ArithOp::RcpRn { ty, .. },
        ) => *ty == Ty::F64,
        Inst::Convert(ConvertOp::Cvt { ty, from, .. }) => {
            let single = matches!(ty, Ty::F32 | Ty::F64) && (*ty, *from) != (Ty::F32, Ty::BF16);
            from.is_float() && ty.is_float() && (single || *from == Ty::F64)
        }
        Inst::Convert(ConvertOp::RoundInt { .. }) => true,
        _ => false,
    }
}

/// The name by which results are counted: the row with types and attributes.
pub fn label(inst: &Inst) -> String {
    let mut out = inst.row().mnemonic.to_string();
    for part in inst.suffixes().iter().map(|s| s.trim().to_string()).chain(inst.args().iter().map(Ty::to_string)) {
        out.push('.');
        out.push_str(&part);
    }
    out
}

impl Gen<'_> {
    /// Draws an instruction of the row, appends it and keeps its results.
    pub fn compute(&mut self, row: &'static InstRow) {
        if let Some(inst) = draw(self, row, Site::Own) {
            self.add(inst);
        }
    }

    /// Appends an instruction and keeps its results.
    pub fn add(&mut self, inst: Inst) {
        let label = label(&inst);
        let defs = inst.defs();
        if self.operands_too {
            for operand in inst.uses() {
                if let Some(ty) = self.kernel.type_of(operand) {
                    self.observe(operand, ty, "operand", None);
                }
            }
        }
        self.emit(inst.clone());
        if inst.is(Flag::Approx) {
            return self.approximate(&inst, &label, defs[0]);
        }
        for d in defs {
            let ty = self.kernel.values[d.index()];
            self.settle(d, ty, leaves_payload(&inst), &label);
        }
    }

    /// A result within a bound: it is seen beside its operands, and not used.
    fn approximate(&mut self, inst: &Inst, label: &str, d: ValueId) {
        let ty = self.kernel.values[d.index()];
        let uses = inst.uses();
        if !self.has_slots(uses.len() + 1) {
            return;
        }
        let count = uses.len() as u32;
        for operand in uses {
            self.observe(operand, ty, "operand", None);
        }
        self.observe(d.into(), ty, label, Some((inst.row().mnemonic, count)));
    }

    /// A result: its NaNs made canonical where the IR leaves their payload open, observed, ready
    /// for use.
    pub fn settle(&mut self, d: ValueId, ty: Ty, open: bool, label: &str) {
        let settled = if open {
            self.keep_loose(d, ty);
            self.canonical(d.into(), ty)
        } else {
            d.into()
        };
        if let Some(value) = settled.as_value() {
            self.keep(value, ty);
        }
        let watch = self.watch;
        if self.rng.percent(watch) {
            self.observe(settled, ty, label, None);
        }
    }

    /// Replaces a NaN by the canonical one.
    fn canonical(&mut self, value: Operand, ty: Ty) -> Operand {
        let part = match ty {
            Ty::F16x2 => Ty::F16,
            Ty::BF16x2 => Ty::BF16,
            _ => {
                let nan: Operand = Const::new(ty, (1 << (ty.bits() - 1)) - 1).into();
                let p = self.made(Ty::Pred, |d| ArithOp::Setp { ty, d, a: value, b: value, cmp: Cmp::Nan });
                return self.made(ty, |d| ArithOp::Select { ty, d, a: nan, b: value, p });
            }
        };
        let parts = vec![self.def(part), self.def(part)];
        self.emit(ConvertOp::Unpack { ty: part, from: ty, parts: parts.clone(), a: value });
        let parts = parts.into_iter().map(|half| self.canonical(half.into(), part)).collect();
        self.made(ty, |d| ConvertOp::Pack { ty, from: part, d, parts })
    }

    /// The operand with its lowest bit set.
    pub fn nonzero(&mut self, ty: Ty, operand: Operand) -> Operand {
        match operand {
            Operand::Const(value) => Const::new(ty, value.bits | 1).into(),
            Operand::Value(_) => {
                let b = Const::new(ty, 1).into();
                self.made(ty, |d| BitsOp::Or { ty, d, a: operand, b })
            }
        }
    }

    /// The 16 bits of the operand, with some of the input flipped.
    pub fn unknown(&mut self, operand: Operand) -> Operand {
        let ty = Ty::U16;
        let at = Addr { base: self.base.input, offset: 0 };
        let d = self.def(Ty::U16);
        let order = LdOrder::Weak;
        let cache = LdCache::Default;
        let prefetch = Prefetch::None;
        self.emit(MemOp::Ld { ty, d: vec![d], at, policy: None, order, cache, prefetch });
        self.made(ty, |result| BitsOp::Xor { ty, d: result, a: operand, b: d.into() })
    }

    /// An integer that has a negative: the operand, or the next where it is the least.
    pub fn negatable(&mut self, ty: Ty, operand: Operand) -> Operand {
        let least = 1u64 << (ty.bits() - 1);
        match operand {
            Operand::Const(value) if value.bits == least => Const::new(ty, least + 1).into(),
            Operand::Const(_) => operand,
            Operand::Value(_) => {
                let b = Const::new(ty, least + 1).into();
                self.made(ty, |d| ArithOp::Max { ty, d, a: operand, b })
            }
        }
    }

    /// Position and length of a field in a register of `bits` bits.
    pub fn field(&mut self, width: u32) -> (Operand, Operand) {
        if self.rng.percent(40) {
            let pos = self.rng.below(width as usize + 1) as u32;
            let len = self.rng.below((width - pos) as usize + 1) as u32;
            return (word(pos), word(len));
        }
        let below_half = word(width / 2 - 1);
        let mut part = || {
            let a = self.operand(Ty::U32);
            self.made(Ty::U32, |d| BitsOp::And { ty: Ty::U32, d, a, b: below_half })
        };
        (part(), part())
    }

    /// A number that mostly is a position in a register.
    pub fn position(&mut self, operand: Operand) -> Operand {
        match self.rng.below(4) {
            0 => operand,
            1 => word(self.rng.below(70) as u32),
            _ => {
                let a = self.operand(Ty::U32);
                let b = word(63);
                self.made(Ty::U32, |d| BitsOp::And { ty: Ty::U32, d, a, b })
            }
        }
    }
}
