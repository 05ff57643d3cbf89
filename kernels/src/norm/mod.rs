//! The RMS norm of a row by one block: `out[i] = x[i] · weight[i] / √(mean(x²) + eps)`, sums in
//! f32; on wish of the sum of two rows, which is kept. A layer norm is that of `x − mean(x)`, to
//! which a bias may be added.
//!
//! | file | what it holds |
//! |---|---|
//! | `halves` | a norm that begins where a row is stored, and ends after the product of it |
//! | `launch` | the kernel, a block for each row |
//! | `trials` | random rows against the f64 oracle |

mod halves;
mod launch;
mod trials;

use tilewright_codegen::build::{IntoVal, Ptr, Shared, Val};

pub use halves::{NormEnd, NormStart, SLOT};
pub use launch::{NormKind, NormShape, add_rms_norm_rows, rms_norm_rows};
pub use trials::shipped;

use crate::tile::{Index, StoredRun};
use crate::warps::{ConsumerWarps, store_warp_sum, sum_of_warps};

/// The factor of a row of `width` elements whose squares add up to `squares`: one over the root of
/// their mean and eps.
#[track_caller]
pub(crate) fn rms_factor<'k>(squares: Val<'k, f32>, width: u32, eps: impl IntoVal<'k, f32>) -> Val<'k, f32> {
    (squares * (1.0 / width as f32) + eps).sqrt().recip()
}

/// Adds the squares of elements to a sum, one after the other.
#[track_caller]
pub(crate) fn add_squares<'k>(sum: Val<'k, f32>, x: impl IntoIterator<Item = Val<'k, f32>>) -> Val<'k, f32> {
    x.into_iter().fold(sum, |sum, x| x.fma(x, sum))
}

/// A row to normalise.
#[derive(Clone, Copy)]
pub struct RmsNorm<'k> {
    /// The row.
    pub x: StoredRun<'k>,
    /// The addend of the row, and the destination of the sum, which may be `x`; the sum is then
    /// normalised.
    pub added: Option<[StoredRun<'k>; 2]>,
    /// Scale of every element.
    pub weight: StoredRun<'k>,
    /// Whether the mean of the elements is subtracted from each before.
    pub centred: bool,
    /// The summand of every element of the norm.
    pub bias: Option<StoredRun<'k>>,
    /// The destination of the result; may be `x`.
    pub out: StoredRun<'k>,
    /// Elements.
    pub width: u32,
    /// Elements of a load, 1 or 4: four where all begin at a multiple of four elements.
    pub vector: u32,
    /// Added to the mean square.
    pub eps: f32,
}

/// Normalises a row; `sums` has room for a number for each warp, and is free again after
/// the next barrier of the consumers.
pub fn rms_norm<'k>(consumers: ConsumerWarps<'k>, sums: Ptr<'k, Shared, f32>, row: RmsNorm<'k>) {
    let k = consumers.k;
    let sum = k.var(0.0f32);
    let by_fours = if row.vector == 4 { row.width / 4 } else { 0 };
    // Each thread reads the sums that it wrote.
    let [added, summed] = row.added.unwrap_or([row.x; 2]);
    let arrays = [row.x, row.weight, row.out, added, summed];
    let fours_of = arrays.map(fours);
    let rest = arrays.map(|array| array.inside());
    let left = |item: &dyn Fn([Index<'k>; 1])| {
        consumers.each(row.width - by_fours * 4, |at| item([Index::any(at) + by_fours * 4]));
    };
    // What is added is added by the first pass over the row; others read the sum.
    let four = |at: Val<'k, u32>, is_first: bool| {
        if !is_first {
            return fours_of[4].load([at.into()]);
        }
        let mut x = fours_of[0].load([at.into()]);
        if row.added.is_some() {
            let added = fours_of[3].load([at.into()]);
            x = std::array::from_fn(|i| x[i] + added[i]);
            fours_of[4].store([at.into()], x);
        }
        x
    };
    let one = |at: [Index<'k>; 1], is_first: bool| {
        if !is_first {
            return rest[4].load(at)[0];
        }
        let [mut x] = rest[0].load(at);
        if row.added.is_some() {
            let [added] = rest[3].load(at);
            x += added;
            rest[4].store(at, [x]);
        }
        x
    };
    let mean = row.centred.then(|| {
        let sum = k.var(0.0f32);
        consumers.each(by_fours, |at| {
            let x = four(at, true);
            sum.set(x.into_iter().fold(sum.get(), |sum, x| sum + x));
        });
        left(&|at| {
            let x = one(at, true);
            sum.set(sum.get() + x);
        });
        store_warp_sum(sums, sum.get());
        consumers.sync();
        let mean = sum_of_warps(sums, consumers.warps, 1) * (1.0 / row.width as f32);
        // The sums of squares take the place of these.
        consumers.sync();
        mean
    });
    let centred = |x: Val<'k, f32>| mean.map_or(x, |mean| x - mean);
    consumers.each(by_fours, |at| {
        let x = four(at, mean.is_none()).map(centred);
        sum.set(add_squares(sum.get(), x));
    });
    left(&|at| {
        let x = centred(one(at, mean.is_none()));
        sum.set(add_squares(sum.get(), [x]));
    });
    store_warp_sum(sums, sum.get());
    consumers.sync();
    let scale = rms_factor(sum_of_warps(sums, consumers.warps, 1), row.width, row.eps);
    let bias_fours = row.bias.map(fours);
    consumers.each(by_fours, |at| {
        let [x, weight] = [4, 1].map(|of| fours_of[of].load([at.into()]));
        let bias = bias_fours.map(|bias| bias.load([at.into()]));
        let normed = |i: usize| centred(x[i]) * scale * weight[i];
        let y = std::array::from_fn(|i| bias.map_or(normed(i), |bias| normed(i) + bias[i]));
        fours_of[2].store([at.into()], y);
    });
    left(&|at| {
        let [[x], [weight]] = [4, 1].map(|of| rest[of].load(at));
        let y = centred(x) * scale * weight;
        let bias = row.bias.map(|bias| bias.inside().load(at)[0]);
        rest[2].store(at, [bias.map_or(y, |bias| y + bias)]);
    });
}

/// The row in whole vectors of four.
fn fours<'k>(row: StoredRun<'k>) -> StoredRun<'k, 4> {
    row.whole_and_rest(0, 4)[0].vectorize::<0, 4>().inside()
}
