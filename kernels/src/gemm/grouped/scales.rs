//! Operands of 8 bits by blocks: a scale for each 128 elements of a row of A, and for each 128×128
//! elements of weights.
//!
//! The tensor cores add up the 128 products of a step; f32 registers take in that sum times both
//! scales, as DeepSeek-V3 computes (arXiv:2412.19437, 3.3).

use tilewright_codegen::build::{Builder, Global, Ptr, RegArray, Val};

use super::rows::source_row;
use super::schedule::GroupTile;
use crate::mma::{Accumulator, OutputType};
use crate::tile::Index;

/// Elements of a block along each index: those of a step of K, and columns of a warpgroup's part.
pub(super) const BLOCK: u32 = 128;

/// The scales of a product.
#[derive(Clone, Copy)]
pub(super) struct BlockScales<'k> {
    pub k: &'k Builder,
    /// `[rows of A, blocks of K]`.
    pub rows: Ptr<'k, Global, f32>,
    /// `[groups, 1 or 2, blocks of N, blocks of K]`: gates and what they multiply.
    pub weights: Ptr<'k, Global, f32>,
    /// The order of the rows, and the divisor of its numbers; none where rows are contiguous.
    pub order: Option<(Ptr<'k, Global, u32>, u32)>,
    /// Columns of the result.
    pub n: Val<'k, u32>,
    /// Blocks of K: steps.
    pub steps: Val<'k, u32>,
    pub gated: bool,
}

/// Steps whose scales the four lanes of a row load at a time, one each: lanes that loaded the same step
/// would take memory's turns from the operands of the products.
const TOGETHER: u32 = 4;

/// The scales that a thread needs for its sums of a tile.
pub(super) struct TileScales<'k> {
    of: BlockScales<'k>,
    /// Where the scales of the thread's rows, then those of its weights begin.
    at: Vec<Ptr<'k, Global, f32>>,
    rows: usize,
    /// One of the current steps', and one of the steps' after them.
    now: RegArray<'k, f32>,
    next: RegArray<'k, f32>,
    /// The row, and the run of columns in one block of weights, of each register.
    places: Vec<(usize, usize)>,
}

/// The scales of a step, by row and run of columns.
pub(super) type StepScales<'k> = Vec<Vec<Val<'k, f32>>>;

/// Scales of a step that are kept until the next.
pub(super) struct KeptScales<'k> {
    registers: RegArray<'k, f32>,
    runs: usize,
}

impl<'k> KeptScales<'k> {
    #[track_caller]
    pub fn get(&self) -> StepScales<'k> {
        let all: Vec<_> = (0..self.registers.len()).map(|number| self.registers.get(number)).collect();
        all.chunks(self.runs).map(<[_]>::to_vec).collect()
    }

    #[track_caller]
    pub fn set(&self, scales: &StepScales<'k>) {
        (0..).zip(scales.iter().flatten()).for_each(|(number, scale)| self.registers.set(number, *scale));
    }
}

impl<'k> BlockScales<'k> {
    /// The scales of sums whose first stands at `corner` of the result, with those of the first steps
    /// under way. `columns` are those of products in the part.
    #[track_caller]
    pub fn tile<S: OutputType>(
        self,
        sums: Accumulator<'k, S>,
        thread: Index<'k>,
        corner: [Val<'k, u32>; 2],
        tile: &GroupTile<'k>,
    ) -> TileScales<'k> {
        let k = self.k;
        let halves = if self.gated { 2 } else { 1 };
        // Columns of the result that the part makes, in runs that lie in one block each: parts begin at
        // multiples of their columns.
        let made = sums.extents()[1] / halves;
        let run = (1 << made.trailing_zeros()).min(BLOCK);
        let mut rows: Vec<Index<'k>> = Vec::new();
        let mut places = Vec::new();
        for pair in sums.pairs(thread) {
            let known = rows.iter().position(|row| row.is_same(pair.row));
            let row = known.unwrap_or_else(|| {
                rows.push(pair.row);
                rows.len() - 1
            });
            places.extend([(row, (pair.column.constant() / run) as usize); 2]);
        }
        let row = |row: &Index<'k>| {
            let number = (*row + corner[0]).get(k).min(tile.end - 1);
            self.rows.at(source_row(number, self.order).mul_wide(self.steps))
        };
        let mut at: Vec<_> = rows.iter().map(row).collect();
        // A part past the last column has products that are not written.
        let blocks = (self.n + (BLOCK - 1)) / BLOCK;
        for half in 0..halves {
            for first in (0..made).step_by(run as usize) {
                let block = ((corner[1] + first) / BLOCK).min(blocks - 1);
                let number = (tile.group * halves + half) * blocks + block;
                at.push(self.weights.at(number.mul_wide(self.steps)));
            }
        }
        let [now, next] = [(); 2].map(|()| k.regs_unset(at.len() as u32));
        let scales = TileScales { of: self, at, rows: rows.len(), now, next, places };
        scales.load(k.lit(0));
        scales
    }
}

