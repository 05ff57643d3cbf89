//! More tiles than modes.
use tilewright_layout::layout;
use tilewright_layout::typed::{FlatDivide, Int, RowMajor};

layout! { type Broken = FlatDivide<RowMajor<8, 6>, (Int<4>, Int<3>, Int<2>)>; }

fn main() {}
