//! Where activations come from: as they are, normalised, or merged from the splits of attention.

use tilewright_codegen::build::{Global, Ptr, RegArray, Shared, Val};

use super::array::{RELAXED, zero};
use super::team::Item;
use super::{Array, Float, Operand, Pages, Shares, Team, Unit};

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
    pub acc: Ptr<'k, Global, f32>,
    /// `m` and `l`, f32 `[rows, heads, splits, 2]`.
    pub stats: Ptr<'k, Global, f32>,
    /// Query heads.
    pub heads: u32,
    /// Splits.
    pub splits: u32,
    /// Dimensions of a head, a multiple of four.
    pub dim: u32,
    /// Whose tokens the rows are, where attention's pages say how many splits have any.
    pub pages: Option<Pages<'k>>,
}

/// Splits whose loads may be in flight for each of a round's elements.
const FIRST: u32 = 8;

/// Sums of squares of the rows, `[rows, warps]`.
pub(super) type Squares<'k> = Ptr<'k, Shared, f32>;

impl<'k> Input<'k> {
    /// The type that holds the activations without loss.
    pub fn float(self) -> Float {
        match self {
            Input::Plain(x) => x.float(),
            Input::RmsNorm { .. } | Input::Merge(_) => Float::F32,
        }
    }

    /// Brings rows `first..` into the operand; of a normalised input also the sums of squares. `area` is used meanwhile.
    pub(super) fn fill(
        self,
        team: Team<'k>,
        unit: Unit,
        first: Val<'k, u32>,
        to: Operand<'k>,
        squares: Squares<'k>,
        area: Ptr<'k, Shared, f32>,
    ) {
        let width = unit.k();
        for row in 0..to.rows() {
            let start = (first + row) * width;
            match self {
                Input::Plain(x) => {
                    rounds(team, width, |items| {
                        let loaded = x.gather(&items.iter().map(|item| start + item.at * 4).collect::<Vec<_>>());
                        for (item, x) in items.iter().zip(loaded) {
                            item.alone(|| to.store4(row, item.at * 4, x));
                        }
                    });
                }
                Input::RmsNorm { x, weight, .. } => {
                    let sum = team.k.var(0.0f32);
                    rounds(team, width, |items| {
                        let weights = weight.gather(&items.iter().map(|item| item.at * 4).collect::<Vec<_>>());
                        let loaded = x.gather(&items.iter().map(|item| start + item.at * 4).collect::<Vec<_>>());
                        for ((item, x), weight) in items.iter().zip(loaded).zip(weights) {
                            item.alone(|| {
                                sum.set(x.iter().fold(sum.get(), |sum, &x| x.fma(x, sum)));
                                to.store4(row, item.at * 4, std::array::from_fn(|i| x[i] * weight[i]));
                            });
                        }
                    });
                    let sum = sum.get().warp_reduce(|a, b| a + b);
                    let k = team.k;
                    k.when(k.lane().eq(0), || squares.at(k.warp()).at(row * team.warps).store(sum));
                }
                Input::Merge(merge) => {
                    let area = area.at(row * merge.heads * merge.splits);
                    merge.fill(team, width, first + row, row, to, area);
                }
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
    /// Stores `w_s / Σ w_s·l_s` of every split of every head of some rows: a thread for each head.
    pub(super) fn weigh(self, team: Team<'k>, first: Val<'k, u32>, rows: u32, to: Ptr<'k, Shared, f32>) {
        let k = team.k;
        team.each(rows * self.heads, |head| {
            let stats = self.stats.at((first * self.heads + head) * (self.splits * 2));
            let to = to.at(head * self.splits);
            let loaded: Vec<[Val<f32>; 2]> = (0..self.splits).map(|s| stats.at(2 * s).load_as(RELAXED)).collect();
            let most = loaded.iter().fold(k.lit(f32::NEG_INFINITY), |most, [m, _]| most.max(*m));
            // Without tokens every m is −∞ and every l is 0: any finite base will do.
            let base = most.eq(f32::NEG_INFINITY).select(0.0f32, most);
            let weights: Vec<Val<f32>> = loaded.iter().map(|[m, _]| weight(*m, base)).collect();
            let total = weights.iter().zip(&loaded).fold(k.lit(0.0f32), |total, (w, [_, l])| w.fma(*l, total));
            let inverse = total.eq(0.0).select(0.0f32, total.recip());
            weights.iter().zip(0u32..).for_each(|(w, s)| to.at(s).store(*w * inverse));
        });
    }

    /// How many of the first splits of a row may have tokens.
    fn active(self, row: Val<'k, u32>) -> Val<'k, u32> {
        match self.pages {
            None => row.builder().lit(self.splits),
            Some(pages) => {
                let shares = Shares::of(pages.position.load(row), pages.page_tokens, self.splits, pages.split_pages);
                let each = shares.each.max(1);
                (shares.pages + each - 1) / each
            }
        }
    }

    /// Four consecutive elements of every split.
    pub(super) fn load_all(self, row: Val<'k, u32>, column: Val<'k, u32>) -> Vec<[Val<'k, f32>; 4]> {
        let acc = self.place(row, column);
        (0..self.splits).map(|s| acc.at(s * self.dim).load_as(RELAXED)).collect()
    }

    /// Where the splits of an element begin.
    fn place(self, row: Val<'k, u32>, column: Val<'k, u32>) -> Ptr<'k, Global, f32> {
        let head = row * self.heads + column / self.dim;
        self.acc.at(head * (self.splits * self.dim) + column % self.dim)
    }

    /// Loads of the splits `from` of four consecutive elements; of splits that have no tokens, zeros.
    fn load(
        self,
        row: Val<'k, u32>,
        column: Val<'k, u32>,
        from: std::ops::Range<u32>,
        active: Val<'k, u32>,
    ) -> Vec<RegArray<'k, f32>> {
        let (k, acc) = (column.builder(), self.place(row, column));
        let parts: Vec<RegArray<f32>> = from.clone().map(|_| k.regs(4, 0.0f32)).collect();
        for (part, s) in parts.iter().zip(from) {
            k.when(active.gt(s), || {
                let loaded: [Val<f32>; 4] = acc.at(s * self.dim).load_as(RELAXED);
                loaded.into_iter().zip(0..).for_each(|(value, i)| part.set(i, value));
            });
        }
        parts
    }

    /// Brings a row into the operand. The first splits are on their way while weights are made.
    fn fill(self, team: Team<'k>, width: u32, row: Val<'k, u32>, at: u32, to: Operand<'k>, area: Ptr<'k, Shared, f32>) {
        let k = team.k;
        let active = self.active(row);
        let items: Vec<Item> = team.items(width / 4).into_iter().map(|item| item.clamped(width / 4)).collect();
        let first = 0..self.splits.min(FIRST);
        for (round, items) in items.chunks(2).enumerate() {
            let loaded: Vec<_> = items.iter().map(|item| self.load(row, item.at * 4, first.clone(), active)).collect();
            if round == 0 {
                self.weigh(team, row, 1, area);
                team.sync();
            }
            for (item, parts) in items.iter().zip(loaded) {
                let weights = area.at(item.at * 4 / self.dim * self.splits);
                let sums = k.regs(4, 0.0f32);
                let add = |start: u32, parts: &[RegArray<'k, f32>]| {
                    for (part, s) in parts.iter().zip(start..) {
                        let w = weights.at(s).load();
                        (0..4u32).for_each(|i| sums.set(i, w.fma(part.get(i), sums.get(i))));
                    }
                };
                add(0, &parts);
                for start in (FIRST..self.splits).step_by(FIRST as usize) {
                    let splits = start..self.splits.min(start + FIRST);
                    k.when(active.gt(start), || add(start, &self.load(row, item.at * 4, splits, active)));
                }
                item.alone(|| to.store4(at, item.at * 4, std::array::from_fn(|i| sums.get(i as u32))));
            }
        }
    }
}

/// Rounds of fours of a row whose loads are in flight together.
const ROUNDS: usize = 8;

/// Deals the fours of a row of `width` elements to the team, some rounds at a time. An item that does not exist stands for
/// the last that does: it may be loaded, and is not stored.
fn rounds<'k>(team: Team<'k>, width: u32, work: impl Fn(&[Item<'k>])) {
    let items: Vec<Item> = team.items(width / 4).into_iter().map(|item| item.clamped(width / 4)).collect();
    items.chunks(ROUNDS).for_each(work);
}

/// `exp(m − base)`.
fn weight<'k>(m: Val<'k, f32>, base: Val<'k, f32>) -> Val<'k, f32> {
    ((m - base) * std::f32::consts::LOG2_E).ex2()
}
