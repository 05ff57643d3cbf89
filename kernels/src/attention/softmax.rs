//! Softmax of rows that come a tile at a time, in registers.
//!
//! Scores lie as the accumulators of `m16n8k16` and of `wgmma` do. Which registers of a lane are a row, and which lanes share
//! it, is read off the fragment's layout: two rows a lane, four lanes a row.
//!
//! With `c = scale·log₂e` a weight is `2^(c·s − c·m)`: one fused multiply-add and one `ex2`. Sums stay with the lane
//! that made them until [`Softmax::total`]; maxima are those of the row in all four lanes at all times.
//!
//! With [`Patience::Some`] a maximum that grows by less than 2⁸ in weight is left as it is: weights stay below 256, which
//! costs no precision in f32 or bf16, and what was summed before need not shrink.
//!
//! Rounding: scores are exact sums in f32 up to the order of the matrix instruction. `ex2` is within 2⁻²² relative; a
//! weight is rounded to bf16 for the product with V (2⁻⁸ relative), while sums are taken before that rounding.

use tilewright_codegen::build::{Bf16x2, Builder, RegArray, Val};
use tilewright_layout::fragment::{FragmentLayout, StaticFragment};

use crate::mma::{Accumulator, across_lanes, local_sources};
use crate::tile::RegisterTensor;

/// Growth of a maximum, as a power of two of weights, below which it is left as it is.
const STALE: f32 = 8.0;

/// The running maximum and sum of the rows of a warp's tile.
#[derive(Clone, Copy)]
pub struct Softmax<'k> {
    k: &'k Builder,
    /// Largest score of each row so far, before the scale, or one that is not much less; −∞ before the first.
    max: RegArray<'k, f32>,
    /// Sum of the weights of this lane's columns, relative to the maximum.
    sum: RegArray<'k, f32>,
    /// Where scores stand.
    fragment: FragmentLayout,
    scale: Val<'k, f32>,
    patience: Patience,
}

/// When a maximum follows its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Patience {
    /// With every tile: the accumulator shrinks with every tile.
    None,
    /// Once a weight would exceed 2⁸: the accumulator is rarely touched, for a longer way to the first weight.
    Some,
}

impl<'k> Softmax<'k> {
    /// Of scores in that fragment, of `rows` rows a lane (1: only rows 0 to 7 of sixteen are looked at; 2: all), with
    /// `scale·log₂e`.
    pub fn new(
        k: &'k Builder,
        fragment: FragmentLayout,
        rows: u32,
        scale: Val<'k, f32>,
        patience: Patience,
    ) -> Softmax<'k> {
        Softmax { k, max: k.regs(rows, f32::NEG_INFINITY), sum: k.regs(rows, 0.0f32), fragment, scale, patience }
    }

    /// Rows of a lane.
    pub fn rows(self) -> u32 {
        self.max.len()
    }

    /// Replaces a tile of scores by their weights, and says by how much everything before it shrinks. Rows of which
    /// every score so far is −∞ weigh nothing.
    pub fn absorb(self, scores: Accumulator<'k, f32>) -> Shrink<'k> {
        let rows = (0..self.rows()).zip(scores.rows());
        let (factors, grown): (Vec<_>, Vec<_>) = rows.map(|(half, row)| self.absorb_row(scores, half, &row)).unzip();
        let any = match self.patience {
            Patience::None => self.k.lit(true),
            Patience::Some => grown.into_iter().fold(self.k.lit(false), |any, grown| any | grown).any(),
        };
        Shrink { k: self.k, factors, any }
    }

    fn absorb_row(self, scores: Accumulator<'k, f32>, half: u32, mine: &[u32]) -> (Val<'k, f32>, Val<'k, bool>) {
        let old = self.max.get(half);
        // Four chains, since a chain of dependent maxima waits for each.
        let mut chains = [old; 4];
        for (i, &at) in mine.iter().enumerate() {
            chains[i % 4] = chains[i % 4].max(scores.get(at));
        }
        let [a, b, c, d] = chains;
        let most = across_lanes(&self.fragment, a.max(b).max(c.max(d)), |a, b| a.max(b));
        // Not so where both are −∞: their difference is no number.
        let grown = match self.patience {
            Patience::None => self.k.lit(true),
            Patience::Some => ((most - old) * self.scale).gt(STALE),
        };
        let new = grown.select::<f32>(most, old);
        self.max.set(half, new);
        let base = new.eq(f32::NEG_INFINITY).select::<f32>(0.0f32, new * self.scale);
        let factor = grown.select::<f32>((old * self.scale - base).ex2(), 1.0f32);
        let mut sums = [self.sum.get(half) * factor, self.k.lit(0.0f32)];
        for (i, &at) in mine.iter().enumerate() {
            let weight = scores.get(at).fma(self.scale, -base).ex2();
            scores.registers().set(at, weight);
            sums[i % 2] = sums[i % 2] + weight;
        }
        self.sum.set(half, sums[0] + sums[1]);
        (factor, grown)
    }

    /// The largest score of a row times the scale.
    pub fn scaled_max(self, half: u32) -> Val<'k, f32> {
        self.max.get(half) * self.scale
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
}

/// By how much the rows of an accumulator shrink.
pub struct Shrink<'k> {
    k: &'k Builder,
    factors: Vec<Val<'k, f32>>,
    /// Whether a factor of the warp is not 1.
    any: Val<'k, bool>,
}

impl<'k> Shrink<'k> {
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

/// Weights as the A operand, of fragment `A`, of step `step` of the contraction with V. The accumulator of a product lies as
/// the A operand of the next, as their layouts say. With one row a lane, the lower rows are zero.
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
