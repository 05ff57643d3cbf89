//! Reads staged sums and finishes them, a run of consecutive results at a time. If k is shared, the
//! sums of each share are stored separately.
//!
//! Results may lie where what is added to them lay, so no load passes a store of another run.
//! Therefore a thread loads what several runs are made of before it stores the first.

use tilewright_codegen::build::{Ptr, Shared, Val};

use super::WeightRows;
use super::finish::{HopperResults, RunOperands, RunSums};
use crate::gemv::hopper::share::{BlockShare, BlockTile};
use crate::warps::ConsumerWarps;
use crate::weights::Strip;

/// Rounds of runs that are unrolled.
const ROUNDS: u32 = 8;
/// Numbers that a thread loads before it stores.
const NUMBERS: u32 = 64;

/// The runs of some staged columns of a tile.
#[derive(Clone, Copy)]
pub(super) struct ResultRuns<'a, 'k, const RUN: usize> {
    block: BlockShare<'a, 'k>,
    tile: BlockTile<'k>,
    /// The first column.
    first: u32,
    results: &'a HopperResults<'k>,
}

/// A run of results.
#[derive(Clone, Copy)]
struct ResultRun<'k> {
    /// Its place among staged sums.
    at: Val<'k, u32>,
    /// The vector, and the packed row.
    is: [Val<'k, u32>; 2],
    /// Whether there is such a vector, where the last tile has fewer; else it is the last.
    exists: Option<Val<'k, bool>>,
}

impl<'k> ResultRun<'k> {
    /// Records what is done where there is such a vector.
    fn alone(self, work: impl FnOnce()) {
        match self.exists {
            Some(exists) => exists.builder().moving().when(exists, work),
            None => work(),
        }
    }
}

impl<'a, 'k, const RUN: usize> ResultRuns<'a, 'k, RUN> {
    /// The runs of a tile's columns from `first` on: of all its rows, or of the block's share of
    /// them.
    pub fn of(block: BlockShare<'a, 'k>, tile: BlockTile<'k>, first: u32, results: &'a HopperResults<'k>) -> Self {
        ResultRuns { block, tile, first, results }
    }

    /// Operands of this thread's runs, in the order of its rounds; none where there are too many,
    /// or rows that there are not.
    pub fn ask(self, consumers: ConsumerWarps<'k>) -> Option<Vec<RunOperands<'k, RUN>>> {
        let rounds = self.count().div_ceil(consumers.threads());
        let fits = self.results.asked(RUN as u32) * rounds <= NUMBERS && rounds <= ROUNDS && self.is_whole();
        let operands = |at| self.results.ask(self.block.plan, self.run(at).is);
        fits.then(|| {
            consumers.items(self.count()).into_iter().map(|item| operands(item.clamped(self.count()).at)).collect()
        })
    }

    /// Finishes and stores them, with operands that were loaded ahead or are loaded now.
    pub fn store(
        self,
        consumers: ConsumerWarps<'k>,
        shares: &[Ptr<'k, Shared, f32>],
        asked: Option<Vec<RunOperands<'k, RUN>>>,
    ) {
        let plan = self.block.plan;
        let count = self.count();
        if !self.is_whole() || count.div_ceil(consumers.threads()) > ROUNDS {
            return consumers.each(count, |item| self.alone(shares, self.run(item)));
        }
        let numbers = RUN as u32 * if self.others().is_some() { 2 } else { 1 } + self.results.asked(RUN as u32);
        let mut asked = asked.map(Vec::into_iter);
        for items in consumers.items(count).chunks((NUMBERS / numbers).max(1) as usize) {
            let load = |at: Val<'k, u32>| {
                let run = self.run(at);
                let asked = asked.as_mut().and_then(Iterator::next);
                (run, self.sums(shares, run), asked.unwrap_or_else(|| self.results.ask(plan, run.is)))
            };
            let loaded: Vec<_> = items.iter().map(|item| item.clamped(count).at).map(load).collect();
            for (item, (run, sums, operands)) in items.iter().zip(loaded) {
                item.alone(|| run.alone(|| self.results.store(plan, run.is, sums, &operands)));
            }
        }
    }

    /// Finishes one, if there are such rows.
    fn alone(self, shares: &[Ptr<'k, Shared, f32>], run: ResultRun<'k>) {
        let plan = self.block.plan;
        let [_, row] = run.is;
        let finish = || self.results.store(plan, run.is, self.sums(shares, run), &self.results.ask(plan, run.is));
        let is_row = || match plan.results {
            WeightRows::Gated(results) => plan.results.result(row).lt(results),
            WeightRows::InOrder(_) | WeightRows::Groups { .. } => row.lt(plan.n),
        };
        run.alone(|| if self.is_whole() { finish() } else { row.builder().when(is_row(), finish) });
    }

    /// Whether there are all rows: the last tile may have some that there are not, and so may the
    /// last strip of gates.
    fn is_whole(self) -> bool {
        let plan = self.block.plan;
        let gated = matches!(self.block.plan.results, WeightRows::Gated(_));
        plan.is_whole() && plan.results.results().is_multiple_of(if gated { Strip::ROWS } else { 1 })
    }

    /// The distance from a run to the second run that is finished with it: for gates and the values
    /// that they multiply, every second strip.
    fn others(self) -> Option<u32> {
        self.results.others(self.block.plan.results)
    }

    /// Rows of this block.
    fn rows(self) -> u32 {
        self.block.plan.rows() / self.block.plan.tuning.splits
    }

    /// Runs of a column.
    fn of_column(self) -> u32 {
        self.rows() / RUN as u32 / if self.others().is_some() { 2 } else { 1 }
    }

    fn count(self) -> u32 {
        let plan = self.block.plan;
        self.of_column() * plan.staged().min(plan.of_tile().saturating_sub(self.first))
    }

    fn run(self, item: Val<'k, u32>) -> ResultRun<'k> {
        let plan = self.block.plan;
        let runs = self.of_column();
        let column = item / runs;
        let run = item % runs;
        let apart = self.others().map(|distance| distance / RUN as u32);
        let run = apart.map_or(run, |apart| run + run / apart * apart);
        let row = run * RUN as u32;
        let first = self.tile.rows * plan.rows() + self.block.split * self.rows();
        let at = column * plan.sums_pitch() + row;
        let row = first + row;
        let vector = column + self.first;
        let Some(in_tile) = self.tile.vector else { return ResultRun { at, is: [vector, row], exists: None } };
        let vector = vector + in_tile;
        match plan.batch.is_multiple_of(plan.of_tile()) {
            true => ResultRun { at, is: [vector, row], exists: None },
            false => ResultRun { at, is: [vector.min(plan.batch - 1), row], exists: Some(vector.lt(plan.batch)) },
        }
    }

    fn sums(self, shares: &[Ptr<'k, Shared, f32>], run: ResultRun<'k>) -> RunSums<'k, RUN> {
        // The sums of all shares of k are added in their order.
        let sums = |at: Val<'k, u32>| {
            let load = |share: &Ptr<'k, Shared, f32>| share.at(at).load_vec::<RUN>();
            let add =
                |sum: [Val<'k, f32>; RUN], share: [Val<'k, f32>; RUN]| core::array::from_fn(|i| sum[i] + share[i]);
            shares[1..].iter().map(load).fold(load(&shares[0]), add)
        };
        RunSums { sums: sums(run.at), others: self.others().map(|distance| sums(run.at + distance)) }
    }
}
