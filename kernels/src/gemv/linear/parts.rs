//! Sums of the parts that a contraction was cut into.

use tilewright_codegen::build::Val;

use crate::tile::Array;
use crate::warps::ConsumerWarps;

/// A tile of a sum of parts: `out[r, c] = residual[r, c] + ((parts[0][r, c] + parts[1][r, c]) + ..)`, rows of `width`
/// elements.
#[derive(Clone)]
pub struct PartSums<'k> {
    /// The parts, f32, accessed in one way.
    pub parts: Vec<Array<'k>>,
    /// What the sum is added to.
    pub residual: Option<Array<'k>>,
    /// The sum.
    pub out: Array<'k>,
    /// Rows of the tile.
    pub rows: u32,
    /// Elements of a row, a multiple of four.
    pub width: u32,
    /// First row.
    pub first_row: Val<'k, u32>,
    /// Columns of the tile, multiples of four.
    pub columns: [Val<'k, u32>; 2],
}

/// Lanes that share a row.
const OF_ROW: u32 = 8;

impl<'k> PartSums<'k> {
    /// Computes the tile: eight lanes take a row, four elements each; all loads of a lane are in flight together.
    pub fn add_up(&self, team: ConsumerWarps<'k>) {
        let (k, [first, end]) = (team.k, self.columns);
        let together = team.threads() / OF_ROW;
        let (mine, lane) = (k.tid() / OF_ROW, k.tid() % OF_ROW * 4);
        for base in (0..self.rows).step_by(together as usize) {
            let row = mine + base;
            k.when(row.lt(self.rows), || {
                k.for_step(first + lane, end, OF_ROW * 4, |column| {
                    let at = (self.first_row + row) * self.width + column;
                    let parts = Array::load4_of_each(&self.parts, at);
                    let residual = self.residual.map(|residual| residual.load4(at));
                    let sum = parts.into_iter().reduce(add).unwrap_or([k.lit(0.0f32); 4]);
                    self.out.store_run(at, residual.map_or(sum, |residual| add(residual, sum)));
                });
            });
        }
    }
}

fn add<'k>(a: [Val<'k, f32>; 4], b: [Val<'k, f32>; 4]) -> [Val<'k, f32>; 4] {
    std::array::from_fn(|i| a[i] + b[i])
}
