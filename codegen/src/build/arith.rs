//! Arithmetic: operators on values and the functions that have no operator.

use super::val::{Float, Half, Integer, Logic, Number, Ordered, Real, Signed, Word};
use super::{Builder, IntoVal, Scalar, Val, Var};
use crate::ir::attr::Cmp;
use crate::ir::{ArithOp, BitsOp, Const, Operand, Ty};
use core::ops::{
    Add, AddAssign, BitAnd, BitAndAssign, BitOr, BitOrAssign, BitXor, BitXorAssign, Div, DivAssign, Mul, MulAssign,
    Neg, Rem, RemAssign, Shl, Shr, Sub, SubAssign,
};
use half::{bf16, f16};

/// An operator with a literal as its first operand.
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
        impl<'k, T: $Class, R: IntoVal<'k, T>> $Trait<R> for Val<'k, T> {
            type Output = Val<'k, T>;

            #[track_caller]
            fn $method(self, other: R) -> Val<'k, T> {
                let a = self.op;
                let b = other.val(self.k).op;
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

/// Numbers that divide by `/`.
pub trait Quotient: Number {
    /// `a / b`, as Rust's own numbers have it.
    #[track_caller]
    fn quotient<'k>(a: Val<'k, Self>, b: Val<'k, Self>) -> Val<'k, Self>;
}

macro_rules! quotients {
    (integers $($Int:ty),+; correctly rounded $($Real:ty),+; by f32 $($Half:ty),+) => {
        $(impl Quotient for $Int {
            /// Toward zero. By an unsigned power of two it is a shift, which the assembler does not
            /// always find.
            #[track_caller]
            fn quotient<'k>(a: Val<'k, $Int>, b: Val<'k, $Int>) -> Val<'k, $Int> {
                match power_of_two(b.op).filter(|_| a.op.as_const().is_none()) {
                    Some(exponent) => a.shifted(exponent),
                    None => Val::new(a.k, a.k.value(<$Int>::TY, |d| ArithOp::Div { ty: <$Int>::TY, d, a: a.op, b: b.op })),
                }
            }
        })+
        $(impl Quotient for $Real {
            /// Correctly rounded; [`Val::div_approx`] is faster.
            #[track_caller]
            fn quotient<'k>(a: Val<'k, $Real>, b: Val<'k, $Real>) -> Val<'k, $Real> {
                a.div_rn(b)
            }
        })+
        $(impl Quotient for $Half {
            /// Correctly rounded: `f32` has more than twice as many bits, so that rounding twice
            /// changes nothing.
            #[track_caller]
            fn quotient<'k>(a: Val<'k, $Half>, b: Val<'k, $Half>) -> Val<'k, $Half> {
                a.cast::<f32>().div_rn(b.cast::<f32>()).cast()
            }
        })+
    };
}

quotients!(integers u16, i16, u32, i32, u64, i64; correctly rounded f32, f64; by f32 f16, bf16);

impl<'k, T: Quotient, R: IntoVal<'k, T>> Div<R> for Val<'k, T> {
    type Output = Val<'k, T>;

    #[track_caller]
    fn div(self, other: R) -> Val<'k, T> {
        T::quotient(self, other.val(self.k))
    }
}

literals! { Div div for u16, i16, u32, i32, u64, i64, f16, bf16, f32, f64 }

/// The rest of a division. Of an unsigned number by a power of two it is a mask.
impl<'k, T: Integer, R: IntoVal<'k, T>> Rem<R> for Val<'k, T> {
    type Output = Val<'k, T>;

    #[track_caller]
    fn rem(self, other: R) -> Val<'k, T> {
        let a = self.op;
        let b = other.val(self.k).op;
        if let Some(exponent) = power_of_two(b).filter(|_| a.as_const().is_none()) {
            return self.masked(exponent);
        }
        Val::new(self.k, self.k.value(T::TY, |d| ArithOp::Rem { ty: T::TY, d, a, b }))
    }
}

literals! { Rem rem for u16, i16, u32, i32, u64, i64 }
literals! { BitAnd bitand for bool, u16, i16, u32, i32, u64, i64 }
literals! { BitOr bitor for bool, u16, i16, u32, i32, u64, i64 }
literals! { BitXor bitxor for bool, u16, i16, u32, i32, u64, i64 }
literals! { Shl shl for u32 }
literals! { Shr shr for u32 }

/// Operators that assign to a Rust variable, and operators on a register's value.
macro_rules! further {
    ($($Trait:ident $method:ident $Assign:ident $assign:ident $Class:ident;)+) => { $(
        impl<'k, T: $Class, R: IntoVal<'k, T>> $Assign<R> for Val<'k, T> {
            #[track_caller]
            fn $assign(&mut self, other: R) {
                *self = (*self).$method(other);
            }
        }

        impl<'k, T: $Class, R: IntoVal<'k, T>> $Trait<R> for Var<'k, T> {
            type Output = Val<'k, T>;

            #[track_caller]
            fn $method(self, other: R) -> Val<'k, T> {
                self.get().$method(other)
            }
        }
    )+ };
}

further! {
    Add add AddAssign add_assign Number;
    Sub sub SubAssign sub_assign Number;
    Mul mul MulAssign mul_assign Number;
    Div div DivAssign div_assign Quotient;
    Rem rem RemAssign rem_assign Integer;
    BitAnd bitand BitAndAssign bitand_assign Logic;
    BitOr bitor BitOrAssign bitor_assign Logic;
    BitXor bitxor BitXorAssign bitxor_assign Logic;
}

