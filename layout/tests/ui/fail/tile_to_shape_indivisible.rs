//! A block that does not fill a shape.
use tilewright_layout::layout;
use tilewright_layout::typed::{Int, RowMajor, TileToShape};

layout! { type Broken = TileToShape<RowMajor<8, 8>, (Int<20>, Int<24>)>; }

fn main() {}
