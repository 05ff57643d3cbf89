//! The sum of parts that devices have sent each other, on one of them.

use tilewright_codegen::build::Val;

use crate::tile::{Array, MAX_DEVICES};
use crate::warps::ConsumerWarps;

/// A tile of a sum of parts: columns of some rows.
#[derive(Clone, Copy)]
pub struct SumOfParts<'k> {
    /// The parts, f32 `[rows, width]`, in the order of their sum; of one way of access.
    pub parts: [Option<Array<'k>>; MAX_DEVICES],
    /// What the sum is added to, `[rows, width]`.
    pub residual: Option<Array<'k>>,
    /// The sum, `[rows, width]`.
    pub out: Array<'k>,
    /// Columns of a row.
    pub width: u32,
    /// Rows.
    pub rows: u32,
    /// First row.
    pub first_row: Val<'k, u32>,
    /// First column, a multiple of four.
    pub first: Val<'k, u32>,
    /// Where the columns end, a multiple of four.
    pub end: Val<'k, u32>,
}

/// `out = residual + ((part₀ + part₁) + ..)`, rounded in f32 at each sum.
pub fn sum_of_parts<'k>(team: ConsumerWarps<'k>, sum: SumOfParts<'k>) {
    let k = team.k;
    let parts: Vec<Array> = sum.parts.into_iter().flatten().collect();
    for row in 0..sum.rows {
        let row = (sum.first_row + row) * sum.width;
        k.for_step(sum.first + k.tid() * 4, sum.end, team.threads() * 4, |column| {
            let at = row + column;
            let parts = Array::load4_of_each(&parts, at);
            let add = |a: [Val<'k, f32>; 4], b: [Val<'k, f32>; 4]| std::array::from_fn(|i| a[i] + b[i]);
            let Some(all) = parts.into_iter().reduce(add) else { return };
            let all = sum.residual.map_or(all, |residual| add(residual.load4(at), all));
            sum.out.store_run(at, all);
        });
    }
}
