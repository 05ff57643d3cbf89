//! Operators over the candidate blocks of a row: reduction, softmax, normalisation, causal
//! convolution.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Num, Reduce, Scale};

/// The divisor of a normalisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Norm {
    /// The sum of magnitudes.
    L1,
    /// The root of the sum of squares.
    L2,
}

/// Weights of a causal convolution over blocks, `[K, d0, d1]`; `[K, 1, 1]` is shared by all
/// elements.
///
/// ```
/// use tilewright_graph::rows::Taps;
/// assert_eq!(Taps::shared(&[0.5, 0.25]).unwrap().to_string(), "[2, 1, 1]");
/// assert!(Taps::new(&[1.0; 5], [2, 1, 2]).is_none());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Taps {
    weights: Vec<Num>,
    extents: [u32; 3],
}

impl Taps {
    /// Weights in row-major order `[k, d0, d1]`; `None` where their number is not that of the
    /// extents, or is 0.
    pub fn new(weights: &[f64], extents: [u32; 3]) -> Option<Taps> {
        let taps = Taps { weights: weights.iter().copied().map(Num).collect(), extents };
        taps.is_whole().then_some(taps)
    }

    /// Whether there is a weight for each element, and at least one.
    pub(crate) fn is_whole(&self) -> bool {
        let elements = self.extents.iter().try_fold(1usize, |n, e| n.checked_mul(*e as usize));
        elements == Some(self.weights.len()) && !self.weights.is_empty()
    }

    /// Creates weights that all elements share; `None` if there are none.
    pub fn shared(weights: &[f64]) -> Option<Taps> {
        Taps::new(weights, [u32::try_from(weights.len()).ok()?, 1, 1])
    }

    /// Number of weights along the blocks.
    pub const fn len(&self) -> usize {
        self.extents[0] as usize
    }

    /// Never: there is at least one weight.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// The inner extents.
    pub const fn inner(&self) -> [u32; 2] {
        [self.extents[1], self.extents[2]]
    }

    /// The weight `k` of element `(i, j)`; an extent of 1 broadcasts.
    pub fn at(&self, k: usize, i: usize, j: usize) -> f64 {
        let [d0, d1] = [self.extents[1] as usize, self.extents[2] as usize];
        self.weights[(k * d0 + i.min(d0 - 1)) * d1 + j.min(d1 - 1)].0
    }
}

impl fmt::Display for Taps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [k, d0, d1] = self.extents;
        write!(f, "[{k}, {d0}, {d1}]")
    }
}

/// An operator over the candidate blocks of a row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowOp {
    /// A reduction to one value of the whole row. For no blocks it is 0.
    Reduce(Reduce),
    /// `e^(c·x) / Σ e^(c·x)` of each element over the blocks.
    Softmax(Scale),
    /// The element over its norm along the blocks; 0 where the norm is 0.
    Normalize(Norm),
    /// `Σ_k w[k]·x[s − k]`, nothing before the first candidate.
    Conv1d(Taps),
}

impl RowOp {
    /// The name in text forms and errors.
    pub const fn name(&self) -> &'static str {
        match self {
            RowOp::Reduce(Reduce::Sum) => "sum_over_blocks",
            RowOp::Reduce(Reduce::Mean) => "mean_over_blocks",
            RowOp::Reduce(Reduce::Max) => "max_over_blocks",
            RowOp::Reduce(Reduce::Min) => "min_over_blocks",
            RowOp::Reduce(Reduce::L2Norm) => "l2_norm_over_blocks",
            RowOp::Softmax(_) => "softmax",
            RowOp::Normalize(Norm::L1) => "normalize_l1",
            RowOp::Normalize(Norm::L2) => "normalize_l2",
            RowOp::Conv1d(_) => "conv1d",
        }
    }
}
