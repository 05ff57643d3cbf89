//! Two swizzles that do not merge into one.
use tilewright_layout::layout;
use tilewright_layout::typed::{RowMajor, Swizzle, Swizzled};

layout! { type Broken = Swizzled<Swizzle<2, 3, 3>, Swizzled<Swizzle<2, 3, 4>, RowMajor<8, 64>>>; }

fn main() {}
