//! The methods and operators of a value that act on single elements.

use std::ops::{Add, Mul, Neg, Sub};
use std::panic::Location;

use tilewright_graph::rows::{Binary, Comparison, Elementwise, InnerAxis, Num, Unary};

use super::Value;
use crate::format::{ComputeFormat, FormatPair, Join, KnownFormat};

impl<'t, F: KnownFormat, P> Value<'t, F, P> {
    fn unary(self, unary: Unary, at: &'static Location<'static>) -> Value<'t, F::Out, P>
    where
        F: ComputeFormat,
    {
        self.function(Elementwise::Unary(unary), None, at)
    }

    fn binary<R>(
        self,
        binary: Binary,
        other: Value<'t, R, P>,
        at: &'static Location<'static>,
    ) -> Value<'t, <F as FormatPair<R>>::Out, P>
    where
        F: Join<R>,
    {
        self.function(Elementwise::Binary(binary), Some(other.id), at)
    }

    /// `x` where `x ≥ least`, else `below`.
    #[track_caller]
    pub fn relu(self, least: f64, below: f64) -> Value<'t, F::Out, P>
    where
        F: ComputeFormat,
    {
        self.unary(Unary::Relu(Num(least), Num(below)), Location::caller())
    }

    /// `1 / (1 + e^(factor·x + shift))`; the usual one has factor −1, shift 0.
    #[track_caller]
    pub fn sigmoid(self, factor: f64, shift: f64) -> Value<'t, F::Out, P>
    where
        F: ComputeFormat,
    {
        self.unary(Unary::Sigmoid(Num(shift), Num(factor)), Location::caller())
    }

    /// `x / (1 + e^(factor·x + shift))`; the usual one has factor −1, shift 0.
    #[track_caller]
    pub fn silu(self, factor: f64, shift: f64) -> Value<'t, F::Out, P>
    where
        F: ComputeFormat,
    {
        self.unary(Unary::Silu(Num(shift), Num(factor)), Location::caller())
    }

    /// `factor·x + shift`.
    #[track_caller]
    pub fn affine(self, factor: f64, shift: f64) -> Value<'t, F::Out, P>
    where
        F: ComputeFormat,
    {
        self.unary(Unary::Affine(Num(shift), Num(factor)), Location::caller())
    }

    /// The magnitude.
    #[track_caller]
    pub fn abs(self) -> Value<'t, F::Out, P>
    where
        F: ComputeFormat,
    {
        self.unary(Unary::Abs, Location::caller())
    }

    /// The natural logarithm.
    #[track_caller]
    pub fn ln(self) -> Value<'t, F::Out, P>
    where
        F: ComputeFormat,
    {
        self.unary(Unary::Log, Location::caller())
    }

    /// e to the power.
    #[track_caller]
    pub fn exp(self) -> Value<'t, F::Out, P>
    where
        F: ComputeFormat,
    {
        self.unary(Unary::Exp, Location::caller())
    }

    /// The larger of the two.
    #[track_caller]
    pub fn maximum<R>(self, other: Value<'t, R, P>) -> Value<'t, <F as FormatPair<R>>::Out, P>
    where
        F: Join<R>,
    {
        self.binary(Binary::Maximum, other, Location::caller())
    }

    /// The smaller of the two.
    #[track_caller]
    pub fn minimum<R>(self, other: Value<'t, R, P>) -> Value<'t, <F as FormatPair<R>>::Out, P>
    where
        F: Join<R>,
    {
        self.binary(Binary::Minimum, other, Location::caller())
    }

    /// `a·x + b·y`.
    #[track_caller]
    pub fn mix<R>(self, a: f64, other: Value<'t, R, P>, b: f64) -> Value<'t, <F as FormatPair<R>>::Out, P>
    where
        F: Join<R>,
    {
        self.binary(Binary::Add(Num(a), Num(b)), other, Location::caller())
    }

    /// 0 where `x` compares with `other`, −1e30 elsewhere: a term that shuts blocks out.
    #[track_caller]
    pub fn where_is<R>(self, comparison: Comparison, other: Value<'t, R, P>) -> Value<'t, <F as FormatPair<R>>::Out, P>
    where
        F: Join<R>,
    {
        self.binary(Binary::Where(comparison), other, Location::caller())
    }

    /// `inside` on `[start, end)` of an axis and `outside` elsewhere; the elements themselves do
    /// not matter.
    #[track_caller]
    pub fn mask_slice(self, axis: InnerAxis, start: u32, end: u32, inside: f64, outside: f64) -> Value<'t, F::Out, P>
    where
        F: ComputeFormat,
    {
        let inside = Num(inside);
        let outside = Num(outside);
        self.function(Elementwise::MaskSlice { axis, start, end, inside, outside }, None, Location::caller())
    }
}

impl<'t, L: Join<R>, R, P> Mul<Value<'t, R, P>> for Value<'t, L, P> {
    type Output = Value<'t, <L as FormatPair<R>>::Out, P>;

    #[track_caller]
    fn mul(self, other: Value<'t, R, P>) -> Self::Output {
        self.binary(Binary::Multiply, other, Location::caller())
    }
}

impl<'t, L: Join<R>, R, P> Add<Value<'t, R, P>> for Value<'t, L, P> {
    type Output = Value<'t, <L as FormatPair<R>>::Out, P>;

    #[track_caller]
    fn add(self, other: Value<'t, R, P>) -> Self::Output {
        self.mix(1.0, other, 1.0)
    }
}

impl<'t, L: Join<R>, R, P> Sub<Value<'t, R, P>> for Value<'t, L, P> {
    type Output = Value<'t, <L as FormatPair<R>>::Out, P>;

    #[track_caller]
    fn sub(self, other: Value<'t, R, P>) -> Self::Output {
        self.mix(1.0, other, -1.0)
    }
}

impl<'t, F: ComputeFormat, P> Mul<f64> for Value<'t, F, P> {
    type Output = Value<'t, F::Out, P>;

    #[track_caller]
    fn mul(self, factor: f64) -> Self::Output {
        self.affine(factor, 0.0)
    }
}

impl<'t, F: ComputeFormat, P> Add<f64> for Value<'t, F, P> {
    type Output = Value<'t, F::Out, P>;

    #[track_caller]
    fn add(self, shift: f64) -> Self::Output {
        self.affine(1.0, shift)
    }
}

impl<'t, F: ComputeFormat, P> Neg for Value<'t, F, P> {
    type Output = Value<'t, F::Out, P>;

    #[track_caller]
    fn neg(self) -> Self::Output {
        self.affine(-1.0, 0.0)
    }
}
