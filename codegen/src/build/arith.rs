//! Arithmetic: operators on values and the functions that have no operator.

use super::val::{Float, Half, Integer, Number, Ordered, Real, Signed, Word};
use super::{Arg, Builder, Scalar, Val};
use crate::ir::attr::Cmp;
use crate::ir::{ArithOp, BitsOp, Const, Operand, Ty};
use core::ops::{Add, Div, Mul, Neg, Rem, Sub};
use half::{bf16, f16};

/// The same operator with a literal as its first operand.
macro_rules! literals {
    ($Trait:ident $method:ident for $($Lit:ty),+) => { $(
        impl<'k> $Trait<Val<'k, $Lit>> for $Lit {
            type Output = Val<'k, $Lit>;

            #[track_caller]
            fn $method(self, other: Val<'k, $Lit>) -> Val<'k, $Lit> {
                self.val(other.k).$method(other)
            }
        }
    )+ };
}

macro_rules! operators {
    ($($Trait:ident $method:ident $Class:ident $Row:ident for [$($Lit:ty),+];)+) => { $(
        impl<'k, T: $Class, R: Arg<'k, T>> $Trait<R> for Val<'k, T> {
            type Output = Val<'k, T>;

            #[track_caller]
            fn $method(self, other: R) -> Val<'k, T> {
                let (a, b) = (self.op, other.val(self.k).op);
                Val::new(self.k, self.k.value(T::TY, |d| ArithOp::$Row { ty: T::TY, d, a, b }))
            }
        }

        literals! { $Trait $method for $($Lit),+ }
    )+ };
}

operators! {
    Add add Number Add for [u16, i16, u32, i32, u64, i64, f16, bf16, f32, f64];
    Sub sub Number Sub for [u16, i16, u32, i32, u64, i64, f16, bf16, f32, f64];
    Mul mul Number Mul for [u16, i16, u32, i32, u64, i64, f16, bf16, f32, f64];
}

/// Quotients and rests. Of an unsigned number by a power of two they are a shift and a mask: the assembler does not see
/// that everywhere.
macro_rules! quotients {
    ($($Trait:ident $method:ident ($name:ident) $simple:ident for [$($Lit:ty),+];)+) => { $(
        impl<'k, T: Integer, R: Arg<'k, T>> $Trait<R> for Val<'k, T> {
            type Output = Val<'k, T>;

            #[track_caller]
            fn $method(self, other: R) -> Val<'k, T> {
                let (a, b) = (self.op, other.val(self.k).op);
                if let Some(exponent) = power_of_two(b).filter(|_| a.as_const().is_none()) {
                    return self.$simple(exponent);
                }
                Val::new(self.k, self.k.value(T::TY, |d| ArithOp::$name { ty: T::TY, d, a, b }))
            }
        }

        literals! { $Trait $method for $($Lit),+ }
    )+ };
}

quotients! {
    Div div (Div) shifted for [u16, i16, u32, i32, u64, i64];
    Rem rem (Rem) masked for [u16, i16, u32, i32, u64, i64];
}

/// The exponent of an unsigned constant above 1 that is a power of two.
fn power_of_two(operand: Operand) -> Option<u32> {
    let constant = operand.as_const().filter(|c| !c.ty.is_signed() && c.bits > 1 && c.bits.is_power_of_two())?;
    Some(constant.bits.trailing_zeros())
}

impl<'k, T: Integer> Val<'k, T> {
    #[track_caller]
    fn shifted(self, bits: u32) -> Val<'k, T> {
        let (a, n) = (self.op, Const::u32(bits).into());
        Val::new(self.k, self.k.value(T::TY, |d| BitsOp::Shr { ty: T::TY, d, a, n }))
    }

    #[track_caller]
    fn masked(self, bits: u32) -> Val<'k, T> {
        let (a, b) = (self.op, Const::new(T::TY, (1 << bits) - 1).into());
        Val::new(self.k, self.k.value(T::TY, |d| BitsOp::And { ty: T::TY, d, a, b }))
    }
}

