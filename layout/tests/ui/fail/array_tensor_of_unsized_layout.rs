//! A padded layout cannot own its elements.
use tilewright_layout::typed::{ArrayTensor, Int, Strided};

fn main() {
    let _ = ArrayTensor::<f32, Strided<(Int<4>, Int<4>), (Int<5>, Int<1>)>>::default();
}
