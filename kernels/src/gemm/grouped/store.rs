//! Results of tiles that end inside a group: by rows of 16 bytes through shared memory, or element
//! by element.

use tilewright_codegen::build::{Builder, Global, Ptr, Shared, Val};

use super::problem::CustomSteps;
use super::schedule::GroupTile;
use crate::epilogue::{CustomEpilogue, CustomGate, Epilogue};
use crate::gemm::finish::{EpilogueOperands, GemmOutput, Reach};
use crate::gemm::store::ResultTiles;
use crate::mma::{Accumulator, OutputType, Pack, RegisterPair};
use crate::tile::{Index, LayoutTensor};

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RowStore {
    /// Staged in shared memory by warpgroups, then rows in runs of 16 bytes.
    Staged,
    /// From registers, by pairs of neighbours.
    Pairs,
    /// From registers, one by one.
    Elements,
}

/// The facts of a store that are known while recording.
#[derive(Clone, Copy)]
pub(super) struct StoreShape<'f> {
    /// The tiles.
    pub tiles: ResultTiles,
    /// Columns of B's tile that a warp or warpgroup multiplies; half of them are gates where the
    /// product is gated.
    pub part: u32,
    pub how: RowStore,
    pub epilogue: Epilogue,
    pub steps: CustomSteps<'f>,
}

/// The result's side of a kernel.
pub(super) struct GroupedResults<'k, D> {
    k: &'k Builder,
    base: Ptr<'k, Global, D>,
    columns: Val<'k, u32>,
    /// Where rows go, if not in the order of the groups.
    order: Option<Ptr<'k, Global, u32>>,
    finish: EpilogueOperands<'k, D>,
    tiles: ResultTiles,
    part: u32,
    how: RowStore,
    staged: Option<(Ptr<'k, Shared, u16>, Pack<'k>)>,
}

