//! A column index where a row index belongs.
use tilewright_layout::typed::{Idx, RowMajor, Tile};

fn main() {
    let tile = Tile::<f32, RowMajor<4, 8>>::default();
    let row = Idx::<8>::constant::<5>();
    let _ = tile.at(row, row);
}
