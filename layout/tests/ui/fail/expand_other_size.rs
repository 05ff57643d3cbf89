//! Two layouts of different sizes have no common nesting.
use tilewright_layout::layout;
use tilewright_layout::typed::{ExpandedAlike, RowMajor};

layout! { type Broken = ExpandedAlike<RowMajor<4, 6>, RowMajor<4, 8>>; }

fn main() {}
