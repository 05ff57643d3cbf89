//! Conversions.

use super::val::{Numeric, Pair, Real};
use super::{Bf16x2, Builder, F16x2, IntoVal, Scalar, Val};
use crate::ir::attr::{Clamp, Fp8, Relu, Round};
use crate::ir::{ConvertOp, Ty};
use half::{bf16, f16};

/// The rounding that Rust's `as` implies: truncation to an integer, nearest even otherwise, none
/// where it is exact.
fn natural(ty: Ty, from: Ty) -> Round {
    match (from.is_float(), ty.is_float()) {
        (true, false) => Round::Zero,
        (false, true) => Round::Nearest,
        (true, true) if ty.bits() < from.bits() => Round::Nearest,
        (true, true) | (false, false) => Round::Exact,
    }
}

impl<'k, T: Numeric> Val<'k, T> {
    /// The number in another type: as Rust's `as` does, except that a NaN becomes
    /// 0x8000000000000000 in 64-bit integers.
    #[track_caller]
    pub fn cast<U: Numeric>(self) -> Val<'k, U> {
        if U::TY == T::TY {
            return Val::new(self.k, self.op);
        }
        self.cast_as(natural(U::TY, T::TY), Clamp::No)
    }

    /// The number in another type, with a rounding and clamping by name.
    #[track_caller]
    pub fn cast_as<U: Numeric>(self, round: Round, clamp: Clamp) -> Val<'k, U> {
        let ty = U::TY;
        let from = T::TY;
        let a = self.op;
        Val::new(self.k, self.k.value(ty, |d| ConvertOp::Cvt { ty, from, d, a, round, clamp }))
    }
}

impl<'k> Val<'k, bool> {
    /// 1 where it is true and 0 where it is false, as Rust's `as` converts a `bool`.
    #[track_caller]
    pub fn as_number<U: Numeric>(self) -> Val<'k, U> {
        self.select(1u32, 0u32).cast()
    }
}

impl<'k, T: Scalar> Val<'k, T> {
    /// Reinterprets the bits as another type of equal width.
    #[track_caller]
    pub fn bits<U: Scalar>(self) -> Val<'k, U> {
        let ty = U::TY;
        let from = T::TY;
        let a = self.op;
        Val::new(self.k, self.k.value(ty, |d| ConvertOp::Bitcast { ty, from, d, a }))
    }
}

impl<'k, T: Real> Val<'k, T> {
    /// The nearest integral value in a direction, as a float.
    #[track_caller]
    pub fn round(self, round: Round) -> Val<'k, T> {
        Val::new(self.k, self.k.value(T::TY, |d| ConvertOp::RoundInt { ty: T::TY, d, a: self.op, round }))
    }
}

impl<'k> Val<'k, f32> {
    /// Packs this in the low half and `hi` in the high half of a pair, rounded to nearest even.
    #[track_caller]
    pub fn pair<P: Pair>(self, hi: impl IntoVal<'k, f32>) -> Val<'k, P> {
        self.pair_as(hi, Relu::No)
    }

    /// Converts as [`Val::pair`] does, with negative results clamped to zero on request.
    #[track_caller]
    pub fn pair_as<P: Pair>(self, hi: impl IntoVal<'k, f32>, relu: Relu) -> Val<'k, P> {
        let lo = self.op;
        let hi = hi.val(self.k).op;
        Val::new(self.k, self.k.value(P::TY, |d| ConvertOp::CvtPair { ty: P::TY, d, lo, hi, relu }))
    }

    /// Packs this and `hi` as 8-bit floats in the low and the high byte.
    #[track_caller]
    pub fn pair_fp8(self, hi: impl IntoVal<'k, f32>, fp8: Fp8) -> Val<'k, u16> {
        let lo = self.op;
        let hi = hi.val(self.k).op;
        Val::new(self.k, self.k.value(Ty::U16, |d| ConvertOp::CvtFp8 { d, lo, hi, fp8 }))
    }

    /// Rounded to tf32, as bits.
    #[track_caller]
    pub fn tf32(self) -> Val<'k, u32> {
        Val::new(self.k, self.k.value(Ty::U32, |d| ConvertOp::CvtTf32 { d, a: self.op }))
    }
}

impl<'k> Val<'k, u16> {
    /// Converts two 8-bit floats to a pair of `f16`.
    #[track_caller]
    pub fn halves_of_fp8(self, fp8: Fp8) -> Val<'k, F16x2> {
        Val::new(self.k, self.k.value(Ty::F16x2, |d| ConvertOp::Fp8ToHalf { d, a: self.op, fp8 }))
    }
}

/// A type that is made of parts of another type, the first lowest.
pub trait CompositeScalar: Scalar {
    /// The parts' type.
    type Part: Scalar;
}

macro_rules! parts {
    ($($Whole:ty => $Part:ty),+) => { $(impl CompositeScalar for $Whole { type Part = $Part; })+ };
}

parts!(F16x2 => f16, Bf16x2 => bf16, u32 => u16, u64 => u32, f64 => u32);

impl<'k, T: CompositeScalar> Val<'k, T> {
    /// The low and the high part.
    #[track_caller]
    pub fn split(self) -> (Val<'k, T::Part>, Val<'k, T::Part>) {
        let ty = T::Part::TY;
        let from = T::TY;
        let a = self.op;
        let parts = self.k.values(&[ty; 2], |parts| ConvertOp::Unpack { ty, from, parts, a });
        (Val::new(self.k, parts[0]), Val::new(self.k, parts[1]))
    }
}

impl Builder {
    /// The value with these low and high parts.
    #[track_caller]
    pub fn join<'k, T: CompositeScalar>(
        &'k self,
        lo: impl IntoVal<'k, T::Part>,
        hi: impl IntoVal<'k, T::Part>,
    ) -> Val<'k, T> {
        let ty = T::TY;
        let from = T::Part::TY;
        let parts = [lo.val(self).op, hi.val(self).op];
        Val::new(self, self.value(ty, |d| ConvertOp::Pack { ty, from, d, parts: parts.to_vec() }))
    }
}
