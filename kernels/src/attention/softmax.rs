//! Softmax of rows that come a tile at a time, in registers.
//!
//! Scores lie as the accumulators of `m16n8k16` and of `wgmma` do. The registers and lanes of a row
//! follow from the fragment's layout: two rows a lane, four lanes a row.
//!
//! With `c = scale·log₂e` a weight is `2^(c·s − c·m)`: one fused multiply-add and one `ex2`. Sums
//! stay with the lane that made them until [`Softmax::total`]; maxima are those of the row in all
//! four lanes at all times.
//!
//! With [`Rescaling::Lazy`] a maximum that grows by less than 2⁸ in weight is left as it is:
//! weights stay below 256, which costs no precision in f32 or bf16, and what was summed before is
//! not rescaled.
//!
//! Rounding: scores are exact sums in f32 up to the order of the matrix instruction. `ex2` is
//! within 2⁻²² relative; a weight is rounded to bf16 for the product with V (2⁻⁸ relative), while
//! sums are taken before that rounding.

use tilewright_codegen::build::{Bf16x2, Builder, RegArray, Val};
use tilewright_layout::fragment::{FragmentLayout, StaticFragment};

use super::merge::PartialAttention;
use crate::mma::{Accumulator, across_lanes, local_sources};
use crate::tile::RegisterTensor;

/// The lazy rescale threshold: growth of a maximum, as a power of two of weights, below which it is
/// left as it is.
const THRESHOLD: f32 = 8.0;

/// The online-softmax update of a row, by the lanes that hold it, whatever the axis of a fragment
/// that its scores lie along.
#[derive(Clone, Copy)]
pub(crate) struct RowUpdate<'k> {
    /// `scale·log₂e`; `None`: scores have been multiplied with it.
    pub scale: Option<Val<'k, f32>>,
    /// The policy for updates of the maximum.
    pub rescaling: Rescaling,
    /// Whether all scores so far may be −∞: then they weigh nothing.
    pub masked: bool,
}

/// A row after its update.
pub(crate) struct Updated<'k> {
    /// Its maximum, before the scale.
    pub max: Val<'k, f32>,
    /// The sum of this lane's weights.
    pub sum: Val<'k, f32>,
    /// The factor for all earlier results.
    pub factor: Val<'k, f32>,
    /// Whether that is not 1.
    pub grown: Val<'k, bool>,
}

impl<'k> RowUpdate<'k> {
    /// Updates a row's maximum and sum with this lane's next scores, at least one. `over_lanes`
    /// gives the largest that the row's lanes have; `put` takes the weight of each score.
    #[track_caller]
    pub fn update(
        self,
        [old, sum]: [Val<'k, f32>; 2],
        scores: &[Val<'k, f32>],
        over_lanes: impl Fn(Val<'k, f32>) -> Val<'k, f32>,
        mut put: impl FnMut(usize, Val<'k, f32>),
    ) -> Updated<'k> {
        let (k, scaled) = (old.builder(), |x: Val<'k, f32>| self.scale.map_or(x, |scale| x * scale));
        // Four chains, since a chain of dependent maxima waits for each.
        let mut chains: Vec<Val<f32>> = scores.iter().copied().take(4).collect();
        chains[0] = old.max(chains[0]);
        for (i, &score) in scores.iter().enumerate().skip(4) {
            chains[i % 4] = chains[i % 4].max(score);
        }
        while chains.len() > 1 {
            chains =
                chains.chunks(2).map(|pair| pair.iter().copied().reduce(|a, b| a.max(b)).unwrap_or(pair[0])).collect();
        }
        let most = over_lanes(chains[0]);
        // Not where both are −∞: their difference is not a number.
        let grown = match self.rescaling {
            Rescaling::EveryTile => k.lit(true),
            Rescaling::Lazy => scaled(most - old).gt(THRESHOLD),
        };
        let max = grown.select::<f32>(most, old);
        let base = if self.masked { max.eq(f32::NEG_INFINITY).select::<f32>(0.0f32, scaled(max)) } else { scaled(max) };
        let factor = grown.select::<f32>((scaled(old) - base).ex2(), 1.0f32);
        let mut sums = [Some(sum * factor), None];
        for (i, &score) in scores.iter().enumerate() {
            let weight = self.scale.map_or_else(|| score - base, |scale| score.fma(scale, -base)).ex2();
            put(i, weight);
            let sum = &mut sums[i % 2];
            *sum = Some(sum.map_or(weight, |sum| sum + weight));
        }
        let sum = sums.into_iter().flatten().reduce(|a, b| a + b).unwrap_or(sum);
        Updated { max, sum, factor, grown }
    }
}

/// The running maximum and sum of the rows of a warp's tile.
#[derive(Clone, Copy)]
pub struct Softmax<'k> {
    k: &'k Builder,
    /// Largest score of each row so far, before the scale, or a score that is not much less; −∞
    /// before the first.
    max: RegArray<'k, f32>,
    /// Sum of the weights of this lane's columns, relative to the maximum.
    sum: RegArray<'k, f32>,
    /// The layout of scores in registers.
    fragment: FragmentLayout,
    /// `scale·log₂e`; `None`: scores have been multiplied with it.
    scale: Option<Val<'k, f32>>,
    rescaling: Rescaling,
}

/// The policy for updates of a row's running maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rescaling {
    /// With every tile: the accumulator is rescaled with every tile.
    EveryTile,
    /// Once a weight would exceed 2⁸, the lazy threshold: the accumulator is rarely touched, for a
    /// longer way to the first weight.
    Lazy,
}

impl<'k> Softmax<'k> {
    /// The softmax of scores in a fragment, with `rows` rows per lane (1: only rows 0 to 7 of
    /// sixteen count; 2: all) and `scale·log₂e`, unless scores have been multiplied with it.
    pub fn new(
        k: &'k Builder,
        fragment: FragmentLayout,
        rows: u32,
        scale: impl Into<Option<Val<'k, f32>>>,
        rescaling: Rescaling,
    ) -> Softmax<'k> {
        let scale = scale.into();
        Softmax { k, max: k.regs(rows, f32::NEG_INFINITY), sum: k.regs(rows, 0.0f32), fragment, scale, rescaling }
    }

    /// Rows of a lane.
    pub fn rows(self) -> u32 {
        self.max.len()
    }

    /// Replaces a tile of scores by their weights, and gives the factors of everything before it.
    /// Rows of which every score so far is −∞ weigh nothing.
    pub fn update(self, scores: Accumulator<'k, f32>) -> Rescale<'k> {
        let rows = (0..self.rows()).zip(scores.rows());
        let (factors, grown): (Vec<_>, Vec<_>) = rows.map(|(half, row)| self.update_row(scores, half, &row)).unzip();
        let any = match self.rescaling {
            Rescaling::EveryTile => self.k.lit(true),
            Rescaling::Lazy => grown.into_iter().fold(self.k.lit(false), |any, grown| any | grown).any(),
        };
        Rescale { k: self.k, factors, any }
    }

    fn update_row(self, scores: Accumulator<'k, f32>, half: u32, mine: &[u32]) -> (Val<'k, f32>, Val<'k, bool>) {
        let row = RowUpdate { scale: self.scale, rescaling: self.rescaling, masked: true };
        let values: Vec<_> = mine.iter().map(|&at| scores.get(at)).collect();
        let over_lanes = |max| across_lanes(&self.fragment, max, |a, b| a.max(b));
        let max = self.max.get(half);
        let sum = self.sum.get(half);
        let Updated { max, sum, factor, grown } = row.update([max, sum], &values, over_lanes, |i, weight| {
            scores.registers().set(mine[i], weight);
        });
        self.max.set(half, max);
        self.sum.set(half, sum);
        (factor, grown)
    }

    /// The largest score of a row times the scale.
    pub fn scaled_max(self, half: u32) -> Val<'k, f32> {
        let max = self.max.get(half);
        self.scale.map_or(max, |scale| max * scale)
    }

    /// The sum of the weights of a row: those of all its lanes.
    pub fn total(self, half: u32) -> Val<'k, f32> {
        across_lanes(&self.fragment, self.sum.get(half), |a, b| a + b)
    }

