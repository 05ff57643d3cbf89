//! Sums of the parts that a contraction was cut into.

use tilewright_codegen::build::Val;

use super::ScaledOutput;
use crate::tile::Array;
use crate::warps::ConsumerWarps;

/// A tile of a sum of parts:
/// `out[r, c] = residual[r, c] + ((parts[0][r, c] + parts[1][r, c]) + ..)`, rows of `width`
/// elements.
#[derive(Clone)]
pub struct PartSums<'k> {
    /// The parts, f32, accessed in one way.
    pub parts: Vec<Array<'k>>,
    /// What the sum is added to.
    pub residual: Option<Array<'k>>,
    /// The sum.
    pub out: Array<'k>,
    /// Where it is stored as the readers of its norm multiply it, too: then columns are multiples
    /// of eight.
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

/// Lanes that share a row.
const OF_ROW: u32 = 8;

impl<'k> PartSums<'k> {
    /// Computes the tile: eight lanes take a row, four elements each; all loads of a lane are in
    /// flight together.
    pub fn add_up(&self, team: ConsumerWarps<'k>) {
        let k = team.k;
        let [first, end] = self.columns;
        let together = team.threads() / OF_ROW;
        let mine = k.tid() / OF_ROW;
        let lane = k.tid() % OF_ROW * 4;
        for base in (0..self.rows).step_by(together as usize) {
            let row = mine + base;
            let Some(scaled) = self.scaled else {
                k.when(row.lt(self.rows), || {
                    k.for_step(first + lane, end, OF_ROW * 4, |column| {
                        self.store(self.first_row + row, column);
                    });
                });
                continue;
            };
            // Whole warps: lanes add up their squares.
            k.for_step(first, end, OF_ROW * 4, |start| {
                let column = start + lane;
                let row_at = self.first_row + row;
                let inside = row.lt(self.rows) & column.lt(end);
                scaled.store_of_four([row_at, column], inside, || self.store(row_at, column));
            });
        }
    }

    /// Stores four sums.
    fn store(&self, row: Val<'k, u32>, column: Val<'k, u32>) -> [Val<'k, f32>; 4] {
        let at = row * self.width + column;
        // On its way while the parts are looked for.
        let residual = self.residual.map(|residual| residual.load4(at));
        let parts = Array::load4_of_each(&self.parts, at);
        let sum = parts.into_iter().reduce(add).unwrap_or([column.builder().lit(0.0f32); 4]);
        let sum = residual.map_or(sum, |residual| add(residual, sum));
        self.out.store_run(at, sum);
        sum
    }
}

fn add<'k>(a: [Val<'k, f32>; 4], b: [Val<'k, f32>; 4]) -> [Val<'k, f32>; 4] {
    std::array::from_fn(|i| a[i] + b[i])
}
