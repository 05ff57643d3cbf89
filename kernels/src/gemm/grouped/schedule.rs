//! The tiles of groups of rows whose sizes only the device knows.

use tilewright_codegen::build::{Builder, Global, Ptr, Shared, Val};

use crate::gemm::raster::Raster;

/// The sizes of a schedule that are known while recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GroupTiling {
    /// Groups, at least one.
    pub groups: u32,
    /// Rows of a tile.
    pub rows: u32,
    /// Rows of tiles of a group that are computed together, as [`GroupTiles::tile`] orders them.
    pub band: u32,
}

impl GroupTiling {
    /// Bits of a group's number.
    fn bits(self) -> u32 {
        32 - (self.groups.max(1) - 1).leading_zeros()
    }

    /// Elements of the table of first tiles: it is searched bit by bit.
    fn table(self) -> u32 {
        (1 << self.bits()).max(self.groups + 1)
    }

    /// Bytes of shared memory that a schedule takes.
    pub fn bytes(self) -> u32 {
        4 * (self.table() + self.groups + 1)
    }

    /// Row tiles that cover `rows` rows in all groups together, at most: each group but an empty
    /// one may end with a tile in part.
    pub fn most_row_tiles(self, rows: u32) -> u32 {
        rows / self.rows + self.groups.min(rows)
    }
}

/// A persistent tile scheduler: divides the rows of each group into tiles, and finds the tile of a
/// number.
///
/// Rows `offsets[g]..offsets[g + 1]` form group `g`. Groups may be empty and have any size. Tiles
/// never cross groups: the last of a group may have fewer rows. The offsets are read on the device,
/// so the host never learns them.
///
/// Each block keeps two tables in shared memory ([`GroupTiling::bytes`]): the first row, and the
/// number of the first row tile of each group. [`tile`](GroupTiles::tile) is a binary search.
///
/// ```
/// # use tilewright_codegen::{build::{block, record}, ir::Arch, verify::verify};
/// use tilewright_kernels::gemm::grouped::{GroupTiles, GroupTiling};
///
/// // Each tile of 64 rows × 1 column adds its number of rows to its group's count.
/// let kernel = record("count", Arch::Sm80, block(32), |k| {
///     let counts = k.global::<u32>("counts");
///     let tiling = GroupTiling { groups: 8, rows: 64, band: 1 };
///     let tiles = GroupTiles::new(k, k.global("offsets"), tiling, k.lit(1));
///     k.barrier();
///     tiles.each(k, k.block_id(), k.blocks(), &mut |tile| {
///         use tilewright_codegen::ir::attr::{AtomOp, RedOrder, Scope};
///         let rows = (tile.end - tile.row).min(64);
///         k.when(k.tid().eq(0), || counts.at(tile.group).red(AtomOp::Add, rows, RedOrder::Relaxed(Scope::Gpu)));
///     });
/// });
/// verify(kernel)?;
/// # Ok::<(), tilewright_codegen::verify::VerifyErrors>(())
/// ```
#[derive(Clone, Copy)]
pub struct GroupTiles<'k> {
    tiling: GroupTiling,
    columns: Val<'k, u32>,
    /// The number of the first row tile of each group, the number of all, then `u32::MAX`.
    first: Ptr<'k, Shared, u32>,
    /// The offsets.
    begin: Ptr<'k, Shared, u32>,
}

/// A tile of a group.
#[derive(Clone, Copy)]
pub struct GroupTile<'k> {
    /// The group.
    pub group: Val<'k, u32>,
    /// Its first row, counted over all groups.
    pub row: Val<'k, u32>,
    /// The end of its group's rows, above `row`.
    pub end: Val<'k, u32>,
    /// Its column of tiles.
    pub column: Val<'k, u32>,
}

impl<'k> GroupTiles<'k> {
    /// Makes the tables, by the first warp; the caller synchronises the block before the first use.
    /// `columns` is the number of columns of tiles; `offsets` has one number more than there are
    /// groups, and never falls.
    #[track_caller]
    pub fn new(
        k: &'k Builder,
        offsets: Ptr<'k, Global, u32>,
        tiling: GroupTiling,
        columns: Val<'k, u32>,
    ) -> GroupTiles<'k> {
        let GroupTiling { groups, rows, .. } = tiling;
        let first = k.shared::<u32>("group_tiles", tiling.table());
        let begin = k.shared::<u32>("group_rows", groups + 1);
        k.moving().when(k.warp().eq(0), || {
            let chunks = (0..groups).step_by(32).map(|chunk| {
                let group = k.lane() + chunk;
                let known = chunk + 32 <= groups;
                let at = if known { group } else { group.min(groups - 1) };
                (group, known, [offsets.at(at).load(), offsets.at(at + 1).load()])
            });
            // All loads are under way before the first is used.
            let chunks: Vec<_> = chunks.collect();
            k.when(k.lane().eq(0), || {
                first.store(0u32);
                begin.store(chunks[0].2[0]);
            });
            let mut before = k.lit(0u32);
            for (group, known, [start, end]) in chunks {
                let tiles = (end.max(start) - start + (rows - 1)) / rows;
                let mut sum = if known { tiles } else { group.lt(groups).select(tiles, 0u32) };
                for distance in [1u32, 2, 4, 8, 16] {
                    let below = sum.shfl_up(distance);
                    sum = k.lane().ge(distance).select(sum + below, sum);
                }
                let sum = before + sum;
                k.when(group.lt(groups), || {
                    first.at(group + 1).store(sum);
                    begin.at(group + 1).store(end);
                });
                before = sum.shfl_idx(31);
            }
            let padding = k.lane() + (groups + 1);
            k.for_step(padding, tiling.table(), 32u32, |at| first.at(at).store(u32::MAX));
        });
        GroupTiles { tiling, columns, first, begin }
    }

    /// The number of tiles of all groups.
    #[track_caller]
    pub fn count(self) -> Val<'k, u32> {
        self.first.at(self.tiling.groups).load() * self.columns
    }

    /// The tile of a number below [`count`](GroupTiles::count). Tiles come group by group; inside a
    /// group `band` rows of tiles at a time, column by column, so that blocks that run together
    /// share operands in L2.
    #[track_caller]
    pub fn tile(self, number: Val<'k, u32>) -> GroupTile<'k> {
        let GroupTiling { rows, band, .. } = self.tiling;
        let k = number.builder();
        let row_tile = number / self.columns;
        let group = (0..self.tiling.bits()).rev().fold(k.lit(0u32), |group, bit| {
            let next = group + (1 << bit);
            self.first.at(next).load().le(row_tile).select(next, group)
        });
        let first = self.first.at(group).load();
        let row_tiles = self.first.at(group + 1).load() - first;
        let raster = Raster { rows: row_tiles, columns: self.columns, splits: k.lit(1), group: band };
        let [row, column] = raster.place(number - first * self.columns);
        let [begin, end] = [group, group + 1].map(|group| self.begin.at(group).load());
        GroupTile { group, row: begin + row * rows, end, column }
    }

    /// Calls `body` for the tiles of worker `first` of `workers`: every `workers`-th tile. Together
    /// the workers visit each tile once.
    #[track_caller]
    pub fn each(self, k: &'k Builder, first: Val<'k, u32>, workers: Val<'k, u32>, body: &mut dyn FnMut(GroupTile<'k>)) {
        let next = k.var(first);
        let count = self.count();
        k.moving().while_(
            || next.get().lt(count),
            || {
                body(self.tile(next.get()));
                next.set(next.get() + workers);
            },
        );
    }
}
