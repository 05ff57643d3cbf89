//! A result of another shape than the product.
use tilewright_layout::typed::{ArrayTensor, ColMajor, RowMajor, contract};

fn main() {
    let a = ArrayTensor::<f32, RowMajor<4, 8>>::default();
    let b = ArrayTensor::<f32, ColMajor<8, 2>>::default();
    let mut c = ArrayTensor::<f32, RowMajor<4, 4>>::default();
    contract(&a, &b, &mut c);
}
