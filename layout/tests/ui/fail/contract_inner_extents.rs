//! Factors whose inner extents differ.
use tilewright_layout::typed::{RowMajor, Tile, contract};

fn main() {
    let a = Tile::<f32, RowMajor<4, 8>>::default();
    let b = Tile::<f32, RowMajor<16, 4>>::default();
    let mut c = Tile::<f32, RowMajor<4, 4>>::default();
    contract(&a, &b, &mut c);
}
