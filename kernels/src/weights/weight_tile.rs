//! A tile of packed weights: eight rows by 32 of k.

use tilewright_layout::Layout;
use tilewright_layout::typed::{RowMajor, StaticLayout};

/// A tile of weights, (row, k) to element.
pub type WeightTile = RowMajor<8, 32>;

/// The lane of each eight elements of a tile, (row, octet) to lane: lane `4·row + octet` has k =
/// 8·octet to 8·octet + 7 of its row, of the weights and of the activations alike, so that every
/// slot of the contraction meets its partner.
pub type Octets = RowMajor<8, 4>;

/// Rows of a tile: the n of the matrix instruction.
pub(super) const ROWS: u32 = 8;
/// k of a tile.
pub(crate) const DEPTH: u32 = 32;
/// Elements of a tile.
pub(super) const ELEMENTS: u32 = ROWS * DEPTH;
/// Bytes of a tile.
pub(crate) const BYTES: u32 = 2 * ELEMENTS;

/// Lane to the element of a tile that its eight begin with.
pub(super) const LANES: Layout = {
    let firsts = modes(&[leaf(8, 1), leaf(4, 8 * 8)]);
    Layout::constant(
        Layout::constant(WeightTile::LAYOUT.composition(&firsts)).composition(&Octets::LAYOUT.right_inverse()),
    )
};

/// A mode.
pub(crate) const fn leaf(extent: u32, stride: u32) -> Layout {
    Layout::constant(Layout::leaf(extent as i64, stride as i64))
}

/// Modes side by side.
pub(crate) const fn modes(modes: &[Layout]) -> Layout {
    Layout::constant(Layout::tuple(modes))
}
