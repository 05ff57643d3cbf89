//! One row `[d0, d1]` of a value, and every op on such rows by its definition.

use crate::op::{Axis, Elementwise, Product, Rearrange, Reduce, Reduction};
use crate::real::Real;

/// One row of a value, row-major.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tile<T> {
    pub extents: [usize; 2],
    pub data: Vec<T>,
}

impl<T: Real> Tile<T> {
    pub fn new(extents: [usize; 2], data: &[T]) -> Tile<T> {
        Tile { extents, data: data.to_vec() }
    }

    pub fn from_fn(extents: [usize; 2], at: impl Fn(usize, usize) -> T) -> Tile<T> {
        let [d0, d1] = extents;
        Tile { extents, data: (0..d0 * d1).map(|index| at(index / d1, index % d1)).collect() }
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

pub(crate) fn elementwise<T: Real>(op: Elementwise, extents: [usize; 2], operands: &[&Tile<T>]) -> Tile<T> {
    Tile::from_fn(extents, |i, j| match op {
        Elementwise::Unary(unary) => unary.apply(operands[0].at(i, j)),
        Elementwise::Binary(binary) => binary.apply(operands[0].at(i, j), operands[1].at(i, j)),
        Elementwise::MaskSlice { axis, start, end, inside, outside } => {
            let index = [i, j][axis.index()];
            T::from_f64(if (start as usize..end as usize).contains(&index) { inside.0 } else { outside.0 })
        }
    })
}

pub(crate) fn reduction<T: Real>(op: Reduction, extents: [usize; 2], x: &Tile<T>) -> Tile<T> {
    let size = x.extents[op.axis.index()];
    let every = op.every.map_or(size, |every| every as usize);
    Tile::from_fn(extents, |i, j| match op.axis {
        Axis::D0 => reduce(op.reduce, (0..every).map(|n| x.at(i * every + n, j))),
        Axis::D1 => reduce(op.reduce, (0..every).map(|n| x.at(i, j * every + n))),
    })
}

pub(crate) fn product<T: Real>(op: Product, extents: [usize; 2], operands: &[&Tile<T>], scale: f64) -> Tile<T> {
    let x = operands[0];
    let y = operands[1];
    let dot = |n: usize, terms: &dyn Fn(usize) -> T| reduce(Reduce::Sum, (0..n).map(terms));
    match op {
        Product::Gemv => Tile::from_fn(extents, |_, _| dot(x.extents[1], &|k| x.at(0, k) * y.at(0, k))),
        Product::Gemm => Tile::from_fn(extents, |a, b| dot(x.extents[1], &|k| y.at(a, k) * x.at(b, k))),
        Product::Kron([d0, d1]) => Tile::from_fn(extents, |i, j| {
            let (xi, yi) = if d0 { (i / y.extents[0], i % y.extents[0]) } else { (i, i) };
            let (xj, yj) = if d1 { (j / y.extents[1], j % y.extents[1]) } else { (j, j) };
            x.at(xi, xj) * y.at(yi, yj)
        }),
        Product::LearnedQuery(_) => {
            let w_k = operands[2];
            let rank = y.extents[1];
            let [heads, dim] = x.extents;
            Tile::from_fn(extents, |_, j| {
                let of_head = |h: usize| {
                    let latent = |r: usize| dot(dim, &|i| y.at(h * dim + i, r) * x.at(h, i));
                    dot(rank, &|r| w_k.at(h * dim + j, r) * latent(r))
                };
                T::from_f64(scale) * dot(heads, &of_head)
            })
        }
    }
}

pub(crate) fn rearrange<T: Real>(op: Rearrange, extents: [usize; 2], x: &Tile<T>) -> Tile<T> {
    match op {
        Rearrange::Transpose => Tile::from_fn(extents, |i, j| x.at(j, i)),
        Rearrange::Reshape(_) => Tile::new(extents, &x.data),
    }
}
