//! Smaller elements where none are contiguous.
use tilewright_layout::layout;
use tilewright_layout::typed::{Downcast, Int, Strided};

layout! { type Broken = Downcast<Strided<Int<8>, Int<2>>, 2>; }

fn main() {}
