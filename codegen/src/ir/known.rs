//! Known properties of values while a kernel is recorded: bits of integers and addresses, and the
//! allocation that an address points into.
//!
//! Known bits are a mask and their values. An address in shared memory is known by its low ten
//! bits, since the kernel's shared memory begins at a multiple of 1024. The values of parameters,
//! loads and registers are not known.

use super::attr::SpecialReg;
use super::{
    Addr, ArithOp, BitsOp, ConvertOp, Inst, Kernel, Operand, SharedAllocation, SharedId, StmtKind, Ty, ValueId, ValueOp,
};

/// The alignment of shared memory's address, less one.
const WINDOW: u64 = 1023;

/// A place in an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SharedAt {
    /// The allocation.
    pub alloc: SharedId,
    /// Bytes from its start, if that is a constant.
    pub offset: Option<i64>,
}

impl SharedAt {
    fn moved(self, by: Option<i64>) -> SharedAt {
        SharedAt { offset: self.offset.zip(by).and_then(|(a, b)| a.checked_add(b)), ..self }
    }
}

/// The known bits of a number of up to 64 bits, zero-extended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KnownBits {
    /// The bits that are known.
    pub mask: u64,
    /// Their values; zero elsewhere.
    pub value: u64,
    /// The location that it points to, for an address or its bits.
    pub place: Option<SharedAt>,
}

impl KnownBits {
    fn exactly(value: u64) -> KnownBits {
        KnownBits { mask: u64::MAX, value, place: None }
    }

    /// The number in a type: what lies above its width is zero, or follows a sign that is not.
    fn fit(self, ty: Ty) -> KnownBits {
        let width = low(ty.bits());
        let sign = 1 << (ty.bits() - 1);
        let filled = if ty.is_signed() && (self.mask & !self.value) & sign == 0 { 0 } else { !width };
        KnownBits { mask: self.mask & width | filled, value: self.value & width, place: self.place }
    }

    fn at(self, place: Option<SharedAt>) -> KnownBits {
        KnownBits { place, ..self }
    }

    /// The lowest bits of it that are known without a gap.
    fn run(self) -> u32 {
        self.mask.trailing_ones()
    }

    /// Bits of a sum are known where both operands' are and the carry is, whatever the unknown bits
    /// are.
    fn sum(self, other: KnownBits, carry: u64) -> KnownBits {
        let most = (self.value | !self.mask).wrapping_add(other.value | !other.mask).wrapping_add(carry);
        let least = self.value.wrapping_add(other.value).wrapping_add(carry);
        let no_carry = !(most ^ (self.value | !self.mask) ^ (other.value | !other.mask));
        let carries = least ^ self.value ^ other.value;
        let mask = self.mask & other.mask & (no_carry | carries);
        KnownBits { mask, value: least & mask, place: None }
    }

    fn add(self, other: KnownBits) -> KnownBits {
        let place = match (self.place, other.place) {
            (Some(place), None) => Some(place.moved(other.constant())),
            (None, Some(place)) => Some(place.moved(self.constant())),
            _ => None,
        };
        self.sum(other, 0).at(place)
    }

    fn sub(self, other: KnownBits) -> KnownBits {
        let negated = KnownBits { mask: other.mask, value: !other.value & other.mask, place: None };
        let back = other.constant().map(i64::wrapping_neg);
        self.sum(negated, 1).at(self.place.filter(|_| other.place.is_none()).map(|place| place.moved(back)))
    }

    /// Low bits of a product of numbers of a width: (r + x·2ᵐ)(s + y·2ⁿ).
    fn mul(self, other: KnownBits, width: u32) -> KnownBits {
        let m = self.run().min(width);
        let n = other.run().min(width);
        let zeros = |known: KnownBits, run: u32| known.value.trailing_zeros().min(run);
        let mask = low((m + zeros(other, n)).min(n + zeros(self, m)));
        KnownBits { mask, value: self.value.wrapping_mul(other.value) & mask, place: None }
    }

