//! A matrix tile of a layout of three modes.
use tilewright_layout::layout;
use tilewright_layout::typed::{Compact, Int, TiledBy};

layout! { type Broken = TiledBy<Compact<(Int<4>, Int<4>, Int<4>)>, 2, 2>; }

fn main() {}
