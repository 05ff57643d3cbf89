//! The methods of a value that act on the inner extents `[d0, d1]` of each row.

use std::panic::Location;

use tilewright_graph::dim::{Dim, InnerShape};
use tilewright_graph::op::Op;
use tilewright_graph::rows::{Elementwise, InnerAxis, ProductOp, Rearrange, Reduce, Reduction, Scale, Unary};
use tilewright_layout::tensor::Parameter;

use super::Value;
use crate::format::{ComputeFormat, FormatPair, GemmBy, InPool, Indexer, Join, KnownFormat, PassKind, PerRow};

impl<'t, F: KnownFormat, P> Value<'t, F, P> {
    /// A reduction along an axis, which becomes 1.
    #[track_caller]
    pub fn reduce(self, reduce: Reduce, axis: InnerAxis) -> Value<'t, F::Out, P>
    where
        F: ComputeFormat,
    {
        self.record(Op::Reduce { x: self.id, reduction: Reduction { reduce, axis, every: None } }, Location::caller())
    }

    /// A reduction of each `every` neighbours along an axis, which `every` must divide.
    #[track_caller]
    pub fn interleave(self, reduce: Reduce, axis: InnerAxis, every: u32) -> Value<'t, F::Out, P>
    where
        F: ComputeFormat,
    {
        self.record(
            Op::Reduce { x: self.id, reduction: Reduction { reduce, axis, every: Some(every) } },
            Location::caller(),
        )
    }

    /// The sum along an axis.
    #[track_caller]
    pub fn sum(self, axis: InnerAxis) -> Value<'t, F::Out, P>
    where
        F: ComputeFormat,
    {
        self.reduce(Reduce::Sum, axis)
    }

    /// The mean along an axis.
    #[track_caller]
    pub fn mean(self, axis: InnerAxis) -> Value<'t, F::Out, P>
    where
        F: ComputeFormat,
    {
        self.reduce(Reduce::Mean, axis)
    }

    /// The maximum along an axis.
    #[track_caller]
    pub fn max(self, axis: InnerAxis) -> Value<'t, F::Out, P>
    where
        F: ComputeFormat,
    {
        self.reduce(Reduce::Max, axis)
    }

    /// The minimum along an axis.
    #[track_caller]
    pub fn min(self, axis: InnerAxis) -> Value<'t, F::Out, P>
    where
        F: ComputeFormat,
    {
        self.reduce(Reduce::Min, axis)
    }

    /// The root of the sum of squares along an axis.
    #[track_caller]
    pub fn l2_norm(self, axis: InnerAxis) -> Value<'t, F::Out, P>
    where
        F: ComputeFormat,
    {
        self.reduce(Reduce::L2Norm, axis)
    }

    /// The inner product of `x [1, K]` and `y [1, K]`.
    #[track_caller]
    pub fn gemv<R>(self, y: Value<'t, R, P>) -> Value<'t, <F as FormatPair<R>>::Out, P>
    where
        F: Join<R>,
    {
        self.product(y.id, None, ProductOp::Gemv, Location::caller())
    }

    /// The Kronecker product along `axes`: element `i·n + j` of such an axis is `x_i·y_j`. Other
    /// axes broadcast.
    #[track_caller]
    pub fn kron<R>(self, axes: &[InnerAxis], y: Value<'t, R, P>) -> Value<'t, <F as FormatPair<R>>::Out, P>
    where
        F: Join<R>,
    {
        let axes = [InnerAxis::D0, InnerAxis::D1].map(|axis| axes.contains(&axis));
        self.product(y.id, None, ProductOp::Kron(axes), Location::caller())
    }

    /// `[d0, d1]` → `[d1, d0]`.
    #[track_caller]
    pub fn transpose(self) -> Value<'t, F::Out, P>
    where
        F: ComputeFormat,
    {
        self.record(Op::Rearrange { x: self.id, to: Rearrange::Transpose }, Location::caller())
    }

    /// Reinterprets the elements, in row-major order, in another shape.
    #[track_caller]
    pub fn reshape(self, shape: [Dim; 2]) -> Value<'t, F::Out, P>
    where
        F: ComputeFormat,
    {
        self.record(Op::Rearrange { x: self.id, to: Rearrange::Reshape(InnerShape(shape)) }, Location::caller())
    }

    /// Loads the rows from the pool, as a value for each candidate block. Only ops over the blocks
    /// of a row need it.
    #[track_caller]
    pub fn load(self) -> Value<'t, F::Out, P>
    where
        F: InPool,
    {
        self.function(Elementwise::Unary(Unary::Copy), None, Location::caller())
    }
}

impl<'t, F: KnownFormat, P: PassKind> Value<'t, F, P> {
    /// `x [M, K]`, `y [N, K]` → `y·xᵀ [N, M]`.
    #[track_caller]
    pub fn gemm<R>(self, y: Value<'t, R, P>) -> Value<'t, <F as FormatPair<R>>::Out, P>
    where
        F: GemmBy<R, P>,
    {
        self.product(y.id, None, ProductOp::Gemm, Location::caller())
    }
}

impl<'t, F: KnownFormat> Value<'t, F, Indexer> {
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
        self.product(w_q.id, Some(w_k.id), ProductOp::LearnedQuery(scale.into()), Location::caller())
    }
}
