//! The ops over all candidate blocks of a row, by their definition.

use super::tile::{RowTile, reduce};
use crate::op::{Norm, Reduce, RowOp};
use crate::real::Real;

/// One tile for [`RowOp::Reduce`], else one for each block. A number is the scale of a softmax.
pub(crate) fn rowwise<T: Real>(op: &RowOp, extents: [usize; 2], blocks: &[RowTile<T>], scale: f64) -> Vec<RowTile<T>> {
    let lane = |i: usize, j: usize| blocks.iter().map(move |tile| tile.at(i, j));
    let each = |at: &dyn Fn(usize, usize, usize) -> T| {
        (0..blocks.len()).map(|s| RowTile::from_fn(extents, |i, j| at(s, i, j))).collect()
    };
    match op {
        RowOp::Reduce(_) if blocks.is_empty() => vec![RowTile::from_fn(extents, |_, _| T::ZERO)],
        RowOp::Reduce(kind) => vec![RowTile::from_fn(extents, |i, j| reduce(*kind, lane(i, j)))],
        RowOp::Softmax(_) => {
            let scale = T::from_f64(scale);
            let largest = RowTile::from_fn(extents, |i, j| reduce(Reduce::Max, lane(i, j).map(|x| scale * x)));
            let term = |x: T, i, j| (scale * x - largest.at(i, j)).exp();
            let sum = RowTile::from_fn(extents, |i, j| reduce(Reduce::Sum, lane(i, j).map(|x| term(x, i, j))));
            each(&|s, i, j| term(blocks[s].at(i, j), i, j) / sum.at(i, j))
        }
        RowOp::Normalize(norm) => {
            let norm = RowTile::from_fn(extents, |i, j| match norm {
                Norm::L1 => reduce(Reduce::Sum, lane(i, j).map(T::abs)),
                Norm::L2 => reduce(Reduce::L2Norm, lane(i, j)),
            });
            each(&|s, i, j| over_norm(blocks[s].at(i, j), norm.at(i, j)))
        }
        RowOp::Conv1d(taps) => each(&|s, i, j| {
            let terms = (0..taps.len().min(s + 1)).map(|k| T::from_f64(taps.at(k, i, j)) * blocks[s - k].at(i, j));
            reduce(Reduce::Sum, terms)
        }),
    }
}

/// A number over a norm; 0 where the norm is 0.
pub(crate) fn over_norm<T: Real>(x: T, norm: T) -> T {
    if norm == T::ZERO { T::ZERO } else { x / norm }
}
