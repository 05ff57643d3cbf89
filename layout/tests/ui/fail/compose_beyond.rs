//! An order that reaches beyond the last element of a view.
use tilewright_layout::typed::{Contiguous, RowMajor};
use tilewright_layout::view::TensorView;

fn main() {
    let data = [0.0; 64];
    let view = TensorView::<f32, RowMajor<8, 8>>::from_slice(&data).unwrap();
    let _ = view.compose_with::<Contiguous<65>>();
}
