//! Sums of the parts that a contraction was cut into.

use tilewright_codegen::build::{Ptr, Shared, Val};

use super::ScaledOutput;
use crate::norm::{add_squares, rms_factor};
use crate::tile::Array;
use crate::warps::{ConsumerWarps, store_warp_sum, sum_of_warps};

/// A tile of a sum of parts:
/// `out[r, c] = residual[r, c] + ((parts[0][r, c] + parts[1][r, c]) + ..)`, rows of `width`
/// elements. With a [`PostNorm`] it is
/// `out[r, c] = residual[r, c] + norm(parts[0][r] + parts[1][r] + ..)[c]`.
#[derive(Clone)]
pub struct PartSums<'k> {
    /// The parts, f32, accessed in one way.
    pub parts: Vec<Array<'k>>,
    /// The norm of the sum, before it is added.
    pub norm: Option<PostNorm<'k>>,
    /// The residual to which the sum is added.
    pub residual: Option<Array<'k>>,
    /// The sum.
    pub out: Array<'k>,
    /// The destination of the sum as split activations, for the readers of its norm; columns are
    /// then multiples of eight.
    pub scaled: Option<ScaledOutput<'k>>,
    /// Rows of the tile.
    pub rows: u32,
    /// Elements of a row, a multiple of four.
    pub width: u32,
    /// First row.
    pub first_row: Val<'k, u32>,
    /// Columns of the tile, multiples of four.
    pub columns: [Val<'k, u32>; 2],
}

/// The norm of a sum of parts, before it is added to the residual stream: RMS, or layer where it has a
/// [`Centre`]. A task that stores some columns of a row reads whole rows of the parts.
#[derive(Clone, Copy)]
pub struct PostNorm<'k> {
    /// Scale of every element, `[width]`.
    pub weight: Array<'k>,
    /// Added to the mean square.
    pub eps: f32,
    /// Room for sums of squares: as many f32 as the tile has rows or the consumer warps has warps, whichever
    /// is more. It is free again once the consumer warps has met.
    pub squares: Ptr<'k, Shared, f32>,
    /// The mean that is subtracted from the sum, if it is.
    pub centre: Option<Centre<'k>>,
}

/// What makes a layer norm of an RMS norm: the mean of a row is subtracted first.
#[derive(Clone, Copy)]
pub struct Centre<'k> {
    /// Room for sums of elements, as much as for those of squares.
    pub sums: Ptr<'k, Shared, f32>,
    /// The summand of every element of the norm, `[width]`.
    pub bias: Option<Array<'k>>,
}

/// How a row is normalised.
#[derive(Clone, Copy)]
struct RowScale<'k> {
    mean: Option<Val<'k, f32>>,
    scale: Val<'k, f32>,
}

/// Lanes that share a row.
const OF_ROW: u32 = 8;
/// Loads of four elements of a lane that are in flight together while squares are added up.
const IN_FLIGHT: u32 = 8;

/// A function of four elements of a row that is added up.
type RowTerm<'k> = Box<dyn Fn([Val<'k, f32>; 4]) -> Val<'k, f32> + 'k>;

