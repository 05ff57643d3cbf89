//! A swizzle where it has no meaning.
use tilewright_layout::layout;
use tilewright_layout::typed::{BlockedProduct, RowMajor, Swizzle, Swizzled};

layout! { type Broken = BlockedProduct<RowMajor<8, 8>, Swizzled<Swizzle<1, 0, 1>, RowMajor<2, 2>>>; }

fn main() {}