/// The exponent of an unsigned constant above 1 that is a power of two.
fn power_of_two(operand: Operand) -> Option<u32> {
    let constant = operand.as_const().filter(|c| !c.ty.is_signed() && c.bits > 1 && c.bits.is_power_of_two())?;
    Some(constant.bits.trailing_zeros())
}

impl<'k, T: Integer> Val<'k, T> {
    #[track_caller]
    fn shifted(self, bits: u32) -> Val<'k, T> {
        let a = self.op;
        let n = Const::u32(bits).into();
        Val::new(self.k, self.k.value(T::TY, |d| BitsOp::Shr { ty: T::TY, d, a, n }))
    }

    #[track_caller]
    fn masked(self, bits: u32) -> Val<'k, T> {
        let a = self.op;
        let b = Const::new(T::TY, (1 << bits) - 1).into();
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
            pub fn $method(self, other: impl IntoVal<'k, T>) -> Val<'k, T> {
                let a = self.op;
                let b = other.val(self.k).op;
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

            /// The quotient, within 2.5 ulp for divisors of magnitude 2⁻¹²⁶ to 2¹²⁶.
            #[track_caller]
            pub fn div_approx(self, other: impl IntoVal<'k, f32>) -> Val<'k, f32> {
                let a = self.op;
                let b = other.val(self.k).op;
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
    pub fn mad(self, b: impl IntoVal<'k, T>, c: impl IntoVal<'k, T>) -> Val<'k, T> {
        let a = self.op;
        let b = b.val(self.k).op;
        let c = c.val(self.k).op;
        Val::new(self.k, self.k.value(T::TY, |d| ArithOp::Mad { ty: T::TY, d, a, b, c }))
    }
}

impl<'k, T: Float> Val<'k, T> {
    /// `self · b + c` with one rounding.
    #[track_caller]
    pub fn fma(self, b: impl IntoVal<'k, T>, c: impl IntoVal<'k, T>) -> Val<'k, T> {
        let a = self.op;
        let b = b.val(self.k).op;
        let c = c.val(self.k).op;
        Val::new(self.k, self.k.value(T::TY, |d| ArithOp::Fma { ty: T::TY, d, a, b, c }))
    }
}

impl<'k, T: Word> Val<'k, T> {
    /// `c` plus the products of the four bytes of `self` and `b`.
    #[track_caller]
    pub fn dp4a(self, b: impl IntoVal<'k, T>, c: impl IntoVal<'k, T>) -> Val<'k, T> {
        let a = self.op;
        let b = b.val(self.k).op;
        let c = c.val(self.k).op;
        Val::new(self.k, self.k.value(T::TY, |d| ArithOp::Dp4a { ty: T::TY, d, a, b, c }))
    }
}

macro_rules! widening {
    ($($From:ty => $To:ty),+) => { $(
        impl<'k> Val<'k, $From> {
            /// The full product, of twice the width.
            #[track_caller]
            pub fn mul_wide(self, other: impl IntoVal<'k, $From>) -> Val<'k, $To> {
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
    pub fn compare(self, cmp: Cmp, other: impl IntoVal<'k, T>) -> Val<'k, bool> {
        let a = self.op;
        let b = other.val(self.k).op;
        Val::new(self.k, self.k.value(Ty::Pred, |d| ArithOp::Setp { ty: T::TY, d, a, b, cmp }))
    }

    /// Whether they are equal; a NaN equals nothing.
    #[track_caller]
    pub fn eq(self, other: impl IntoVal<'k, T>) -> Val<'k, bool> {
        self.compare(Cmp::Eq, other)
    }

    /// Whether they differ; a NaN differs from everything.
    #[track_caller]
    pub fn ne(self, other: impl IntoVal<'k, T>) -> Val<'k, bool> {
        self.compare(if T::TY.is_float() { Cmp::Neu } else { Cmp::Ne }, other)
    }

    /// Whether it is less.
    #[track_caller]
    pub fn lt(self, other: impl IntoVal<'k, T>) -> Val<'k, bool> {
        self.compare(Cmp::Lt, other)
    }

    /// Whether it is at most the other.
    #[track_caller]
    pub fn le(self, other: impl IntoVal<'k, T>) -> Val<'k, bool> {
        self.compare(Cmp::Le, other)
    }

    /// Whether it is greater.
    #[track_caller]
    pub fn gt(self, other: impl IntoVal<'k, T>) -> Val<'k, bool> {
        self.compare(Cmp::Gt, other)
    }

    /// Whether it is at least the other.
    #[track_caller]
    pub fn ge(self, other: impl IntoVal<'k, T>) -> Val<'k, bool> {
        self.compare(Cmp::Ge, other)
    }
}

impl<'k> Val<'k, bool> {
    /// `a` where it is true, `b` where it is false.
    #[track_caller]
    pub fn select<T: Scalar>(self, a: impl IntoVal<'k, T>, b: impl IntoVal<'k, T>) -> Val<'k, T> {
        let p = self.op;
        let a = a.val(self.k).op;
        let b = b.val(self.k).op;
        Val::new(self.k, self.k.value(T::TY, |d| ArithOp::Select { ty: T::TY, d, a, b, p }))
    }
}

impl Builder {
    /// A literal as a value.
    pub fn lit<T: Scalar>(&self, value: T) -> Val<'_, T> {
        Val::new(self, value.constant().into())
    }
}