impl<'k, D: GemmOutput> GroupedResults<'k, D> {
    /// Declares `c` and the epilogue's parameters. `extents` are rows and columns of the result.
    #[track_caller]
    pub fn parameters(
        k: &'k Builder,
        shape: StoreShape<'_>,
        extents: [Val<'k, u32>; 2],
        order: Option<Ptr<'k, Global, u32>>,
    ) -> Self {
        let StoreShape { tiles, part, how, epilogue, steps } = shape;
        let base = k.global("c");
        let staged = D::pack()
            .filter(|_| how == RowStore::Staged)
            .map(|pack| (k.shared_aligned("c", tiles.consumers * tiles.buffers * tiles.stage(), 1024), pack));
        let finish = EpilogueOperands::parameters(k, epilogue, None, extents);
        let finish = match steps.gate {
            Some(CustomGate(declare)) => finish.gate(declare(k)),
            None => finish,
        };
        let finish = match steps.last {
            Some(CustomEpilogue(declare)) => finish.custom(declare(k, extents)),
            None => finish,
        };
        GroupedResults { k, base, columns: extents[1], order, finish, tiles, part, how, staged }
    }

    /// Columns of the result that a warp's or warpgroup's part makes.
    pub fn part(&self) -> u32 {
        if self.finish.gated() { self.part / 2 } else { self.part }
    }

    /// Finishes sums whose first stands at `corner` of the result, and writes those inside the
    /// tile's group. `thread` counts within the warp or warpgroup.
    #[track_caller]
    pub fn store<S: OutputType>(
        &self,
        sums: Accumulator<'k, S>,
        thread: Index<'k>,
        corner: [Val<'k, u32>; 2],
        tile: &GroupTile<'k>,
    ) {
        let finish = self.finish.of_group(tile.group, tile.end);
        let results = TileResults { whole: self, finish, sums, thread, corner, end: tile.end };
        match self.staged {
            Some((staged, pack)) => results.stage(staged, pack),
            None => results.scatter(),
        }
    }
}

/// The results of one tile.
struct TileResults<'r, 'k, S, D> {
    whole: &'r GroupedResults<'k, D>,
    finish: EpilogueOperands<'k, D>,
    sums: Accumulator<'k, S>,
    thread: Index<'k>,
    corner: [Val<'k, u32>; 2],
    end: Val<'k, u32>,
}

impl<'k, S: OutputType, D: GemmOutput> TileResults<'_, 'k, S, D> {
    /// The row's number in the order of the groups, and where its results begin. Of a row past the
    /// group's end, those of the group's last row, which are not to be written.
    #[track_caller]
    fn row(&self, row: Index<'k>) -> (Val<'k, u32>, Ptr<'k, Global, D>) {
        let number = (row + self.corner[0]).get(self.whole.k);
        let known = number.min(self.end - 1);
        let to = self.whole.order.map_or(known, |order| order.at(known).load());
        (number, self.whole.base.at(to.mul_wide(self.whole.columns)))
    }

    /// The value of one of a pair of results.
    #[track_caller]
    fn value(&self, pair: RegisterPair<'k>, i: u32, reach: Reach) -> Val<'k, f32> {
        let k = self.whole.k;
        let [row, column] = self.corner.map(Index::any);
        let at = || [row + pair.row, column + pair.column + i].map(|at| at.get(k));
        let sum = |register| self.sums.get(register).cast::<f32>();
        let other = self.finish.gated().then(|| sum(pair.first + i + self.whole.part / 4));
        self.finish.apply(at, sum(pair.first + i), other, reach)
    }

    /// Stages the tile by columns; each warp writes its own 16 rows of every 64.
    #[track_caller]
    fn stage(&self, staged: Ptr<'k, Shared, u16>, pack: Pack<'k>) {
        let k = self.whole.k;
        let ResultTiles { staged: width, buffers, .. } = self.whole.tiles;
        let per_row = width / 8;
        let at_once = 32 / per_row;
        let lane = Index::lane(k);
        let column = lane % per_row * 8;
        let warp = self.thread / 32 * 16;
        let downs = self.sums.extents()[0] / 64;
        let runs = (0..downs).flat_map(|down| (0..16 / at_once).map(move |round| 64 * down + at_once * round));
        // Rows are found once for all columns.
        let rows: Vec<_> = runs
            .map(|first| {
                let row = warp + lane / per_row + first;
                (row, self.row(row))
            })
            .collect();
        let warpgroup = k.warp() / 4;
        let stage = self.whole.tiles.stage();
        let reach = [self.sums.extents()[0], self.whole.part()];
        let whole = self.finish.needs_place().then(|| {
            let end = [0, 1].map(|mode: usize| self.corner[mode] + reach[mode]);
            end[0].le(self.end) & end[1].le(self.whole.columns)
        });
        let count = self.whole.part() / width;
        for number in 0..count {
            let buffer = staged.at(warpgroup * (buffers * stage)).at(number % buffers * stage);
            let tile = LayoutTensor::new(buffer, self.whole.tiles.tile);
            let first = number * width;
            let stage = |reach: Reach| {
                self.sums.stage(self.thread, first..first + width, tile, |pair| {
                    pack(self.value(pair, 0, reach), self.value(pair, 1, reach))
                });
            };
            // The buffer's last user was read a step of all lanes ago, unless it was the last of the
            // tile before.
            if buffers == 1 || (number == 0 && !count.is_multiple_of(buffers)) {
                k.sync_warp();
            }
            match whole {
                None => stage(Reach::Anywhere),
                Some(whole) => k.if_else(whole, || stage(Reach::Inside), || stage(Reach::Anywhere)),
            }
            k.sync_warp();
            let at = (column + self.corner[1] + first).get(k);
            let inside = at.lt(self.whole.columns);
            for &(row, (place, to)) in &rows {
                let run = tile.at([row, column]).cast::<u32>().load_vec::<4>();
                k.when(inside & place.lt(self.end), || to.at(at).cast::<u32>().store_vec(run));
            }
        }
    }

    /// Writes results from registers, row by row.
    #[track_caller]
    fn scatter(&self) {
        let k = self.whole.k;
        let mut rows: Vec<(Index<'k>, Vec<RegisterPair<'k>>)> = Vec::new();
        for pair in self.sums.pairs(self.thread) {
            if pair.column.constant() >= self.whole.part() {
                continue;
            }
            match rows.iter_mut().find(|(row, _)| row.is_same(pair.row)) {
                Some((_, pairs)) => pairs.push(pair),
                None => rows.push((pair.row, vec![pair])),
            }
        }
        for (row, pairs) in rows {
            let (place, to) = self.row(row);
            k.moving().when(place.lt(self.end), || pairs.iter().for_each(|&pair| self.pair(pair, to)));
        }
    }

    /// Writes a pair of results of a row that begins at `to`, as far as there are columns.
    #[track_caller]
    fn pair(&self, pair: RegisterPair<'k>, to: Ptr<'k, Global, D>) {
        let k = self.whole.k;
        let column = |i: u32| (pair.column + self.corner[1] + i).get(k);
        let value = |i: u32| self.value(pair, i, Reach::Inside);
        if self.whole.how == RowStore::Elements {
            for i in 0..2 {
                k.when(column(i).lt(self.whole.columns), || to.at(column(i)).store(value(i).cast::<D>()));
            }
            return;
        }
        k.when(column(1).lt(self.whole.columns), || {
            let to = to.at(column(0));
            match D::pack() {
                Some(pack) => to.cast::<u32>().store(pack(value(0), value(1))),
                None => to.store_vec([value(0).cast::<D>(), value(1).cast::<D>()]),
            }
        });
    }
}