impl<'k> PartSums<'k> {
    /// Computes the tile: eight lanes take a row, four elements each; all loads of a lane are in
    /// flight together.
    pub fn add_up(&self, consumers: ConsumerWarps<'k>) {
        let k = consumers.k;
        let [first, end] = self.columns;
        let norm = self.norm.map(|norm| (norm, self.add_squares(consumers, norm)));
        // The mean of a row is that of whole rows by as many warps.
        let mean = |row: Val<'k, u32>, warps: u32| {
            let centre = self.norm?.centre?;
            Some(self.mean(centre, row, warps))
        };
        let together = consumers.threads() / OF_ROW;
        let mine = k.tid() / OF_ROW;
        let lane = k.tid() % OF_ROW * 4;
        for base in (0..self.rows).step_by(together as usize) {
            let row = mine + base;
            let scale = norm.map(|(norm, warps)| {
                let squares = norm.squares.at(row.min(self.rows - 1) * warps);
                let scale = rms_factor(sum_of_warps(squares, warps, 1), self.width, norm.eps);
                RowScale { mean: mean(row.min(self.rows - 1), warps), scale }
            });
            let Some(scaled) = self.scaled else {
                k.when(row.lt(self.rows), || {
                    k.for_step(first + lane, end, OF_ROW * 4, |column| {
                        self.store([self.first_row + row, column], scale);
                    });
                });
                continue;
            };
            // Whole warps: lanes add up their squares.
            k.for_step(first, end, OF_ROW * 4, |start| {
                let column = start + lane;
                let row_at = self.first_row + row;
                let inside = row.lt(self.rows) & column.lt(end);
                scaled.store_of_four([row_at, column], inside, || self.store([row_at, column], scale));
            });
        }
    }

    /// The mean of a row whose elements were added up by that number of warps.
    fn mean(&self, centre: Centre<'k>, row: Val<'k, u32>, warps: u32) -> Val<'k, f32> {
        sum_of_warps(centre.sums.at(row * warps), warps, 1) * (1.0 / self.width as f32)
    }

    /// Adds up the squares of whole rows of the sum, less their mean where there is a centre, each row
    /// by the same number of warps, and returns that number; all warps meet.
    fn add_squares(&self, consumers: ConsumerWarps<'k>, norm: PostNorm<'k>) -> u32 {
        let zero = consumers.k.lit(0.0f32);
        let Some(centre) = norm.centre else {
            return self.add_rows(consumers, norm.squares, &|_, _| Box::new(move |sum| add_squares(zero, sum)));
        };
        self.add_rows(consumers, centre.sums, &|_, _| Box::new(move |sum| sum.into_iter().fold(zero, |a, b| a + b)));
        self.add_rows(consumers, norm.squares, &|row, warps| {
            let mean = self.mean(centre, row, warps);
            Box::new(move |sum| add_squares(zero, sum.map(|x| x - mean)))
        })
    }

    /// Adds up a function of every four elements of whole rows of the sum, as `of` gives it for a row
    /// that a number of warps share; returns that number. All warps meet.
    fn add_rows(
        &self,
        consumers: ConsumerWarps<'k>,
        sums: Ptr<'k, Shared, f32>,
        of: &dyn Fn(Val<'k, u32>, u32) -> RowTerm<'k>,
    ) -> u32 {
        let k = consumers.k;
        let warps = (consumers.warps / self.rows.max(1)).max(1);
        let lane = k.tid() % (warps * 32);
        let fours = self.width / 4;
        let rounds = fours.div_ceil(warps * 32);
        let at_once = (IN_FLIGHT / self.parts.len().max(1) as u32).min(rounds).max(1);
        for base in (0..self.rows).step_by((consumers.warps / warps) as usize) {
            let row = k.warp() / warps + base;
            k.when(row.lt(self.rows), || {
                let start = (self.first_row + row) * self.width;
                let term = of(row, warps);
                let all = k.var(0.0f32);
                k.for_step(0u32, rounds, at_once, |round| {
                    let number = |i: u32| (round + i) * (warps * 32) + lane;
                    let indexes: Vec<_> =
                        (0..at_once).map(|i| start + number(i).min(fours.saturating_sub(1)) * 4).collect();
                    for (i, parts) in (0..at_once).zip(Array::load4_of_each(&self.parts, &indexes)) {
                        let sum = parts.into_iter().reduce(add);
                        let value = sum.map_or(k.lit(0.0f32), &term);
                        all.set(all.get() + number(i).lt(fours).select(value, 0.0f32));
                    }
                });
                store_warp_sum(sums.at(base * warps), all.get());
            });
        }
        consumers.sync();
        warps
    }

    /// Stores four sums, normalised by `scale` where there is a norm.
    fn store(&self, [row, column]: [Val<'k, u32>; 2], scale: Option<RowScale<'k>>) -> [Val<'k, f32>; 4] {
        let at = row * self.width + column;
        // On its way while the parts are looked for.
        let residual = self.residual.map(|residual| residual.load4(at));
        let weight = self.norm.map(|norm| norm.weight.load4(column));
        let bias = self.norm.and_then(|norm| norm.centre?.bias).map(|bias| bias.load4(column));
        let parts = Array::load4_of_each(&self.parts, &[at]).into_iter().flatten();
        let sum = parts.reduce(add).unwrap_or([column.builder().lit(0.0f32); 4]);
        let sum = match (scale, weight) {
            (Some(RowScale { mean, scale }), Some(weight)) => std::array::from_fn(|i| {
                let normed = mean.map_or(sum[i], |mean| sum[i] - mean) * scale * weight[i];
                bias.map_or(normed, |bias| normed + bias[i])
            }),
            _ => sum,
        };
        let sum = residual.map_or(sum, |residual| add(residual, sum));
        self.out.store_run(at, sum);
        sum
    }
}

fn add<'k>(a: [Val<'k, f32>; 4], b: [Val<'k, f32>; 4]) -> [Val<'k, f32>; 4] {
    std::array::from_fn(|i| a[i] + b[i])
}
