//! One row `[d0, d1]` of a value, and every op on such rows by its definition.

use crate::op::{Elementwise, InnerAxis, ProductOp, Rearrange, Reduce, Reduction};
use crate::real::Real;

/// One row of a value, row-major.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RowTile<T> {
    pub extents: [usize; 2],
    pub data: Vec<T>,
}

impl<T: Real> RowTile<T> {
    pub fn new(extents: [usize; 2], data: &[T]) -> RowTile<T> {
        RowTile { extents, data: data.to_vec() }
    }

    pub fn from_fn(extents: [usize; 2], at: impl Fn(usize, usize) -> T) -> RowTile<T> {
        let [d0, d1] = extents;
        RowTile { extents, data: (0..d0 * d1).map(|index| at(index / d1, index % d1)).collect() }
    }

    /// An element; an extent of 1 broadcasts.
    pub fn at(&self, i: usize, j: usize) -> T {
        let [d0, d1] = self.extents;
        self.data[i.min(d0 - 1) * d1 + j.min(d1 - 1)]
    }
}

/// A reduction of numbers in order.
pub(crate) fn reduce<T: Real>(reduce: Reduce, numbers: impl Iterator<Item = T>) -> T {
    let mut count = 0.0;
    let numbers = numbers.inspect(|_| count += 1.0);
    match reduce {
        Reduce::Sum => numbers.fold(T::ZERO, |a, b| a + b),
        Reduce::Max => numbers.fold(T::NEG_INFINITY, T::max),
        Reduce::Min => numbers.fold(T::INFINITY, T::min),
        Reduce::L2Norm => numbers.fold(T::ZERO, |a, b| a + b * b).sqrt(),
        Reduce::Mean => {
            let sum = numbers.fold(T::ZERO, |a, b| a + b);
            sum / T::from_f64(count)
        }
    }
}

pub(crate) fn elementwise<T: Real>(op: Elementwise, extents: [usize; 2], operands: &[&RowTile<T>]) -> RowTile<T> {
    RowTile::from_fn(extents, |i, j| match op {
        Elementwise::Unary(unary) => unary.apply(operands[0].at(i, j)),
        Elementwise::Binary(binary) => binary.apply(operands[0].at(i, j), operands[1].at(i, j)),
        Elementwise::MaskSlice { axis, start, end, inside, outside } => {
            let index = [i, j][axis.index()];
            T::from_f64(if (start as usize..end as usize).contains(&index) { inside.0 } else { outside.0 })
        }
    })
}

pub(crate) fn reduction<T: Real>(op: Reduction, extents: [usize; 2], x: &RowTile<T>) -> RowTile<T> {
    let size = x.extents[op.axis.index()];
    let every = op.every.map_or(size, |every| every as usize);
    RowTile::from_fn(extents, |i, j| match op.axis {
        InnerAxis::D0 => reduce(op.reduce, (0..every).map(|n| x.at(i * every + n, j))),
        InnerAxis::D1 => reduce(op.reduce, (0..every).map(|n| x.at(i, j * every + n))),
    })
}

pub(crate) fn product<T: Real>(op: ProductOp, extents: [usize; 2], operands: &[&RowTile<T>], scale: f64) -> RowTile<T> {
    let x = operands[0];
    let y = operands[1];
    let dot = |n: usize, terms: &dyn Fn(usize) -> T| reduce(Reduce::Sum, (0..n).map(terms));
    match op {
        ProductOp::Gemv => RowTile::from_fn(extents, |_, _| dot(x.extents[1], &|k| x.at(0, k) * y.at(0, k))),
        ProductOp::Gemm => RowTile::from_fn(extents, |a, b| dot(x.extents[1], &|k| y.at(a, k) * x.at(b, k))),
        ProductOp::Kron([d0, d1]) => RowTile::from_fn(extents, |i, j| {
            let (xi, yi) = if d0 { (i / y.extents[0], i % y.extents[0]) } else { (i, i) };
            let (xj, yj) = if d1 { (j / y.extents[1], j % y.extents[1]) } else { (j, j) };
            x.at(xi, xj) * y.at(yi, yj)
        }),
        ProductOp::LearnedQuery(_) => {
            let w_k = operands[2];
            let rank = y.extents[1];
            let [heads, dim] = x.extents;
            RowTile::from_fn(extents, |_, j| {
                let of_head = |h: usize| {
                    let latent = |r: usize| dot(dim, &|i| y.at(h * dim + i, r) * x.at(h, i));
                    dot(rank, &|r| w_k.at(h * dim + j, r) * latent(r))
                };
                T::from_f64(scale) * dot(heads, &of_head)
            })
        }
    }
}

pub(crate) fn rearrange<T: Real>(op: Rearrange, extents: [usize; 2], x: &RowTile<T>) -> RowTile<T> {
    match op {
        Rearrange::Transpose => RowTile::from_fn(extents, |i, j| x.at(j, i)),
        Rearrange::Reshape(_) => RowTile::new(extents, &x.data),
    }
}
