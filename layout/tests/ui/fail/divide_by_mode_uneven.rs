//! A division with a remainder in one mode.
use tilewright_layout::layout;
use tilewright_layout::typed::{Int, RowMajor, ZippedDivide};

layout! { type Broken = ZippedDivide<RowMajor<8, 6>, (Int<4>, Int<4>)>; }

fn main() {}
