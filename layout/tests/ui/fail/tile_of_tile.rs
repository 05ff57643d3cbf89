//! A tile whose own tiles do not fill it.
use tilewright_layout::layout;
use tilewright_layout::typed::{RowMajor, TiledBy, Within};

layout! { type Broken = TiledBy<Within<RowMajor<64, 64>, 16, 16>, 12, 16>; }

fn main() {}
