//! Factors whose inner extents differ.
use tilewright_layout::typed::{ArrayTensor, RowMajor, contract};

fn main() {
    let a = ArrayTensor::<f32, RowMajor<4, 8>>::default();
    let b = ArrayTensor::<f32, RowMajor<16, 4>>::default();
    let mut c = ArrayTensor::<f32, RowMajor<4, 4>>::default();
    contract(&a, &b, &mut c);
}
