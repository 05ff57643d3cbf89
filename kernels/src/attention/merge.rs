//! Partial results of attention, those of a block's warps in shared memory, and their merge.

use core::f32::consts::LN_2;

use tilewright_codegen::build::{Builder, Ptr, Shared, Val};

/// The result of attention over some of a row's tokens, for `N` dimensions of a head: largest score
/// times `log₂e`, sum of the weights `2^(x − max)`, sums of values times weights.
#[derive(Clone, Copy)]
pub(crate) struct PartialAttention<'k, const N: usize> {
    pub max: Val<'k, f32>,
    pub sum: Val<'k, f32>,
    pub acc: [Val<'k, f32>; N],
}

impl<'k, const N: usize> PartialAttention<'k, N> {
    /// Merges partial results of different tokens of a row, in any order: `M = max m`, `Σ 2^(m −
    /// M)·sum`, `Σ 2^(m − M)·acc`. A partial result without tokens has −∞ as its maximum and weight
    /// 0.
    ///
    /// # Panics
    /// If there are none.
    #[track_caller]
    pub fn merge(partials: &[PartialAttention<'k, N>]) -> PartialAttention<'k, N> {
        let k = partials[0].max.builder();
        // Finite, so that of −∞ alone no difference is NaN.
        let max = partials.iter().fold(k.lit(f32::MIN), |max, partial| max.max(partial.max));
        let none = PartialAttention { max, sum: k.lit(0.0f32), acc: [k.lit(0.0f32); N] };
        partials.iter().fold(none, |all, partial| {
            let weight = (partial.max - max).ex2();
            let acc = core::array::from_fn(|i| weight.fma(partial.acc[i], all.acc[i]));
            PartialAttention { max, sum: weight.fma(partial.sum, all.sum), acc }
        })
    }

    /// Divides the weighted sums by the sum of the weights; zeros where every score is −∞. The sum
    /// of the weights is 0 there and at least 1 elsewhere, since the largest score weighs 1.
    #[track_caller]
    pub fn normalised(self) -> [Val<'k, f32>; N] {
        let inverse = self.sum.max(f32::MIN_POSITIVE).recip();
        self.acc.map(|acc| acc * inverse)
    }

    /// The log-sum-exp of the scores, a natural logarithm: −∞ where every score is −∞.
    #[track_caller]
    pub fn log_sum_exp(self) -> Val<'k, f32> {
        (self.max + self.sum.lg2()) * LN_2
    }
}

/// The partial results of the warps of a block in shared memory: of each warp a line for every
/// query head, sums of the head's dimensions, followed by its maximum and its sum of weights.
#[derive(Clone, Copy)]
pub(crate) struct WarpParts<'k> {
    /// The recorder.
    pub k: &'k Builder,
    /// Their start.
    pub memory: Ptr<'k, Shared, f32>,
    /// The number of warps.
    pub warps: u32,
    /// Query heads.
    pub heads: u32,
    /// Lines of a warp, one for each head or more.
    pub lines: u32,
    /// Dimensions of a head.
    pub dim: u32,
    /// Floats from line to line, two more than the dimensions or as many as let lines begin in
    /// other banks.
    pub pitch: u32,
}

impl<'k> WarpParts<'k> {
    /// Bytes of all lines.
    pub fn bytes(&self) -> u32 {
        self.warps * self.lines * self.pitch * 4
    }

    /// The line of a warp's head.
    pub fn line(&self, warp: Val<'k, u32>, head: Val<'k, u32>) -> Ptr<'k, Shared, f32> {
        self.memory.at((warp * self.lines + head) * self.pitch)
    }

    /// Stores a head's maximum and sum of weights after its sums.
    #[track_caller]
    pub fn store_stats(&self, line: Ptr<'k, Shared, f32>, [max, sum]: [Val<'k, f32>; 2]) {
        line.at(self.dim).store_vec([max, sum]);
    }

    /// `N` dimensions of a head, from `column` on, merged over the warps. One without tokens has −∞
    /// as its maximum, which weighs nothing.
    #[track_caller]
    pub fn merged<const N: usize>(&self, head: Val<'k, u32>, column: Val<'k, u32>) -> PartialAttention<'k, N> {
        let parts = (0..self.warps).map(|warp| {
            let line = self.line(self.k.lit(warp), head);
            let [max, sum] = line.at(self.dim).load_vec();
            PartialAttention { max, sum, acc: line.at(column).load_vec() }
        });
        PartialAttention::merge(&parts.collect::<Vec<_>>())
    }
}