impl<'k, T: Signed> Neg for Val<'k, T> {
    type Output = Val<'k, T>;

    #[track_caller]
    fn neg(self) -> Val<'k, T> {
        Val::new(self.k, self.k.value(T::TY, |d| ArithOp::Neg { ty: T::TY, d, a: self.op }))
    }
}

macro_rules! unary {
    ($($(#[$doc:meta])+ $method:ident $Class:ident $Row:ident;)+) => { $(
        impl<'k, T: $Class> Val<'k, T> {
            $(#[$doc])+
            #[track_caller]
            pub fn $method(self) -> Val<'k, T> {
                Val::new(self.k, self.k.value(T::TY, |d| ArithOp::$Row { ty: T::TY, d, a: self.op }))
            }
        }
    )+ };
}

macro_rules! binary {
    ($($(#[$doc:meta])+ $method:ident $Class:ident $Row:ident;)+) => { $(
        impl<'k, T: $Class> Val<'k, T> {
            $(#[$doc])+
            #[track_caller]
            pub fn $method(self, other: impl Arg<'k, T>) -> Val<'k, T> {
                let (a, b) = (self.op, other.val(self.k).op);
                Val::new(self.k, self.k.value(T::TY, |d| ArithOp::$Row { ty: T::TY, d, a, b }))
            }
        }
    )+ };
}

unary! {
    /// The absolute value.
    abs Signed Abs;
    /// The square root, correctly rounded.
    sqrt Real SqrtRn;
    /// The reciprocal, correctly rounded.
    recip Real RcpRn;
    /// 2 to this power, approximately.
    ex2 Half Ex2Approx;
    /// The hyperbolic tangent, approximately.
    tanh Half TanhApprox;
}

binary! {
    /// The quotient, correctly rounded.
    div_rn Real DivRn;
    /// The lesser; of a number and a NaN, the number.
    min Number Min;
    /// The greater; of a number and a NaN, the number.
    max Number Max;
    /// The high half of the product.
    mul_hi Integer MulHi;
}

macro_rules! singles {
    ($($(#[$doc:meta])+ $method:ident $Row:ident;)+) => {
        impl<'k> Val<'k, f32> {
            $($(#[$doc])+
            #[track_caller]
            pub fn $method(self) -> Val<'k, f32> {
                Val::new(self.k, self.k.value(Ty::F32, |d| ArithOp::$Row { ty: Ty::F32, d, a: self.op }))
            })+

            /// The quotient, within 2 ulp for divisors of usual size.
            #[track_caller]
            pub fn div_approx(self, other: impl Arg<'k, f32>) -> Val<'k, f32> {
                let (a, b) = (self.op, other.val(self.k).op);
                Val::new(self.k, self.k.value(Ty::F32, |d| ArithOp::DivApprox { ty: Ty::F32, d, a, b }))
            }
        }
    };
}

singles! {
    /// The square root, approximately.
    sqrt_approx SqrtApprox;
    /// The reciprocal, approximately.
    recip_approx RcpApprox;
    /// The reciprocal of the square root, approximately.
    rsqrt RsqrtApprox;
    /// The logarithm to base 2, approximately.
    lg2 Lg2Approx;
    /// The sine, approximately.
    sin SinApprox;
    /// The cosine, approximately.
    cos CosApprox;
}

impl<'k, T: Integer> Val<'k, T> {
    /// `self · b + c`, wrapping.
    #[track_caller]
    pub fn mad(self, b: impl Arg<'k, T>, c: impl Arg<'k, T>) -> Val<'k, T> {
        let (a, b, c) = (self.op, b.val(self.k).op, c.val(self.k).op);
        Val::new(self.k, self.k.value(T::TY, |d| ArithOp::Mad { ty: T::TY, d, a, b, c }))
    }
}

impl<'k, T: Float> Val<'k, T> {
    /// `self · b + c` with one rounding.
    #[track_caller]
    pub fn fma(self, b: impl Arg<'k, T>, c: impl Arg<'k, T>) -> Val<'k, T> {
        let (a, b, c) = (self.op, b.val(self.k).op, c.val(self.k).op);
        Val::new(self.k, self.k.value(T::TY, |d| ArithOp::Fma { ty: T::TY, d, a, b, c }))
    }
}

impl<'k, T: Word> Val<'k, T> {
    /// `c` plus the products of the four bytes of `self` and `b`.
    #[track_caller]
    pub fn dp4a(self, b: impl Arg<'k, T>, c: impl Arg<'k, T>) -> Val<'k, T> {
        let (a, b, c) = (self.op, b.val(self.k).op, c.val(self.k).op);
        Val::new(self.k, self.k.value(T::TY, |d| ArithOp::Dp4a { ty: T::TY, d, a, b, c }))
    }
}

macro_rules! widening {
    ($($From:ty => $To:ty),+) => { $(
        impl<'k> Val<'k, $From> {
            /// The full product, of twice the width.
            #[track_caller]
            pub fn mul_wide(self, other: impl Arg<'k, $From>) -> Val<'k, $To> {
                let (ty, a, b) = (<$From>::TY, self.op, other.val(self.k).op);
                Val::new(self.k, self.k.value(<$To>::TY, |d| ArithOp::MulWide { ty, d, a, b }))
            }
        }
    )+ };
}

widening!(u16 => u32, i16 => i32, u32 => u64, i32 => i64);

impl<'k, T: Ordered> Val<'k, T> {
    /// A comparison by name.
    #[track_caller]
    pub fn compare(self, cmp: Cmp, other: impl Arg<'k, T>) -> Val<'k, bool> {
        let (a, b) = (self.op, other.val(self.k).op);
        Val::new(self.k, self.k.value(Ty::Pred, |d| ArithOp::Setp { ty: T::TY, d, a, b, cmp }))
    }

    /// Whether they are equal; a NaN equals nothing.
    #[track_caller]
    pub fn eq(self, other: impl Arg<'k, T>) -> Val<'k, bool> {
        self.compare(Cmp::Eq, other)
    }

    /// Whether they differ; a NaN differs from everything.
    #[track_caller]
    pub fn ne(self, other: impl Arg<'k, T>) -> Val<'k, bool> {
        self.compare(if T::TY.is_float() { Cmp::Neu } else { Cmp::Ne }, other)
    }

    /// Whether it is less.
    #[track_caller]
    pub fn lt(self, other: impl Arg<'k, T>) -> Val<'k, bool> {
        self.compare(Cmp::Lt, other)
    }

    /// Whether it is at most the other.
    #[track_caller]
    pub fn le(self, other: impl Arg<'k, T>) -> Val<'k, bool> {
        self.compare(Cmp::Le, other)
    }

    /// Whether it is greater.
    #[track_caller]
    pub fn gt(self, other: impl Arg<'k, T>) -> Val<'k, bool> {
        self.compare(Cmp::Gt, other)
    }

    /// Whether it is at least the other.
    #[track_caller]
    pub fn ge(self, other: impl Arg<'k, T>) -> Val<'k, bool> {
        self.compare(Cmp::Ge, other)
    }
}

impl<'k> Val<'k, bool> {
    /// `a` where it is true, `b` where it is false.
    #[track_caller]
    pub fn select<T: Scalar>(self, a: impl Arg<'k, T>, b: impl Arg<'k, T>) -> Val<'k, T> {
        let (p, a, b) = (self.op, a.val(self.k).op, b.val(self.k).op);
        Val::new(self.k, self.k.value(T::TY, |d| ArithOp::Select { ty: T::TY, d, a, b, p }))
    }
}

impl Builder {
    /// A literal as a value.
    pub fn lit<T: Scalar>(&self, value: T) -> Val<'_, T> {
        Val::new(self, value.constant().into())
    }
}
