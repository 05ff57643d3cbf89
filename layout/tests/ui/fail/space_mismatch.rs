//! A view of one memory where another is expected.
use tilewright_layout::typed::RowMajor;
use tilewright_layout::view::{Global, TensorView, Shared};

fn stage(_tile: TensorView<'_, f32, RowMajor<8, 8>, Shared>) {}

fn main() {
    let data = [0.0; 64];
    let view = TensorView::<f32, RowMajor<8, 8>, Global>::from_slice(&data).unwrap();
    stage(view);
}
