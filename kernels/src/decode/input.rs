//! Where activations come from: as they are, normalised, or merged from the splits of attention.

use tilewright_codegen::build::{Ptr, Shared, Val};

use super::array::zero;
use super::{Array, Operand, Team, Unit};

/// The activations of a linear layer, rows of `k` elements.
#[derive(Clone, Copy)]
pub enum Input<'k> {
    /// `[rows, k]`.
    Plain(Array<'k>),
    /// The RMS norm of `x`. The product is taken with `x · weight`; its rows are scaled when the sums are read.
    RmsNorm {
        /// `[rows, k]`.
        x: Array<'k>,
        /// `[k]`.
        weight: Array<'k>,
        /// Added to the mean square.
        eps: f32,
    },
    /// The merge of the splits, heads concatenated.
    Merge(Merge<'k>),
}

/// Partial results of attention: with `M = max m_s` and `w_s = exp(m_s − M)`, `x = Σ w_s·acc_s / Σ w_s·l_s`.
#[derive(Clone, Copy)]
pub struct Merge<'k> {
    /// f32 `[rows, heads, splits, dim]`.
    pub acc: Ptr<'k, tilewright_codegen::build::Global, f32>,
    /// `m` and `l`, f32 `[rows, heads, splits, 2]`.
    pub stats: Ptr<'k, tilewright_codegen::build::Global, f32>,
    /// Query heads.
    pub heads: u32,
    /// Splits.
    pub splits: u32,
    /// Dimensions of a head, a multiple of four.
    pub dim: u32,
}

/// A split's `m` and `l`, and four of its sums.
type Part<'k> = ([Val<'k, f32>; 2], [Val<'k, f32>; 4]);

/// Splits whose partial results are in flight together.
const TOGETHER: u32 = 8;

/// Sums of squares of the rows, `[rows, warps]`.
pub(super) type Squares<'k> = Ptr<'k, Shared, f32>;

impl<'k> Input<'k> {
    /// Brings rows `first..` into the operand; of a normalised input also the sums of squares.
    pub(super) fn fill(self, team: Team<'k>, unit: Unit, first: Val<'k, u32>, to: Operand<'k>, squares: Squares<'k>) {
        let width = unit.k();
        for row in 0..to.rows() {
            let start = (first + row) * width;
            match self {
                Input::Plain(x) => team.each(width / 4, |at| to.store4(row, at * 4, x.load4(start + at * 4))),
                Input::RmsNorm { x, weight, .. } => {
                    let sum = team.k.var(0.0f32);
                    team.each(width / 4, |at| {
                        let (x, weight) = (x.load4(start + at * 4), weight.load4(at * 4));
                        sum.set(x.iter().fold(sum.get(), |sum, &x| x.fma(x, sum)));
                        to.store4(row, at * 4, std::array::from_fn(|i| x[i] * weight[i]));
                    });
                    let sum = sum.get().warp_reduce(|a, b| a + b);
                    let k = team.k;
                    k.when(k.lane().eq(0), || squares.at(k.warp()).at(row * team.warps).store(sum));
                }
                Input::Merge(merge) => team.each(width / 4, |at| {
                    to.store4(row, at * 4, merge.four(team, first + row, at * 4));
                }),
            }
        }
        to.clear_tail(team);
    }

    /// The factor on a row's sums: one over the root of the mean square of a normalised row.
    pub(super) fn scale(
        self,
        team: Team<'k>,
        unit: Unit,
        row: Val<'k, u32>,
        squares: Squares<'k>,
    ) -> Option<Val<'k, f32>> {
        let Input::RmsNorm { eps, .. } = self else { return None };
        let sums = squares.at(row * team.warps);
        let sum = (0..team.warps).fold(zero(team.k), |sum, warp| sum + sums.at(warp).load());
        Some((sum * (1.0 / unit.k() as f32) + eps).sqrt().recip())
    }
}

impl<'k> Merge<'k> {
    /// Four consecutive elements of a row, from a column that is a multiple of four.
    fn four(self, team: Team<'k>, row: Val<'k, u32>, column: Val<'k, u32>) -> [Val<'k, f32>; 4] {
        let k = team.k;
        let first = (row * self.heads + column / self.dim) * self.splits;
        let (acc, stats) = (self.acc.at(first * self.dim + column % self.dim), self.stats.at(first * 2));
        let state = k.regs(6, 0.0f32);
        state.set(0, f32::NEG_INFINITY);
        for start in (0..self.splits).step_by(TOGETHER as usize) {
            let splits: Vec<u32> = (start..self.splits.min(start + TOGETHER)).collect();
            let loaded: Vec<Part> =
                splits.iter().map(|&s| (stats.at(2 * s).load_vec(), acc.at(s * self.dim).load_vec())).collect();
            let most = loaded.iter().fold(state.get(0), |most, ([m, _], _)| most.max(*m));
            // Without tokens so far, every m is −∞ and every l and sum is 0: any finite base will do.
            let base = most.eq(f32::NEG_INFINITY).select(0.0f32, most);
            let old = weight(state.get(0), base);
            let mut next: Vec<Val<f32>> = (1..6).map(|i| state.get(i) * old).collect();
            for ([m, l], part) in &loaded {
                let w = weight(*m, base);
                next[0] = w.fma(*l, next[0]);
                for i in 0..4 {
                    next[1 + i] = w.fma(part[i], next[1 + i]);
                }
            }
            state.set(0, most);
            next.into_iter().zip(1..).for_each(|(value, i)| state.set(i, value));
        }
        let total = state.get(1);
        let inverse = total.eq(0.0).select(0.0f32, total.recip());
        std::array::from_fn(|i| state.get(2 + i as u32) * inverse)
    }
}

/// `exp(m − base)`.
fn weight<'k>(m: Val<'k, f32>, base: Val<'k, f32>) -> Val<'k, f32> {
    ((m - base) * std::f32::consts::LOG2_E).ex2()
}
