//! A mode that is not there.
use tilewright_layout::layout;
use tilewright_layout::typed::{Mode, RowMajor};

layout! { type Broken = Mode<RowMajor<8, 8>, 2>; }

fn main() {}
