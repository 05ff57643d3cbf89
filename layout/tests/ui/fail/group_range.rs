//! A range of modes beyond the rank.
use tilewright_layout::layout;
use tilewright_layout::typed::{Grouped, RowMajor};

layout! { type Broken = Grouped<RowMajor<8, 8>, 1, 3>; }

fn main() {}