    fn shifted(self, by: KnownBits, shift: impl Fn(u64, u32) -> u64, filled: impl Fn(u32) -> u64) -> KnownBits {
        match by.constant() {
            Some(n @ 0..64) => {
                let n = n as u32;
                KnownBits { mask: shift(self.mask, n) | filled(n), value: shift(self.value, n), place: None }
            }
            _ => KnownBits::default(),
        }
    }

    /// The bits known of both, for a value that is one of the two.
    fn either(self, other: KnownBits) -> KnownBits {
        let mask = self.mask & other.mask & !(self.value ^ other.value);
        KnownBits { mask, value: self.value & mask, place: self.place.filter(|_| self.place == other.place) }
    }

    fn constant(self) -> Option<i64> {
        (self.mask == u64::MAX).then_some(self.value as i64)
    }

    /// The value's lowest bits alone.
    pub fn narrowed(self, bits: u32) -> KnownBits {
        KnownBits { mask: self.mask | !low(bits), value: self.value & low(bits), place: None }
    }

    /// The number moved on by a distance.
    pub fn moved(self, by: i64) -> KnownBits {
        self.add(KnownBits::exactly(by as u64))
    }

    /// A power of two that divides it.
    pub fn multiple(self) -> u64 {
        1 << self.value.trailing_zeros().min(self.run()).min(63)
    }
}

