//! A tile of no elements.
use tilewright_layout::layout;
use tilewright_layout::typed::{Contiguous, Int, LogicalDivideCeil};

layout! { type Broken = LogicalDivideCeil<Contiguous<24>, Int<0>>; }

fn main() {}
