//! A tile that maps two coordinates to one offset.
use tilewright_layout::layout;
use tilewright_layout::typed::{Contiguous, Int, LogicalDivide, Strided};

layout! { type Broken = LogicalDivide<Contiguous<24>, Strided<(Int<4>, Int<2>), (Int<1>, Int<2>)>>; }

fn main() {}
