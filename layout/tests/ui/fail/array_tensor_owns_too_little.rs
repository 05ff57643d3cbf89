//! A swizzle that reaches beyond the tile.
use tilewright_layout::typed::{ArrayTensor, RowMajor, Swizzle, Swizzled};

fn main() {
    let _ = ArrayTensor::<f32, Swizzled<Swizzle<2, 1, 2>, RowMajor<3, 4>>>::default();
}
