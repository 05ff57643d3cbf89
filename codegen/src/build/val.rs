//! Typed values: `Val` with its operators, the Rust types that stand for IR types, literals as
//! arguments.

use super::Builder;
use crate::ir::{Const, Operand, Ty};
use core::marker::PhantomData;
use half::{bf16, f16};

/// A value of the kernel that is being recorded, different in every thread. Operators and methods
/// record instructions.
///
/// `T` is the Rust type of the number: `u32`, `f32`, `half::bf16`, `bool` and so on. A value is
/// written once and is `Copy`; a register that changes is a [`Var`](super::Var). Literals may be
/// used wherever values may.
///
/// | Rust | kernel |
/// |---|---|
/// | `a + b`, `a - b`, `a * b`, `a / b`, `a % b`, `-a` | as written; integers wrap, float division is correctly rounded |
/// | `a & b`, `a \| b`, `a ^ b`, `!a`, `a << n`, `a >> n` | as written, `&` and `\|` on conditions too |
/// | `a == b`, `a < b`, … | [`a.eq(b)`](Val::eq), [`a.lt(b)`](Val::lt), `ne`, `le`, `gt`, `ge` |
/// | `if c { a } else { b }` | [`c.select(a, b)`](Val::select) |
/// | `a as U` | [`a.cast::<U>()`](Val::cast), of a condition [`a.as_number::<U>()`](Val::as_number) |
/// | `f32::from_bits(a)` | [`a.bits::<f32>()`](Val::bits) |
/// | `a.mul_add(b, c)` | [`a.fma(b, c)`](Val::fma) |
/// | `let mut a = 0.0; a += b` | `let a = k.var(0.0f32)`; `a.update(\|a\| a + b)` |
///
/// ```
/// # use tilewright_codegen::{build::{block, record}, ir::Arch};
/// # record("sample", Arch::Sm80, block(32), |k| {
/// let i = k.tid() * 2 + 1;
/// let near = i.lt(10) & i.ge(4);
/// let weight = near.select(1.0f32, 0.5f32) / 3.0;
/// k.when(near, || k.global::<f32>("out").at(i).store(weight * i.cast::<f32>()));
/// # });
/// ```
///
/// A value is visible to the end of the loop body or branch that records it. Using it later is an
/// error of `verify`: keep it in a register ([`Builder::var`]) or carry it ([`Builder::carry`]).
pub struct Val<'k, T> {
    pub(super) k: &'k Builder,
    pub(super) op: Operand,
    of: PhantomData<T>,
}

impl<T> Clone for Val<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Val<'_, T> {}

impl<'k, T: Scalar> Val<'k, T> {
    pub(super) fn new(k: &'k Builder, op: Operand) -> Val<'k, T> {
        Val { k, op, of: PhantomData }
    }

    /// The recorder that it belongs to.
    pub fn builder(self) -> &'k Builder {
        self.k
    }

    /// The operand that the recorded kernel names it by.
    pub fn operand(self) -> Operand {
        self.op
    }
}

/// Two `f16` in one register.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct F16x2(pub f16, pub f16);

/// Two `bf16` in one register.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bf16x2(pub bf16, pub bf16);

/// A Rust type that stands for a type of the IR.
pub trait Scalar: Copy + 'static {
    /// The type it stands for.
    const TY: Ty;

    /// A constant of the type.
    fn constant(self) -> Const;
}

macro_rules! scalars {
    ($($Rust:ty, $Ty:ident, $value:ident => $bits:expr;)+) => { $(
        impl Scalar for $Rust {
            const TY: Ty = Ty::$Ty;

            fn constant(self) -> Const {
                let $value = self;
                Const::new(Ty::$Ty, $bits)
            }
        }

        impl<'k> IntoVal<'k, $Rust> for $Rust {
            fn val(self, k: &'k Builder) -> Val<'k, $Rust> {
                Val::new(k, self.constant().into())
            }
        }
    )+ };
}

scalars! {
    bool, Pred, v => u64::from(v);
    u8, U8, v => u64::from(v);
    i8, S8, v => v as u64;
    u16, U16, v => u64::from(v);
    i16, S16, v => v as u64;
    u32, U32, v => u64::from(v);
    i32, S32, v => v as u64;
    u64, U64, v => v;
    i64, S64, v => v as u64;
    f16, F16, v => u64::from(v.to_bits());
    bf16, BF16, v => u64::from(v.to_bits());
    f32, F32, v => u64::from(v.to_bits());
    f64, F64, v => v.to_bits();
    F16x2, F16x2, v => u64::from(v.0.to_bits()) | u64::from(v.1.to_bits()) << 16;
    Bf16x2, BF16x2, v => u64::from(v.0.to_bits()) | u64::from(v.1.to_bits()) << 16;
}

/// A number that is known while recording, such as a length: `u32`, `usize` or `i32`.
pub trait Count {
    /// The number; the nearest where a `u32` does not hold it.
    fn count(self) -> u32;
}

impl Count for u32 {
    fn count(self) -> u32 {
        self
    }
}

impl Count for usize {
    fn count(self) -> u32 {
        u32::try_from(self).unwrap_or(u32::MAX)
    }
}

impl Count for i32 {
    fn count(self) -> u32 {
        self.max(0) as u32
    }
}

/// A type that converts to a value of type `T`: a value, a literal, a register that is read.
pub trait IntoVal<'k, T: Scalar> {
    /// The value.
    fn val(self, k: &'k Builder) -> Val<'k, T>;
}

impl<'k, T: Scalar> IntoVal<'k, T> for Val<'k, T> {
    fn val(self, _: &'k Builder) -> Val<'k, T> {
        self
    }
}

macro_rules! marker {
    ($($(#[$doc:meta])+ $Name:ident: $($Rust:ty),+;)+) => { $(
        $(#[$doc])+
        pub trait $Name: Scalar {}
        $(impl $Name for $Rust {})+
    )+ };
}

marker! {
    /// Numbers that add and multiply.
    Number: u16, i16, u32, i32, u64, i64, f16, bf16, F16x2, Bf16x2, f32, f64;
    /// Numbers with a sign.
    Signed: i16, i32, i64, f16, bf16, F16x2, Bf16x2, f32, f64;
    /// Integers that have arithmetic.
    Integer: u16, i16, u32, i32, u64, i64;
    /// Floating-point numbers and pairs.
    Float: f16, bf16, F16x2, Bf16x2, f32, f64;
    /// `f32` and `f64`.
    Real: f32, f64;
    /// The types that `ex2` and `tanh` accept.
    Half: f32, f16, F16x2, bf16, Bf16x2;
    /// The types that logic accepts.
    Logic: bool, u16, i16, u32, i32, u64, i64;
    /// The types that compare.
    Ordered: u16, i16, u32, i32, u64, i64, f16, bf16, f32, f64;
    /// The types that convert.
    Numeric: u8, i8, u16, i16, u32, i32, u64, i64, f16, bf16, f32, f64;
    /// Integers of 32 bits.
    Word: u32, i32;
    /// Integers of 32 and 64 bits, which count loops and find bits.
    Wide: u32, i32, u64, i64;
    /// Unsigned words whose bits are counted or moved.
    Raw: u32, u64;
    /// The types that shuffles move.
    Lane: u32, i32, f32, F16x2, Bf16x2;
    /// The types that atomic operations accept.
    Atomic: u32, i32, u64, f32, F16x2, Bf16x2;
    /// Pairs of 16-bit floats.
    Pair: F16x2, Bf16x2;
}
