//! A padded layout cannot own its elements.
use tilewright_layout::typed::{Int, Strided, Tile};

fn main() {
    let _ = Tile::<f32, Strided<(Int<4>, Int<4>), (Int<5>, Int<1>)>>::default();
}
