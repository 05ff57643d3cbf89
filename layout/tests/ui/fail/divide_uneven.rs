//! A division with a remainder.
use tilewright_layout::layout;
use tilewright_layout::typed::{Contiguous, Int, LogicalDivide};

layout! { type Broken = LogicalDivide<Contiguous<10>, Int<4>>; }

fn main() {}
