//! The tile in shared memory: its layout, the address of a vector, and the B operands of `m16n8k16`
//! read from it.

use std::cell::RefCell;

use half::bf16;
use tilewright_codegen::build::{Builder, Ptr, Shared, Val};
use tilewright_codegen::ir::attr::Trans;
use tilewright_layout::{IntTuple, Layout, Swizzle, Swizzled};

use super::KvBufferConfig;

/// Elements of one 16-byte vector.
pub const VECTOR: u32 = 8;

/// The arrangement of a tile's rows in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowArrangement {
    /// XOR-swizzled rows, in panels of 64 columns, or of 32 or 16 where 64 do not divide: rows of a
    /// panel follow each other, and the vectors of a row are exchanged by the row's number. Tensor
    /// maps write it and `wgmma` reads it.
    Swizzled,
    /// Interleaved core matrices, panels of one vector: `(rows,(8,n)):(8,(1,8·rows))`.
    Interleaved,
}

/// A tile of `rows × columns` bf16 in a form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileForm {
    /// Rows, a multiple of 8.
    pub rows: u32,
    /// Columns, a multiple of 16.
    pub columns: u32,
    /// The form.
    pub form: RowArrangement,
}

impl TileForm {
    /// The tile of a configuration, swizzled.
    pub const fn swizzled<C: KvBufferConfig>() -> TileForm {
        TileForm { rows: C::BTILE0, columns: C::BTILE1, form: RowArrangement::Swizzled }
    }

    /// Columns of a panel.
    pub const fn width(self) -> u32 {
        match self.form {
            RowArrangement::Swizzled if self.columns.is_multiple_of(64) => 64,
            RowArrangement::Swizzled if self.columns.is_multiple_of(32) => 32,
            RowArrangement::Swizzled => 16,
            RowArrangement::Interleaved => VECTOR,
        }
    }

    /// Panels of the tile.
    pub const fn panel_count(self) -> u32 {
        self.columns / self.width()
    }

    /// Elements of the tile.
    pub const fn elements(self) -> u32 {
        self.rows * self.columns
    }

    /// Bytes at a multiple of which a tile must begin, so that the pattern begins with it.
    pub const fn align(self) -> u32 {
        match self.width() {
            64 => 1024,
            32 => 512,
            16 => 256,
            _ => 128,
        }
    }

    /// (row, column) to the offset of an element.
    ///
    /// ```
    /// use tilewright_kernels::kv::{RowArrangement, TileForm};
    /// let tile = TileForm { rows: 16, columns: 128, form: RowArrangement::Swizzled };
    /// assert_eq!(tile.layout().to_string(), "S<3,3,3> o 0 o (16,(64,2)):(64,(1,1024))");
    /// ```
    pub fn layout(self) -> Swizzled {
        let rows = i64::from(self.rows);
        let width = i64::from(self.width());
        let panels = i64::from(self.panel_count());
        let leaf = |extent, stride| Layout::constant(Layout::leaf(extent, stride));
        let columns = Layout::constant(Layout::tuple(&[leaf(width, 1), leaf(panels, rows * width)]));
        let layout = Layout::constant(Layout::tuple(&[leaf(rows, width), columns]));
        let bits = match self.width() {
            64 => 3,
            32 => 2,
            16 => 1,
            _ => 0,
        };
        Swizzled::new(Swizzle::constant(Swizzle::new(bits, 3, 3)), 0, layout)
    }

    /// The offset of an element, on the host.
    pub fn offset(self, row: u32, column: u32) -> i64 {
        let at = IntTuple::constant(IntTuple::flat(&[i64::from(row), i64::from(column)]));
        self.layout().offset(&at).unwrap_or(0)
    }

