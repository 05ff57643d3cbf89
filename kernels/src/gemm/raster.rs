//! In which order tiles are computed: groups of rows, so that blocks that run together share
//! operands in L2.

use tilewright_codegen::build::{Builder, Val};

/// The coordinate of a tile of work.
#[derive(Clone, Copy)]
pub struct TileCoord<'k> {
    /// Its row of tiles, in tiles of the cluster.
    pub row: Val<'k, u32>,
    /// Its column of tiles.
    pub column: Val<'k, u32>,
    /// Its share of the contraction.
    pub split: Val<'k, u32>,
}

/// The tiles of a product, `group` rows of tiles at a time, each group column by column.
#[derive(Clone, Copy)]
pub struct Raster<'k> {
    /// Rows of tiles.
    pub rows: Val<'k, u32>,
    /// Columns of tiles.
    pub columns: Val<'k, u32>,
    /// Shares of the contraction.
    pub splits: Val<'k, u32>,
    /// Rows of a group.
    pub group: u32,
}

impl<'k> Raster<'k> {
    /// The number of tiles.
    #[track_caller]
    pub fn count(self) -> Val<'k, u32> {
        self.rows * self.columns * self.splits
    }

    /// The coordinate of tile `number`.
    #[track_caller]
    pub fn coord(self, number: Val<'k, u32>) -> TileCoord<'k> {
        let plane = self.rows * self.columns;
        let split = number / plane;
        let number = number % plane;
        let [row, column] = self.place(number);
        TileCoord { row, column, split }
    }

    /// The row and column of tile `number` of one share.
    #[track_caller]
    pub fn place(self, number: Val<'k, u32>) -> [Val<'k, u32>; 2] {
        let width = self.columns * self.group;
        let first = number / width * self.group;
        let height = (self.rows - first).min(self.group);
        let inside = number % width;
        [first + inside % height, inside / height]
    }

    /// Calls `body` for the tiles of worker `first` of `workers`.
    #[track_caller]
    pub fn each(self, k: &'k Builder, first: Val<'k, u32>, workers: Val<'k, u32>, body: &mut dyn FnMut(TileCoord<'k>)) {
        let next = k.var(first);
        let count = self.count();
        k.moving().while_(
            || next.get().lt(count),
            || {
                body(self.coord(next.get()));
                next.set(next.get() + workers);
            },
        );
    }
}
