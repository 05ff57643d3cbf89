//! A single index for a view of two modes.
use tilewright_layout::typed::RowMajor;
use tilewright_layout::view::TensorView;

fn main() {
    let data = [0.0; 96];
    let view = TensorView::<f32, RowMajor<8, 12>>::from_slice(&data).unwrap();
    let _ = view.get([5]);
}
