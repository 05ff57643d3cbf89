//! Threads that do not share a view out evenly.
use tilewright_layout::typed::RowMajor;
use tilewright_layout::view::TensorView;

fn main() {
    let data = [0.0; 64];
    let view = TensorView::<f32, RowMajor<8, 8>>::from_slice(&data).unwrap();
    let _ = view.distribute::<RowMajor<3, 8>>(3);
}