impl<'k> TileScales<'k> {
    /// Loads the scales of the steps from `first` on.
    #[track_caller]
    fn load(&self, first: Val<'k, u32>) {
        let step = (first + self.of.k.lane() % TOGETHER).min(self.of.steps - 1);
        for (number, at) in (0..).zip(&self.at) {
            self.next.set(number, at.at(step).load());
        }
    }

    /// The scales of a step, by row and run of columns; steps are asked for in order. Those of later
    /// steps are under way.
    #[track_caller]
    pub fn step(&self, step: Val<'k, u32>) -> StepScales<'k> {
        let turn = step % TOGETHER;
        self.of.k.moving().when(turn.eq(0), || self.advance(step));
        self.of_turn(turn)
    }

    /// Calls `body` with the scales of each step.
    ///
    /// The steps whose scales are loaded together are a loop of their own: where a branch decides in
    /// each step whether it loads, `ptxas` copies what was loaded after the branch, and waits for it.
    #[track_caller]
    pub fn each(&self, body: impl FnOnce(&StepScales<'k>)) {
        let BlockScales { k, steps, .. } = self.of;
        k.moving().for_step(k.lit(0), steps, TOGETHER, |first| {
            self.advance(first);
            k.moving().for_(0, (steps - first).min(TOGETHER), |turn| body(&self.of_turn(turn)));
        });
    }

    /// Takes the scales that were loaded as those of the steps from `first` on, and loads the next.
    #[track_caller]
    fn advance(&self, first: Val<'k, u32>) {
        (0..self.at.len() as u32).for_each(|number| self.now.set(number, self.next.get(number)));
        self.load(first + TOGETHER);
    }

    /// The scales of a step among those that were loaded together.
    #[track_caller]
    fn of_turn(&self, turn: Val<'k, u32>) -> StepScales<'k> {
        let k = self.of.k;
        let from = k.lane() / TOGETHER * TOGETHER + turn;
        let now: Vec<_> = (0..self.at.len() as u32).map(|number| self.now.get(number).shfl_idx(from)).collect();
        let (rows, weights) = now.split_at(self.rows);
        rows.iter().map(|row| weights.iter().map(|weight| *row * *weight).collect()).collect()
    }

    /// Registers for the scales of a step, which are zero.
    #[track_caller]
    pub fn keep_none(&self) -> KeptScales<'k> {
        let runs = self.at.len() - self.rows;
        KeptScales { registers: self.of.k.regs((self.rows * runs) as u32, 0f32), runs }
    }

    /// Adds a step's sums of a row of atoms times their scales to the totals.
    #[track_caller]
    pub fn add<S: OutputType>(
        &self,
        totals: Accumulator<'k, S>,
        sums: Accumulator<'k, S>,
        row_of_atoms: u32,
        scales: &StepScales<'k>,
    ) {
        let totals = totals.rows_of_atoms(row_of_atoms, 1);
        let count = sums.registers().len();
        let places = self.places.iter().skip((row_of_atoms * count) as usize);
        for (register, &(row, run)) in (0..count).zip(places) {
            let total = totals.get(register).cast::<f32>();
            let total = sums.get(register).cast::<f32>().fma(scales[row][run], total);
            totals.registers().set(register, total.cast::<S>());
        }
    }
}
