//! A tile without rows.
use tilewright_layout::layout;
use tilewright_layout::typed::{RowMajor, TiledBy};

layout! { type Broken = TiledBy<RowMajor<64, 64>, 0, 16>; }

fn main() {}
