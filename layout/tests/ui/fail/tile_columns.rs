//! Tiles that do not fill the columns.
use tilewright_layout::layout;
use tilewright_layout::typed::{ColMajor, TiledBy};

layout! { type Broken = TiledBy<ColMajor<64, 100>, 16, 16>; }

fn main() {}
