//! A thread layout that leaves thread numbers out.
use tilewright_layout::typed::{Int, RowMajor, Strided};
use tilewright_layout::view::TensorView;

fn main() {
    let data = [0.0; 64];
    let view = TensorView::<f32, RowMajor<8, 8>>::from_slice(&data).unwrap();
    let _ = view.distribute::<Strided<(Int<2>, Int<4>), (Int<8>, Int<1>)>>(3);
}
