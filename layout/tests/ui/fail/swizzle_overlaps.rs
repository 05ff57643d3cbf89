//! A swizzle that shifts less than it has bits.
use tilewright_layout::layout;
use tilewright_layout::typed::{RowMajor, Swizzle, Swizzled};

layout! { type Broken = Swizzled<Swizzle<3, 3, 2>, RowMajor<8, 64>>; }

fn main() {}
