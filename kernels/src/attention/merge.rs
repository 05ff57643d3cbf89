//! Partial results of attention, and their merge.

use tilewright_codegen::build::Val;

/// The result of attention over some of a row's tokens, for `N` dimensions of a head: largest score times `log₂e`, sum of
/// the weights `2^(x − max)`, sums of values times weights.
#[derive(Clone, Copy)]
pub(crate) struct Partial<'k, const N: usize> {
    pub max: Val<'k, f32>,
    pub sum: Val<'k, f32>,
    pub acc: [Val<'k, f32>; N],
}

impl<'k, const N: usize> Partial<'k, N> {
    /// Partial results of different tokens of a row, in any order: `M = max m`, `Σ 2^(m − M)·sum`, `Σ 2^(m − M)·acc`. One
    /// without tokens has −∞ as its maximum and weighs nothing, beside others or alone.
    ///
    /// # Panics
    /// If there are none.
    #[track_caller]
    pub fn merge(partials: &[Partial<'k, N>]) -> Partial<'k, N> {
        let k = partials[0].max.builder();
        // Finite, so that of −∞ alone no difference is NaN.
        let max = partials.iter().fold(k.lit(f32::MIN), |max, partial| max.max(partial.max));
        let none = Partial { max, sum: k.lit(0.0f32), acc: [k.lit(0.0f32); N] };
        partials.iter().fold(none, |all, partial| {
            let weight = (partial.max - max).ex2();
            let acc = core::array::from_fn(|i| weight.fma(partial.acc[i], all.acc[i]));
            Partial { max, sum: weight.fma(partial.sum, all.sum), acc }
        })
    }

    /// The result, of tokens that there are.
    #[track_caller]
    pub fn normalised(self) -> [Val<'k, f32>; N] {
        let inverse = self.sum.recip();
        self.acc.map(|acc| acc * inverse)
    }
}
