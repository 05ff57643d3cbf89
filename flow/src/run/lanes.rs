//! A tile as a device holds it: sides of powers of two, and whatever is in the lanes beyond the
//! true extents.
//!
//! Elementwise ops run on all lanes. Every sum, maximum and minimum puts its identity in place of a
//! lane outside the true extents before it reduces as a tree; nothing else looks at such a lane.

use crate::op::{Elementwise, InnerAxis, Rearrange, Reduce, Reduction};
use crate::real::Real;

/// A padded tile, row-major in its padded extents.
#[derive(Clone, Debug)]
pub(crate) struct PaddedTile<T> {
    pub extents: [usize; 2],
    padded: [usize; 2],
    data: Vec<T>,
}

impl<T: Real> PaddedTile<T> {
    /// A tile whose true lanes are given and whose other lanes are NaN.
    pub fn from_fn(extents: [usize; 2], mut at: impl FnMut(usize, usize) -> T) -> PaddedTile<T> {
        let padded = extents.map(usize::next_power_of_two);
        let mut data = vec![T::NAN; padded[0] * padded[1]];
        for i in 0..extents[0] {
            for j in 0..extents[1] {
                data[i * padded[1] + j] = at(i, j);
            }
        }
        PaddedTile { extents, padded, data }
    }

    /// A tile from the rows of memory.
    pub fn load(extents: [usize; 2], rows: &[T]) -> PaddedTile<T> {
        PaddedTile::from_fn(extents, |i, j| rows[i * extents[1] + j])
    }

    /// The true lanes, as they lie in memory.
    pub fn store(&self) -> impl Iterator<Item = T> + '_ {
        let [d0, d1] = self.extents;
        (0..d0 * d1).map(move |index| self.data[index / d1 * self.padded[1] + index % d1])
    }

    /// A lane; an extent of 1 broadcasts.
    pub fn at(&self, i: usize, j: usize) -> T {
        let i = if self.extents[0] == 1 { 0 } else { i };
        let j = if self.extents[1] == 1 { 0 } else { j };
        self.data[i * self.padded[1] + j]
    }

    /// Every lane of a tile, padding included, from lanes of others.
    fn all_lanes(extents: [usize; 2], at: impl Fn(usize, usize) -> T) -> PaddedTile<T> {
        let padded = extents.map(usize::next_power_of_two);
        let data = (0..padded[0] * padded[1]).map(|lane| at(lane / padded[1], lane % padded[1])).collect();
        PaddedTile { extents, padded, data }
    }
}

/// What a reduction puts where there is no element.
fn identity<T: Real>(kind: Reduce) -> T {
    match kind {
        Reduce::Sum | Reduce::Mean | Reduce::L2Norm => T::ZERO,
        Reduce::Max => T::NEG_INFINITY,
        Reduce::Min => T::INFINITY,
    }
}

/// `count` elements as a tree of halves. Lanes from `count` to the next power of two hold the
/// identity.
pub(crate) fn tree<T: Real>(kind: Reduce, count: usize, at: impl Fn(usize) -> T) -> T {
    let lane = |lane: usize| match lane < count {
        false => identity(kind),
        true if kind == Reduce::L2Norm => at(lane) * at(lane),
        true => at(lane),
    };
    finish(kind, count, halves(kind, (0..count.next_power_of_two()).map(lane).collect()))
}

/// The lower half joined with the upper half until one lane is left.
fn halves<T: Real>(kind: Reduce, mut lanes: Vec<T>) -> T {
    while lanes.len() > 1 {
        let upper = lanes.split_off(lanes.len() / 2);
        lanes.iter_mut().zip(upper).for_each(|(a, b)| *a = join(kind, *a, b));
    }
    lanes[0]
}

/// Two partial results as one.
pub(crate) fn join<T: Real>(kind: Reduce, a: T, b: T) -> T {
    match kind {
        Reduce::Sum | Reduce::Mean | Reduce::L2Norm => a + b,
        Reduce::Max => a.max(b),
        Reduce::Min => a.min(b),
    }
}

