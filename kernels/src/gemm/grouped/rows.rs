//! Rows that lie anywhere in memory, brought into tiles by `cp.async`.

use tilewright_codegen::build::{Global, Ptr, Scalar, Shared, Val};
use tilewright_codegen::ir::attr::{CpBytes, CpCache};
use tilewright_layout::typed::StaticLayout;

use crate::tile::{Index, LayoutTensor, ThreadGroup};

/// Bytes that a thread copies at once.
const RUN: u32 = 16;

/// The row of A of a row of the groups: by the order and the divisor of its numbers, or the same
/// where rows are contiguous.
#[track_caller]
pub(super) fn source_row<'k>(number: Val<'k, u32>, order: Option<(Ptr<'k, Global, u32>, u32)>) -> Val<'k, u32> {
    order.map_or(number, |(order, divisor)| order.at(number).load() / divisor)
}

/// The rows of A of a tile of a group.
#[derive(Clone, Copy)]
pub(super) struct Gather<'k, E> {
    pub base: Ptr<'k, Global, E>,
    /// The order of the rows, and the divisor of its numbers; none where rows are contiguous.
    pub order: Option<(Ptr<'k, Global, u32>, u32)>,
    /// Elements of a row.
    pub depth: Val<'k, u32>,
    /// The tile's first row, and the end of its group's rows.
    pub row: Val<'k, u32>,
    pub end: Val<'k, u32>,
}

impl<'k, E: Scalar> Gather<'k, E> {
    /// Where a row of the tile begins in memory. Rows past the group's end are its last one, whose
    /// products are not written.
    #[track_caller]
    pub fn row(&self, at: Index<'k>) -> Ptr<'k, Global, E> {
        let number = (at + self.row).get(self.depth.builder()).min(self.end - 1);
        self.base.at(source_row(number, self.order).mul_wide(self.depth))
    }
}

/// The rows of a tile, each contiguous along K: what one thread copies of them.
pub(super) struct TileRows<'k, E> {
    threads: ThreadGroup<'k>,
    /// Where the thread's runs of a step begin: one for each round.
    runs: Vec<Ptr<'k, Global, E>>,
    /// The first element of a run, in its step.
    column: Index<'k>,
    /// Elements of a row.
    depth: Val<'k, u32>,
}

/// The extents of a tile whose rows are brought.
#[derive(Clone, Copy)]
pub(super) struct RowTile<'k> {
    /// Rows of the tile, a multiple of those that the threads copy at once.
    pub rows: u32,
    /// Elements of a row in the tile: a step of K.
    pub step: u32,
    /// Elements of a row in memory, a multiple of 16 bytes.
    pub depth: Val<'k, u32>,
}

impl<'k, E: Scalar> TileRows<'k, E> {
    /// The rows that begin at `row` of their number in the tile; what threads of the group copy.
    #[track_caller]
    pub fn new(
        threads: ThreadGroup<'k>,
        tile: RowTile<'k>,
        row: impl Fn(Index<'k>) -> Ptr<'k, Global, E>,
    ) -> TileRows<'k, E> {
        let RowTile { rows, step, depth } = tile;
        let k = depth.builder();
        let per_row = step / Self::VECTOR;
        let column = threads.thread % per_row * Self::VECTOR;
        let rounds = rows * per_row / threads.count;
        let run = |round: u32| row(Self::row_of(threads, per_row, round)).at(column.get(k));
        TileRows { threads, runs: (0..rounds).map(run).collect(), column, depth }
    }

    /// Elements of a run.
    const VECTOR: u32 = RUN / (E::TY.bits() / 8);

    /// The row in the tile of this thread's run of a round.
    #[track_caller]
    fn row_of(threads: ThreadGroup<'k>, per_row: u32, round: u32) -> Index<'k> {
        (threads.thread + round * threads.count) / per_row
    }

    /// Starts this thread's copies of a step of K to a tile in shared memory; elements past the end
    /// of a row are zeros.
    #[track_caller]
    pub fn copy<L: StaticLayout>(&self, step: Val<'k, u32>, to: LayoutTensor<'k, E, L, Shared>) {
        let k = self.depth.builder();
        let elements = L::LAYOUT.extent(1) as u32;
        let per_row = elements / Self::VECTOR;
        let first = step * elements;
        let filled = (first + self.column.get(k)).lt(self.depth).select(RUN, 0u32);
        for (round, run) in (0..).zip(&self.runs) {
            let at = [Self::row_of(self.threads, per_row, round), self.column];
            to.at(at).cp_async_as(run.at(first), CpBytes::B16, CpCache::Cg, Some(filled));
        }
    }
}
