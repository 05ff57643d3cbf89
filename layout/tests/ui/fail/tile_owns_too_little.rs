//! A swizzle that reaches beyond the tile.
use tilewright_layout::typed::{RowMajor, Swizzle, Swizzled, Tile};

fn main() {
    let _ = Tile::<f32, Swizzled<Swizzle<2, 1, 2>, RowMajor<3, 4>>>::default();
}
