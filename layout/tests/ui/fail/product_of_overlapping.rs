//! Copies of a block whose elements share offsets.
use tilewright_layout::layout;
use tilewright_layout::typed::{BlockedProduct, Int, RowMajor, Strided};

layout! { type Broken = BlockedProduct<Strided<(Int<4>, Int<4>), (Int<1>, Int<1>)>, RowMajor<2, 2>>; }

fn main() {}
