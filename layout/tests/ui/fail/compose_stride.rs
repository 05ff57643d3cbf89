//! A composition whose stride steps over part of a mode.
use tilewright_layout::layout;
use tilewright_layout::typed::{Composed, Int, RowMajor, Strided};

layout! { type Broken = Composed<RowMajor<6, 8>, Strided<Int<4>, Int<9>>>; }

fn main() {}
