//! A column index where a row index belongs.
use tilewright_layout::typed::{ArrayTensor, Idx, RowMajor};

fn main() {
    let tile = ArrayTensor::<f32, RowMajor<4, 8>>::default();
    let row = Idx::<8>::constant::<5>();
    let _ = tile.at(row, row);
}
