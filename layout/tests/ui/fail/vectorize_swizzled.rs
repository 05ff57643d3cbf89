//! Vectors that a swizzle splits.
use tilewright_layout::typed::{RowMajor, Swizzle, Swizzled};
use tilewright_layout::view::TensorView;

fn main() {
    let data = [0.0; 512];
    let view = TensorView::<f32, Swizzled<Swizzle<3, 2, 4>, RowMajor<8, 64>>>::from_slice(&data).unwrap();
    let _ = view.vectorize::<1, 8>();
}
