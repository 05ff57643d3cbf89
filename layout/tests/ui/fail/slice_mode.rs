//! A slice of a mode that is not there.
use tilewright_layout::typed::RowMajor;
use tilewright_layout::view::TensorView;

fn main() {
    let data = [0.0; 64];
    let view = TensorView::<f32, RowMajor<8, 8>>::from_slice(&data).unwrap();
    let _ = view.slice_mode::<2>(0);
}
