//! One index for a view of two modes.
use tilewright_layout::typed::RowMajor;
use tilewright_layout::view::LayoutTensor;

fn main() {
    let data = [0.0; 96];
    let view = LayoutTensor::<f32, RowMajor<8, 12>>::from_slice(&data).unwrap();
    let _ = view.get([5]);
}