    /// The reciprocal of the sum of a row; 0 where nothing was summed.
    pub fn inverse(self, half: u32) -> Val<'k, f32> {
        let total = self.total(half);
        total.gt(0.0).select::<f32>(total.recip_approx(), 0.0f32)
    }

    /// The factor of a row's weighted sum: [`inverse`](Softmax::inverse) where there is no sink. A
    /// sink is times log₂e, as scores are.
    pub(super) fn factor(self, half: u32, sink: Option<Val<'k, f32>>) -> Val<'k, f32> {
        if sink.is_none() {
            return self.inverse(half);
        }
        let max = self.scaled_max(half);
        let whole = PartialAttention { max, sum: self.total(half), acc: [self.k.lit(1.0f32)] };
        whole.with_sink(sink).normalised()[0]
    }

    /// The log-sum-exp of a row's scores and sink, a natural logarithm: −∞ where every one is −∞.
    pub(super) fn log_sum_exp(self, half: u32, sink: Option<Val<'k, f32>>) -> Val<'k, f32> {
        let scores = PartialAttention { max: self.scaled_max(half), sum: self.total(half), acc: [] };
        scores.with_sink(sink).log_sum_exp()
    }
}

/// The factors of the rows of an accumulator.
pub struct Rescale<'k> {
    k: &'k Builder,
    factors: Vec<Val<'k, f32>>,
    /// Whether a factor of the warp is not 1.
    any: Val<'k, bool>,
}

impl<'k> Rescale<'k> {
    /// Multiplies the rows of an accumulator with their factors, unless all are 1.
    pub fn apply(&self, acc: Accumulator<'k, f32>) {
        self.k.when(self.any, || {
            for (row, &factor) in acc.rows().iter().zip(&self.factors) {
                for &at in row {
                    acc.registers().set(at, acc.get(at) * factor);
                }
            }
        });
    }
}

/// Weights as the A operand, of fragment `A`, of step `step` of the contraction with V. The
/// accumulator of a product lies as the A operand of the next, as their layouts say. With one row a
/// lane, the lower rows are zero.
pub fn a_fragment<'k, A: StaticFragment>(
    k: &'k Builder,
    weights: Accumulator<'k, f32>,
    step: u32,
    rows: u32,
) -> RegisterTensor<'k, Bf16x2, A> {
    let first = i64::from(step) * A::FRAGMENT.cols;
    let sources = match local_sources(&weights.fragment(), &A::FRAGMENT, first) {
        Ok(sources) => sources,
        Err(error) => unreachable!("the atoms of attention hold pairs: {error}"),
    };
    let places = RegisterTensor::<Bf16x2, A>::places(0.into());
    let weight = |(atom, value): (usize, usize)| weights.atom(0, atom as u32).get(value as u32);
    RegisterTensor::from_registers(|register| {
        let [row, _] = places[register];
        match sources[2 * register..] {
            [a, b, ..] if row.constant() < 8 * rows => weight(a).pair(weight(b)),
            _ => k.lit(0u32).bits(),
        }
    })
}
