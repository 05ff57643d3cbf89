//! Bits: logical operators, shifts, counts and fields.

use super::val::{Integer, Logic, Raw, Wide, Word};
use super::{IntoVal, Val};
use crate::ir::attr::Lut;
use crate::ir::{BitsOp, Ty};
use core::ops::{BitAnd, BitOr, BitXor, Not, Shl, Shr};

macro_rules! operators {
    ($($Trait:ident $method:ident $Row:ident;)+) => { $(
        impl<'k, T: Logic, R: IntoVal<'k, T>> $Trait<R> for Val<'k, T> {
            type Output = Val<'k, T>;

            #[track_caller]
            fn $method(self, other: R) -> Val<'k, T> {
                let a = self.op;
                let b = other.val(self.k).op;
                Val::new(self.k, self.k.value(T::TY, |d| BitsOp::$Row { ty: T::TY, d, a, b }))
            }
        }
    )+ };
}

operators! {
    BitAnd bitand And;
    BitOr bitor Or;
    BitXor bitxor Xor;
}

macro_rules! shifts {
    ($($Trait:ident $method:ident $Row:ident;)+) => { $(
        impl<'k, T: Integer, R: IntoVal<'k, u32>> $Trait<R> for Val<'k, T> {
            type Output = Val<'k, T>;

            #[track_caller]
            fn $method(self, bits: R) -> Val<'k, T> {
                let a = self.op;
                let n = bits.val(self.k).op;
                Val::new(self.k, self.k.value(T::TY, |d| BitsOp::$Row { ty: T::TY, d, a, n }))
            }
        }
    )+ };
}

shifts! {
    Shl shl Shl;
    Shr shr Shr;
}

impl<'k, T: Logic> Not for Val<'k, T> {
    type Output = Val<'k, T>;

    #[track_caller]
    fn not(self) -> Val<'k, T> {
        Val::new(self.k, self.k.value(T::TY, |d| BitsOp::Not { ty: T::TY, d, a: self.op }))
    }
}

macro_rules! counts {
    ($($(#[$doc:meta])+ $method:ident $Class:ident $Row:ident;)+) => { $(
        impl<'k, T: $Class> Val<'k, T> {
            $(#[$doc])+
            #[track_caller]
            pub fn $method(self) -> Val<'k, u32> {
                Val::new(self.k, self.k.value(Ty::U32, |d| BitsOp::$Row { ty: T::TY, d, a: self.op }))
            }
        }
    )+ };
}

counts! {
    /// The number of ones.
    popc Raw Popc;
    /// The number of zeros above the highest one.
    clz Raw Clz;
    /// The position of the highest bit that is not the sign's; all ones if there is none.
    bfind Wide Bfind;
}

impl<'k, T: Raw> Val<'k, T> {
    /// The bits in reverse order.
    #[track_caller]
    pub fn brev(self) -> Val<'k, T> {
        Val::new(self.k, self.k.value(T::TY, |d| BitsOp::Brev { ty: T::TY, d, a: self.op }))
    }

    /// `into` with `len` of its bits, from `pos` on, replaced by the low bits of this.
    #[track_caller]
    pub fn bfi(self, into: impl IntoVal<'k, T>, pos: impl IntoVal<'k, u32>, len: impl IntoVal<'k, u32>) -> Val<'k, T> {
        let a = self.op;
        let b = into.val(self.k).op;
        let pos = pos.val(self.k).op;
        let len = len.val(self.k).op;
        Val::new(self.k, self.k.value(T::TY, |d| BitsOp::Bfi { ty: T::TY, d, a, b, pos, len }))
    }
}

impl<'k, T: Wide> Val<'k, T> {
    /// The field of `len` bits from `pos` on, extended by the type's sign.
    #[track_caller]
    pub fn bfe(self, pos: impl IntoVal<'k, u32>, len: impl IntoVal<'k, u32>) -> Val<'k, T> {
        let a = self.op;
        let pos = pos.val(self.k).op;
        let len = len.val(self.k).op;
        Val::new(self.k, self.k.value(T::TY, |d| BitsOp::Bfe { ty: T::TY, d, a, pos, len }))
    }
}

impl<'k, T: Word> Val<'k, T> {
    /// Any function of three bits, by its truth table.
    #[track_caller]
    pub fn lop3(self, b: impl IntoVal<'k, T>, c: impl IntoVal<'k, T>, lut: u8) -> Val<'k, T> {
        let a = self.op;
        let b = b.val(self.k).op;
        let c = c.val(self.k).op;
        let lut = Lut(lut);
        Val::new(self.k, self.k.value(T::TY, |d| BitsOp::Lop3 { ty: T::TY, d, a, b, c, lut }))
    }
}

impl<'k> Val<'k, u32> {
    /// The high word of `(hi:self)` shifted left by `n` mod 32.
    #[track_caller]
    pub fn funnel_left(self, hi: impl IntoVal<'k, u32>, n: impl IntoVal<'k, u32>) -> Val<'k, u32> {
        let lo = self.op;
        let hi = hi.val(self.k).op;
        let n = n.val(self.k).op;
        Val::new(self.k, self.k.value(Ty::U32, |d| BitsOp::ShfL { d, lo, hi, n }))
    }

    /// The low word of `(hi:self)` shifted right by `n` mod 32.
    #[track_caller]
    pub fn funnel_right(self, hi: impl IntoVal<'k, u32>, n: impl IntoVal<'k, u32>) -> Val<'k, u32> {
        let lo = self.op;
        let hi = hi.val(self.k).op;
        let n = n.val(self.k).op;
        Val::new(self.k, self.k.value(Ty::U32, |d| BitsOp::ShfR { d, lo, hi, n }))
    }

    /// Four bytes chosen from `(b:self)` by the nibbles of `selector`.
    #[track_caller]
    pub fn prmt(self, b: impl IntoVal<'k, u32>, selector: impl IntoVal<'k, u32>) -> Val<'k, u32> {
        let a = self.op;
        let b = b.val(self.k).op;
        let sel = selector.val(self.k).op;
        Val::new(self.k, self.k.value(Ty::U32, |d| BitsOp::Prmt { d, a, b, sel }))
    }
}
