//! A norm in two halves, without a launch of its own.
//!
//! `norm(x)·Wᵀ = rstd · ((x ⊙ g)·Wᵀ)` for the norm's weight g, with one factor
//! `rstd = 1/√(mean(x²) + eps)` for each row. So what stores a row of x also stores `x ⊙ g` and the
//! sum of squares of every [`SLOT`] elements ([`NormStart`]). The following product multiplies
//! `x ⊙ g`, adds the sums of a row in their order, and scales its own sums ([`NormEnd`]). A number
//! is rounded to bf16 once, as a norm's result is: the relative error is the same.

use tilewright_codegen::build::{Global, Ptr, Shared, Val};

use super::{add_squares, rms_factor};
use crate::tile::Array;
use crate::warps::ConsumerWarps;

/// Elements of a row whose squares are one sum.
pub const SLOT: u32 = 32;
/// Elements that a thread has of a row.
const RUN: usize = 4;

/// The first half of a norm, where a row is stored.
#[derive(Clone, Copy)]
pub struct NormStart<'k> {
    /// The norm's weight.
    pub weight: Array<'k>,
    /// `x ⊙ g`, `[rows, width]`.
    pub out: Array<'k>,
    /// Sums of squares, `[width / 32, rows]`.
    pub squares: Ptr<'k, Global, f32>,
    /// Rows.
    pub rows: Val<'k, u32>,
}

impl<'k> NormStart<'k> {
    /// Begins the norm of four consecutive elements of a row: from `column` on, which is element
    /// `at` of all. By whole warps: eight lanes that follow each other have the elements of a slot.
    #[track_caller]
    pub(crate) fn store(self, [row, column, at]: [Val<'k, u32>; 3], x: [Val<'k, f32>; RUN]) {
        self.store_weighted([row, column, at], x, self.weight(column));
    }

    /// The norm's weight of four consecutive elements of a row, from `column` on.
    #[track_caller]
    pub(crate) fn weight(self, column: Val<'k, u32>) -> [Val<'k, f32>; RUN] {
        self.weight.load4(column)
    }

    /// [`NormStart::store`] with a weight that is loaded.
    #[track_caller]
    pub(crate) fn store_weighted(
        self,
        [row, column, at]: [Val<'k, u32>; 3],
        x: [Val<'k, f32>; RUN],
        weight: [Val<'k, f32>; RUN],
    ) {
        self.out.store_run::<RUN>(at, core::array::from_fn(|i| x[i] * weight[i]));
        let mut sum = add_squares(x[0] * x[0], x[1..].iter().copied());
        for bits in [1u32, 2, 4] {
            sum = sum + sum.shfl_bfly(bits);
        }
        let slot = column / SLOT * self.rows + row;
        row.builder().when((column % SLOT).eq(0), || self.squares.at(slot).store(sum));
    }
}

/// The second half of a norm, after the product.
#[derive(Clone, Copy)]
pub struct NormEnd<'k> {
    /// Sums of squares, `[width / 32, rows]`.
    pub squares: Ptr<'k, Global, f32>,
    /// Added to the mean square.
    pub eps: Val<'k, f32>,
    /// Elements of a row of x.
    pub width: u32,
    /// Rows.
    pub rows: u32,
    /// Threads that share the sums of a row: a divisor of its slots.
    pub parts: u32,
    /// Memory for `parts · rows` numbers, which receives the factors of the rows.
    pub factors: Ptr<'k, Shared, f32>,
}

impl<'k> NormEnd<'k> {
    /// Threads that share the sums of a row, of `threads` threads.
    pub(crate) fn parts(threads: u32, width: u32, rows: u32) -> u32 {
        let most = (threads / rows).max(1).ilog2();
        let divides = |parts: &u32| (width / SLOT).is_multiple_of(*parts);
        (0..=most).rev().map(|log| 1 << log).find(divides).unwrap_or(1)
    }

    /// Adds the sums of every row in their order, and makes the factors; it ends with a barrier of
    /// the warps.
    pub(crate) fn prepare(self, consumers: ConsumerWarps<'k>) {
        let NormEnd { squares, width, rows, parts, factors, .. } = self;
        let slots = width / SLOT / parts;
        consumers.each(parts * rows, |item| {
            let first = squares.at(item / rows * (slots * rows) + item % rows);
            let sums: Vec<Val<f32>> = (0..slots).map(|slot| first.at(slot * rows).load()).collect();
            factors.at(item).store(sums[1..].iter().fold(sums[0], |sum, &more| sum + more));
        });
        consumers.sync();
        // A thread overwrites what it alone reads.
        consumers.each(rows, |row| {
            let part = |part: u32| factors.at(row + part * rows).load();
            let sum = (1..parts).fold(part(0), |sum, next| sum + part(next));
            factors.at(row).store(rms_factor(sum, width, self.eps));
        });
        consumers.sync();
    }
}
