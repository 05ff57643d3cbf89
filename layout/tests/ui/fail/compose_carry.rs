//! A composition whose modes add up to a carry.
use tilewright_layout::layout;
use tilewright_layout::typed::{Composed, Int, RowMajor, Strided};

layout! { type Broken = Composed<RowMajor<4, 8>, Strided<(Int<4>, Int<4>), (Int<1>, Int<1>)>>; }

fn main() {}