/// A result from the partial results of `count` elements.
pub(crate) fn finish<T: Real>(kind: Reduce, count: usize, partial: T) -> T {
    match kind {
        Reduce::Sum | Reduce::Max | Reduce::Min => partial,
        Reduce::Mean => partial / T::from_f64(count as f64),
        Reduce::L2Norm => partial.sqrt(),
    }
}

pub(crate) fn elementwise<T: Real>(op: Elementwise, extents: [usize; 2], operands: &[&PaddedTile<T>]) -> PaddedTile<T> {
    PaddedTile::all_lanes(extents, |i, j| match op {
        Elementwise::Unary(unary) => unary.apply(operands[0].at(i, j)),
        Elementwise::Binary(binary) => binary.apply(operands[0].at(i, j), operands[1].at(i, j)),
        Elementwise::MaskSlice { axis, start, end, inside, outside } => {
            let index = [i, j][axis.index()];
            T::from_f64(if (start as usize..end as usize).contains(&index) { inside.0 } else { outside.0 })
        }
    })
}

pub(crate) fn reduction<T: Real>(op: Reduction, extents: [usize; 2], x: &PaddedTile<T>) -> PaddedTile<T> {
    let every = op.every.map_or(x.extents[op.axis.index()], |every| every as usize);
    PaddedTile::from_fn(extents, |i, j| match op.axis {
        InnerAxis::D0 => tree(op.reduce, every, |n| x.at(i * every + n, j)),
        InnerAxis::D1 => tree(op.reduce, every, |n| x.at(i, j * every + n)),
    })
}

pub(crate) fn rearrange<T: Real>(op: Rearrange, extents: [usize; 2], x: &PaddedTile<T>) -> PaddedTile<T> {
    match op {
        Rearrange::Transpose => PaddedTile::from_fn(extents, |i, j| x.at(j, i)),
        // True lanes alone are counted: padding would be shuffled in among them.
        Rearrange::Reshape(_) => {
            let mut elements = x.store();
            PaddedTile::from_fn(extents, |_, _| elements.next().unwrap_or(T::NAN))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reduction that forgets the mask: it takes the lanes as an unmasked load of zeros leaves
    /// them.
    fn unmasked(kind: Reduce, elements: &[f32]) -> f32 {
        let mut lanes = elements.to_vec();
        lanes.resize(elements.len().next_power_of_two(), 0.0);
        finish(kind, elements.len(), halves(kind, lanes))
    }

    #[test]
    fn padding_never_leaks_into_a_maximum_or_minimum() {
        for count in [3usize, 5, 6, 7] {
            let negative: Vec<f32> = (0..count).map(|i| -1.0 - i as f32).collect();
            let positive: Vec<f32> = negative.iter().map(|x| -x).collect();
            let last = count as f32;
            assert_eq!(tree(Reduce::Max, count, |i| negative[i]), -1.0);
            assert_eq!(tree(Reduce::Min, count, |i| positive[i]), 1.0);
            assert_eq!(tree(Reduce::Min, count, |i| negative[i]), -last);
            assert_eq!(tree(Reduce::Mean, count, |_| 2.0f32), 2.0);
            // The test can fail: the bug it is for gives 0.
            assert_eq!(unmasked(Reduce::Max, &negative), 0.0);
            assert_eq!(unmasked(Reduce::Min, &positive), 0.0);
        }
    }

    #[test]
    fn an_op_that_moves_zero_does_not_reach_a_sum() {
        let x = PaddedTile::load([1, 5], &[0.0f32; 5]);
        let one = elementwise(Elementwise::Unary(crate::op::Unary::Exp), [1, 5], &[&x]);
        let sum = Reduction { reduce: Reduce::Sum, axis: InnerAxis::D1, every: None };
        assert_eq!(reduction(sum, [1, 1], &one).at(0, 0), 5.0);
    }
}
