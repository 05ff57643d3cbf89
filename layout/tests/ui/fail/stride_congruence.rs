//! A stride that is not nested like its shape.
use tilewright_layout::layout;
use tilewright_layout::typed::{Int, Strided};

layout! { type Broken = Strided<(Int<2>, (Int<3>, Int<4>)), (Int<12>, Int<1>)>; }

fn main() {}