/// A mask of `bits` low bits.
fn low(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// The known bits of each value of a kernel.
#[derive(Debug, Default)]
pub(crate) struct Knowledge {
    of: Vec<KnownBits>,
}

impl Knowledge {
    /// Learns from every statement of a kernel.
    pub fn of(kernel: &Kernel) -> Knowledge {
        let mut all = Knowledge::default();
        kernel.walk(&mut |stmt| {
            if let StmtKind::Inst(inst) = &stmt.op {
                all.learn(inst, &kernel.shared);
            }
        });
        all
    }

    /// Records the facts that an instruction implies about the value that it writes.
    pub fn learn(&mut self, inst: &Inst, shared: &[SharedAllocation]) {
        let known = match inst {
            Inst::Value(op) => self.value(op, shared),
            Inst::Arith(op) => self.arith(op),
            Inst::Bits(op) => self.bits(op),
            Inst::Convert(op) => self.convert(op),
            Inst::Mem(_) | Inst::Warp(_) | Inst::Sync(_) | Inst::Copy(_) | Inst::Mma(_) | Inst::Control(_) => None,
        };
        let Some((d, known)) = known else { return };
        if self.of.len() <= d.index() {
            self.of.resize(d.index() + 1, KnownBits::default());
        }
        self.of[d.index()] = known;
    }

    /// The known bits of an operand.
    pub fn operand(&self, operand: Operand) -> KnownBits {
        match operand {
            // Sign-extended: a distance may be negative.
            Operand::Const(constant) => KnownBits::exactly(constant.as_i64() as u64),
            Operand::Value(value) => self.of.get(value.index()).copied().unwrap_or_default(),
        }
    }

    /// The known bits of an address.
    pub fn addr(&self, addr: Addr) -> KnownBits {
        self.operand(addr.base).moved(addr.offset.into())
    }

    fn value(&self, op: &ValueOp, shared: &[SharedAllocation]) -> Option<(ValueId, KnownBits)> {
        match *op {
            ValueOp::Shared { d, alloc } => {
                let offset = u64::from(shared.get(alloc.index())?.offset);
                let place = Some(SharedAt { alloc, offset: Some(0) });
                Some((d, KnownBits { mask: WINDOW, value: offset & WINDOW, place }))
            }
            ValueOp::PtrAdd { ty, d, p, bytes, .. } => Some((d, self.operand(p).add(self.operand(bytes)).fit(ty))),
            // The rank of a block stands above the window.
            ValueOp::MapA { d, p, .. } => {
                let known = self.operand(p);
                Some((d, KnownBits { mask: known.mask & WINDOW, value: known.value & WINDOW, ..known }))
            }
            ValueOp::PtrBits { d, p: same, .. } | ValueOp::PtrFrom { d, bits: same, .. } => {
                Some((d, self.operand(same)))
            }
            ValueOp::Special { d, reg, .. } => {
                let is_thread = matches!(reg, SpecialReg::TidX | SpecialReg::TidY | SpecialReg::TidZ);
                let most = if is_thread { Some(1023) } else { (reg == SpecialReg::Laneid).then_some(31) };
                most.map(|most| (d, KnownBits { mask: !most, value: 0, place: None }))
            }
            ValueOp::Param { .. }
            | ValueOp::ParamPtr { .. }
            | ValueOp::Clock { .. }
            | ValueOp::Get { .. }
            | ValueOp::Set { .. } => None,
        }
    }

    fn arith(&self, op: &ArithOp) -> Option<(ValueId, KnownBits)> {
        let of = |operand| self.operand(operand);
        let integer = |ty: Ty, d, known: KnownBits| ty.is_int().then(|| (d, known.fit(ty)));
        match *op {
            ArithOp::Add { ty, d, a, b } => integer(ty, d, of(a).add(of(b))),
            ArithOp::Sub { ty, d, a, b } => integer(ty, d, of(a).sub(of(b))),
            ArithOp::Mul { ty, d, a, b } => integer(ty, d, of(a).mul(of(b), ty.bits())),
            ArithOp::MulWide { ty, d, a, b } => integer(ty.wide()?, d, of(a).mul(of(b), ty.bits())),
            ArithOp::Mad { ty, d, a, b, c } => integer(ty, d, of(a).mul(of(b), ty.bits()).add(of(c))),
            ArithOp::Min { ty, d, a, b } | ArithOp::Max { ty, d, a, b } => integer(ty, d, of(a).either(of(b))),
            ArithOp::Select { ty, d, a, b, .. } => Some((d, of(a).either(of(b)).fit(ty))),
            ArithOp::MulHi { .. }
            | ArithOp::Fma { .. }
            | ArithOp::Div { .. }
            | ArithOp::Rem { .. }
            | ArithOp::DivRn { .. }
            | ArithOp::SqrtRn { .. }
            | ArithOp::RcpRn { .. }
            | ArithOp::DivApprox { .. }
            | ArithOp::SqrtApprox { .. }
            | ArithOp::RcpApprox { .. }
            | ArithOp::RsqrtApprox { .. }
            | ArithOp::Ex2Approx { .. }
            | ArithOp::Lg2Approx { .. }
            | ArithOp::SinApprox { .. }
            | ArithOp::CosApprox { .. }
            | ArithOp::TanhApprox { .. }
            | ArithOp::Neg { .. }
            | ArithOp::Abs { .. }
            | ArithOp::Dp4a { .. }
            | ArithOp::Setp { .. } => None,
        }
    }

    fn bits(&self, op: &BitsOp) -> Option<(ValueId, KnownBits)> {
        let of = |operand| self.operand(operand);
        let pair = |a: KnownBits, b: KnownBits, mask: u64, value: u64| {
            // A bit cast keeps what it points to where only bits above the window are cut off.
            let cut = |known: KnownBits, by: KnownBits| {
                known.place.filter(|_| by.constant().is_some_and(|c| c & 0x3ffff == 0x3ffff))
            };
            KnownBits { mask, value: value & mask, place: cut(a, b).or(cut(b, a)) }
        };
        match *op {
            BitsOp::And { ty, d, a, b } => {
                let a = of(a);
                let b = of(b);
                let zero = |known: KnownBits| known.mask & !known.value;
                let mask = a.mask & b.mask | zero(a) | zero(b);
                Some((d, pair(a, b, mask, a.value & b.value).fit(ty)))
            }
            BitsOp::Or { ty, d, a, b } => {
                let a = of(a);
                let b = of(b);
                let value = a.value | b.value;
                Some((d, KnownBits { mask: a.mask & b.mask | value, value, place: None }.fit(ty)))
            }
            BitsOp::Xor { ty, d, a, b } => {
                let a = of(a);
                let b = of(b);
                let mask = a.mask & b.mask;
                Some((d, KnownBits { mask, value: (a.value ^ b.value) & mask, place: None }.fit(ty)))
            }
            BitsOp::Shl { ty, d, a, n } => Some((d, of(a).shifted(of(n), |x, n| x << n, low).fit(ty))),
            BitsOp::Shr { ty, d, a, n } if !ty.is_signed() => {
                Some((d, of(a).shifted(of(n), |x, n| x >> n, |n| !(u64::MAX >> n)).fit(ty)))
            }
            BitsOp::Shr { .. }
            | BitsOp::Not { .. }
            | BitsOp::Lop3 { .. }
            | BitsOp::ShfL { .. }
            | BitsOp::ShfR { .. }
            | BitsOp::Popc { .. }
            | BitsOp::Clz { .. }
            | BitsOp::Brev { .. }
            | BitsOp::Bfind { .. }
            | BitsOp::Bfe { .. }
            | BitsOp::Bfi { .. }
            | BitsOp::Prmt { .. } => None,
        }
    }

    fn convert(&self, op: &ConvertOp) -> Option<(ValueId, KnownBits)> {
        match *op {
            ConvertOp::Bitcast { ty, d, a, .. } => Some((d, self.operand(a).fit(ty))),
            ConvertOp::Cvt { ty, from, d, a, clamp: super::attr::Clamp::No, .. } if ty.is_int() && from.is_int() => {
                Some((d, self.operand(a).fit(ty)))
            }
            ConvertOp::Cvt { .. }
            | ConvertOp::RoundInt { .. }
            | ConvertOp::CvtPair { .. }
            | ConvertOp::CvtFp8 { .. }
            | ConvertOp::Fp8ToHalf { .. }
            | ConvertOp::CvtTf32 { .. }
            | ConvertOp::Pack { .. }
            | ConvertOp::Unpack { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A number of a type with some bits known.
    fn partly(ty: Ty) -> impl Strategy<Value = (u64, KnownBits)> {
        (any::<u64>(), any::<u64>(), 0u32..64).prop_map(move |(number, mask, run)| {
            let number = number & low(ty.bits());
            let mask = mask & mask.rotate_left(7) | low(run);
            (number, KnownBits { mask, value: number & mask, place: None }.fit(ty))
        })
    }

    proptest! {
        #[test]
        fn what_is_known_is_so((x, a) in partly(Ty::U32), (y, b) in partly(Ty::U32), n in 0u64..31) {
            let wrapped = |number: u64| number & low(32);
            let n_known = KnownBits::exactly(n);
            let cases = [
                ("add", a.add(b).fit(Ty::U32), wrapped(x.wrapping_add(y))),
                ("sub", a.sub(b).fit(Ty::U32), wrapped(x.wrapping_sub(y))),
                ("mul", a.mul(b, 32).fit(Ty::U32), wrapped(x.wrapping_mul(y))),
                ("wide", a.mul(b, 32).fit(Ty::U64), x.wrapping_mul(y)),
                ("shl", a.shifted(n_known, |x, n| x << n, low).fit(Ty::U32), wrapped(x << n)),
                ("shr", a.shifted(n_known, |x, n| x >> n, |n| !(u64::MAX >> n)).fit(Ty::U32), x >> n),
                ("either", a.either(b), x),
                ("other", a.either(b), y),
            ];
            for (name, known, number) in cases {
                prop_assert_eq!(number & known.mask, known.value, "{} of {:#x} {:?} and {:#x} {:?}", name, x, a, y, b);
                prop_assert_eq!(number % known.multiple(), 0);
            }
        }
    }

    #[test]
    fn a_carry_that_is_absorbed_leaves_what_lies_above_known() {
        // An address of a descriptor moved on by two: only its own field may change.
        let field = KnownBits { mask: !0x3fc0, value: 1 << 62, place: None };
        let moved = field.add(KnownBits::exactly(2));
        assert_eq!((moved.mask >> 16, moved.value >> 62, moved.value & 0x3f), (u64::MAX >> 16, 1, 2));
    }
}
