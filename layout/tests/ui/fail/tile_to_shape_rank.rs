//! A block with more modes than the shape.
use tilewright_layout::layout;
use tilewright_layout::typed::{Int, RowMajor, TileToShape};

layout! { type Broken = TileToShape<RowMajor<8, 8>, (Int<64>,)>; }

fn main() {}
