//! The methods of a value that act on the inner extents `[d0, d1]` of each row.

use std::panic::Location;

use tilewright_layout::tensor::Parameter;

use super::Value;
use crate::dim::{Dim, Shape};
use crate::format::{GemmBy, InPool, Indexer, Join, Known, Operand, Pair, PerRow, Phase};
use crate::op::{Axis, Elementwise, Op, Product, Rearrange, Reduce, Reduction, Scale, Unary};

impl<'t, F: Known, P> Value<'t, F, P> {
    /// A reduction along an axis, which becomes 1.
    #[track_caller]
    pub fn reduce(self, reduce: Reduce, axis: Axis) -> Value<'t, F::Out, P>
    where
        F: Operand,
    {
        self.record(Op::Reduction(Reduction { reduce, axis, every: None }), &[], Location::caller())
    }

    /// A reduction of each `every` neighbours along an axis, which `every` must divide.
    #[track_caller]
    pub fn interleave(self, reduce: Reduce, axis: Axis, every: u32) -> Value<'t, F::Out, P>
    where
        F: Operand,
    {
        self.record(Op::Reduction(Reduction { reduce, axis, every: Some(every) }), &[], Location::caller())
    }

    /// The sum along an axis.
    #[track_caller]
    pub fn sum(self, axis: Axis) -> Value<'t, F::Out, P>
    where
        F: Operand,
    {
        self.reduce(Reduce::Sum, axis)
    }

    /// The mean along an axis.
    #[track_caller]
    pub fn mean(self, axis: Axis) -> Value<'t, F::Out, P>
    where
        F: Operand,
    {
        self.reduce(Reduce::Mean, axis)
    }

    /// The maximum along an axis.
    #[track_caller]
    pub fn max(self, axis: Axis) -> Value<'t, F::Out, P>
    where
        F: Operand,
    {
        self.reduce(Reduce::Max, axis)
    }

    /// The minimum along an axis.
    #[track_caller]
    pub fn min(self, axis: Axis) -> Value<'t, F::Out, P>
    where
        F: Operand,
    {
        self.reduce(Reduce::Min, axis)
    }

    /// The root of the sum of squares along an axis.
    #[track_caller]
    pub fn l2_norm(self, axis: Axis) -> Value<'t, F::Out, P>
    where
        F: Operand,
    {
        self.reduce(Reduce::L2Norm, axis)
    }

    /// The inner product of `x [1, K]` and `y [1, K]`.
    #[track_caller]
    pub fn gemv<R>(self, y: Value<'t, R, P>) -> Value<'t, <F as Pair<R>>::Out, P>
    where
        F: Join<R>,
    {
        self.record(Op::Product(Product::Gemv), &[y.id], Location::caller())
    }

    /// The Kronecker product along `axes`: element `i·n + j` of such an axis is `x_i·y_j`. Other
    /// axes broadcast.
    #[track_caller]
    pub fn kron<R>(self, axes: &[Axis], y: Value<'t, R, P>) -> Value<'t, <F as Pair<R>>::Out, P>
    where
        F: Join<R>,
    {
        let axes = [Axis::D0, Axis::D1].map(|axis| axes.contains(&axis));
        self.record(Op::Product(Product::Kron(axes)), &[y.id], Location::caller())
    }

    /// `[d0, d1]` → `[d1, d0]`.
    #[track_caller]
    pub fn transpose(self) -> Value<'t, F::Out, P>
    where
        F: Operand,
    {
        self.record(Op::Rearrange(Rearrange::Transpose), &[], Location::caller())
    }

    /// Reinterprets the elements, in row-major order, in another shape.
    #[track_caller]
    pub fn reshape(self, shape: [Dim; 2]) -> Value<'t, F::Out, P>
    where
        F: Operand,
    {
        self.record(Op::Rearrange(Rearrange::Reshape(Shape(shape))), &[], Location::caller())
    }

    /// What lies in the pool, as a value for each candidate block. Only ops over the blocks of a
    /// row need it.
    #[track_caller]
    pub fn load(self) -> Value<'t, F::Out, P>
    where
        F: InPool,
    {
        self.record(Op::Elementwise(Elementwise::Unary(Unary::Copy)), &[], Location::caller())
    }
}

impl<'t, F: Known, P: Phase> Value<'t, F, P> {
    /// `x [M, K]`, `y [N, K]` → `y·xᵀ [N, M]`.
    #[track_caller]
    pub fn gemm<R>(self, y: Value<'t, R, P>) -> Value<'t, <F as Pair<R>>::Out, P>
    where
        F: GemmBy<R, P>,
    {
        self.record(Op::Product(Product::Gemm), &[y.id], Location::caller())
    }
}

impl<'t, F: Known> Value<'t, F, Indexer> {
    /// A query for all heads of the group: `scale·Σ_h W_k[h]·(W_q[h]ᵀ·q_h) [1, D]` from `q [G, D]`
    /// and two parameters `[G·D, R]`, a row for each element of the query.
    #[track_caller]
    pub fn learned_query(
        self,
        w_q: Value<'t, Parameter>,
        w_k: Value<'t, Parameter>,
        scale: impl Into<Scale>,
    ) -> Value<'t, F::Out>
    where
        F: PerRow,
    {
        self.record(Op::Product(Product::LearnedQuery(scale.into())), &[w_q.id, w_k.id], Location::caller())
    }
}
