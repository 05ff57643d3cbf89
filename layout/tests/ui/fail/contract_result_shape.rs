//! A result of another shape than the product.
use tilewright_layout::typed::{ColMajor, RowMajor, Tile, contract};

fn main() {
    let a = Tile::<f32, RowMajor<4, 8>>::default();
    let b = Tile::<f32, ColMajor<8, 2>>::default();
    let mut c = Tile::<f32, RowMajor<4, 4>>::default();
    contract(&a, &b, &mut c);
}