    /// The address of a vector: row `rows + row`, vector `vectors + vector` of the tile at `base`.
    ///
    /// `rows` is a multiple of 8; `vectors` is even and `vector` 0 or 1, or `vectors` begins a
    /// panel and `vector` stays inside it. Then what is not constant is one exclusive-or and one
    /// sum.
    pub fn vector<'k>(
        self,
        base: Ptr<'k, Shared, bf16>,
        [rows, vectors]: [u32; 2],
        row: Val<'k, u32>,
        vector: Val<'k, u32>,
    ) -> Ptr<'k, Shared, bf16> {
        let width = self.width();
        let panel = self.width() / VECTOR;
        match self.form {
            RowArrangement::Interleaved => {
                let constant = (rows + vectors * self.rows) * VECTOR;
                base.at(row * VECTOR).at(vector * (self.rows * VECTOR)).at(constant)
            }
            RowArrangement::Swizzled => {
                let first = vectors / panel;
                let inside = vectors % panel;
                let mix = match panel {
                    8 => row & 7,
                    4 => (row >> 1) & 3,
                    _ => (row >> 2) & 1,
                };
                let chosen = (vector ^ mix) ^ inside;
                base.at(row * width).at(chosen * VECTOR).at((first * self.rows + rows) * width)
            }
        }
    }

    /// The `index`-th vector that a thread of a team of `threads` moves: where it begins in the
    /// tile.
    pub fn share<'k>(self, thread: Val<'k, u32>, threads: u32, index: u32) -> Share<'k> {
        let in_row = self.width() / VECTOR;
        let in_panel = self.rows * self.width() / VECTOR;
        let number = thread + threads * index;
        // Where a panel is whole rounds of the team, it is known while recording.
        let (panel, rest) = if in_panel.is_multiple_of(threads) {
            (Err(threads * index / in_panel), thread + threads * index % in_panel)
        } else {
            (Ok(number / in_panel), number % in_panel)
        };
        match (self.form, panel) {
            (RowArrangement::Interleaved, _) => {
                // A warp takes 4 vectors of eight rows, or 2 of sixteen where rows have no whole
                // fours: stores without conflicts, whole sectors.
                let lane = thread % 32;
                let group = thread / 32;
                let across = if (self.columns / VECTOR).is_multiple_of(4) { 4 } else { 2 };
                let down = 32 / across;
                let groups_down = self.rows / down;
                let round = group + threads / 32 * index;
                let row = (round % groups_down) * down + lane % down;
                Share { row, vectors: 0, vector: (round / groups_down) * across + lane / down }
            }
            (RowArrangement::Swizzled, Err(panel)) => {
                Share { row: rest / in_row, vectors: panel * in_row, vector: rest % in_row }
            }
            (RowArrangement::Swizzled, Ok(panel)) => {
                Share { row: rest / in_row, vectors: 0, vector: panel * in_row + rest % in_row }
            }
        }
    }

    /// Vectors that a thread moves.
    ///
    /// # Panics
    /// While recording, if the tile is not whole rounds of the team: then some vectors would not be
    /// moved.
    pub const fn shares(self, threads: u32) -> u32 {
        assert!(self.elements().is_multiple_of(VECTOR * threads), "a tile is whole rounds of the team that moves it");
        self.elements() / (VECTOR * threads)
    }

    /// The place of a share in shared memory.
    pub fn place<'k>(self, base: Ptr<'k, Shared, bf16>, share: &Share<'k>) -> Ptr<'k, Shared, bf16> {
        let in_row = self.width() / VECTOR;
        let constant = share.vector.operand().as_const().is_some();
        if self.form == RowArrangement::Interleaved || share.vectors > 0 || constant || in_row == self.columns / VECTOR
        {
            return self.vector(base, [0, share.vectors], share.row, share.vector);
        }
        let panel = share.vector / in_row;
        let inside = share.vector % in_row;
        self.vector(base.at(panel * (self.rows * self.width())), [0, 0], share.row, inside)
    }
}

/// A vector that a thread moves: row `row`, vector `vectors + vector` of the row.
pub struct Share<'k> {
    /// The row of the tile.
    pub row: Val<'k, u32>,
    /// The constant part of the vector.
    pub vectors: u32,
    /// The rest.
    pub vector: Val<'k, u32>,
}

impl<'k> Share<'k> {
    /// The first column.
    pub fn column(&self) -> Val<'k, u32> {
        (self.vector + self.vectors) * VECTOR
    }
}

/// B operands of `m16n8k16`: two registers for each eight columns of the product.
pub type MmaTile<'k> = Vec<[Val<'k, u32>; 2]>;

/// The register tile that [`load_from_shared`](super::KvBuffer::load_from_shared) fills.
pub struct Fragments<'k> {
    k: &'k Builder,
    form: TileForm,
    transposed: bool,
    tile: RefCell<MmaTile<'k>>,
}

impl<'k> Fragments<'k> {
    /// Creates fragments without registers.
    pub fn new<C: KvBufferConfig>(k: &'k Builder, form: TileForm) -> Fragments<'k> {
        Fragments { k, form, transposed: C::TRANSPOSED, tile: RefCell::default() }
    }

    /// Reads step `k_mma` of the contraction: 16 columns of every row, or every column of 16 rows.
    ///
    /// `ldmatrix` hands out four 8×8 matrices: those of two neighbouring instructions. Keys are
    /// read as they lie, and values transposed.
    pub fn load(&self, base: Ptr<'k, Shared, bf16>, k_mma: u32) {
        let lane = self.k.lane();
        let eight = lane % 8;
        let upper = lane / 16;
        let lower = lane / 8 % 2;
        let tile = if self.transposed {
            (0..self.form.rows / 16)
                .map(|pair| {
                    let row = upper * 8 + eight;
                    self.form.vector(base, [16 * pair, 2 * k_mma], row, lower).ldmatrix::<4>(Trans::No)
                })
                .collect::<Vec<_>>()
        } else {
            (0..self.form.columns / 16)
                .map(|pair| {
                    let row = lower * 8 + eight;
                    self.form.vector(base, [16 * k_mma, 2 * pair], row, upper).ldmatrix::<4>(Trans::Yes)
                })
                .collect()
        };
        *self.tile.borrow_mut() = tile.into_iter().flat_map(|[a, b, c, d]| [[a, b], [c, d]]).collect();
    }

    /// The fragments that were read last.
    pub fn tile(&self) -> MmaTile<'k> {
        self.tile.borrow().clone()
    }
}
