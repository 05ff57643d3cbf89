//! Equal parts that do not fill a mode.
use tilewright_layout::typed::RowMajor;
use tilewright_layout::view::TensorView;

fn main() {
    let data = [0.0; 64];
    let view = TensorView::<f32, RowMajor<8, 8>>::from_slice(&data).unwrap();
    let _ = view.split_mode::<1, 3>(0);
}
