//! Tiles that do not fill the rows.
use tilewright_layout::layout;
use tilewright_layout::typed::{RowMajor, TiledBy};

layout! { type Broken = TiledBy<RowMajor<100, 64>, 16, 16>; }

fn main() {}
