//! The RMS norm of a row by one block: `out[i] = x[i] · weight[i] / √(mean(x²) + eps)`, sums in f32.
//!
//! | file | what it holds |
//! |---|---|
//! | `launch` | the kernel, a block for each row |
//! | `trials` | random rows against the f64 oracle |

mod launch;
mod trials;

use tilewright_codegen::build::{Ptr, Shared, Val};

pub use launch::{NormShape, rms_norm_rows};
pub use trials::shipped;

use crate::decode::{Array, ConsumerWarps};

/// A row to normalise.
#[derive(Clone, Copy)]
pub struct RmsNorm<'k> {
    /// The row.
    pub x: Array<'k>,
    /// Scale of every element.
    pub weight: Array<'k>,
    /// Where the result goes; may be `x`.
    pub out: Array<'k>,
    /// Elements.
    pub width: u32,
    /// Elements of a load, 1 or 4: four where all three arrays begin at a multiple of four elements.
    pub vector: u32,
    /// Added to the mean square.
    pub eps: f32,
}

/// Normalises a row; `sums` has room for a number for each warp, and is free again once the team has met.
pub fn rms_norm<'k>(team: ConsumerWarps<'k>, sums: Ptr<'k, Shared, f32>, row: RmsNorm<'k>) {
    let k = team.k;
    let sum = k.var(0.0f32);
    row.each(team, |at| {
        let squares = row.x.load4(at).into_iter().fold(sum.get(), |sum, x| x.fma(x, sum));
        sum.set(squares);
    });
    row.each_left(team, |at| {
        let x = row.x.load(at);
        sum.set(x.fma(x, sum.get()));
    });
    let sum = sum.get().warp_reduce(|a, b| a + b);
    k.when(k.lane().eq(0), || sums.at(k.warp()).store(sum));
    team.sync();
    let sum = (0..team.warps).fold(k.lit(0.0f32), |sum, warp| sum + sums.at(warp).load());
    let scale = (sum * (1.0 / row.width as f32) + row.eps).sqrt().recip();
    row.each(team, |at| {
        let (x, weight) = (row.x.load4(at), row.weight.load4(at));
        row.out.store4(at, std::array::from_fn(|i| x[i] * scale * weight[i]));
    });
    row.each_left(team, |at| row.out.store(at, row.x.load(at) * scale * row.weight.load(at)));
}

impl<'k> RmsNorm<'k> {
    /// Elements that come by fours.
    fn by_fours(self) -> u32 {
        if self.vector == 4 { self.width / 4 * 4 } else { 0 }
    }

    /// Deals out the elements that come by fours.
    fn each(self, team: ConsumerWarps<'k>, item: impl Fn(Val<'k, u32>)) {
        team.each(self.by_fours() / 4, |at| item(at * 4));
    }

    /// Deals out the others.
    fn each_left(self, team: ConsumerWarps<'k>, item: impl Fn(Val<'k, u32>)) {
        let first = self.by_fours();
        team.each(self.width - first, |at| item(at + first));
    }
}
