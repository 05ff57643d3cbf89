//! Products of two padded tiles. Sums run over true extents, as trees.

use super::lanes::{PaddedTile, tree};
use crate::op::{ProductOp, Reduce};
use crate::real::Real;

pub(crate) fn product<T: Real>(
    op: ProductOp,
    extents: [usize; 2],
    operands: &[&PaddedTile<T>],
    scale: f64,
) -> PaddedTile<T> {
    let x = operands[0];
    let y = operands[1];
    let inner = x.extents[1];
    match op {
        ProductOp::Gemv => PaddedTile::from_fn(extents, |_, _| tree(Reduce::Sum, inner, |k| x.at(0, k) * y.at(0, k))),
        ProductOp::Gemm => PaddedTile::from_fn(extents, |a, b| tree(Reduce::Sum, inner, |k| y.at(a, k) * x.at(b, k))),
        ProductOp::Kron(axes) => {
            let part = |axis: usize, index: usize| {
                let n = y.extents[axis];
                if axes[axis] { (index / n, index % n) } else { (index, index) }
            };
            PaddedTile::from_fn(extents, |i, j| {
                let (xi, yi) = part(0, i);
                let (xj, yj) = part(1, j);
                x.at(xi, xj) * y.at(yi, yj)
            })
        }
        ProductOp::LearnedQuery(_) => {
            let w_k = operands[2];
            let rank = y.extents[1];
            let [heads, dim] = x.extents;
            // W_qᵀ·q of each head first, as a device would keep it.
            let latent = PaddedTile::from_fn([heads, rank], |h, r| {
                tree(Reduce::Sum, dim, |i| y.at(h * dim + i, r) * x.at(h, i))
            });
            PaddedTile::from_fn(extents, |_, j| {
                let head = |h: usize| tree(Reduce::Sum, rank, |r| w_k.at(h * dim + j, r) * latent.at(h, r));
                T::from_f64(scale) * tree(Reduce::Sum, heads, head)
            })
        }
    }
}
