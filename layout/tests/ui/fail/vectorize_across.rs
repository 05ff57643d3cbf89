//! Vectors along a mode that is not contiguous.
use tilewright_layout::typed::RowMajor;
use tilewright_layout::view::TensorView;

fn main() {
    let data = [0.0; 64];
    let view = TensorView::<f32, RowMajor<8, 8>>::from_slice(&data).unwrap();
    let _ = view.vectorize::<4, 1>();
}
