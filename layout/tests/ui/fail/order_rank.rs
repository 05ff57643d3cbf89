//! An order with too few numbers.
use tilewright_layout::layout;
use tilewright_layout::typed::{Int, Ordered};

layout! { type Broken = Ordered<(Int<2>, Int<3>, Int<4>), (Int<0>, Int<1>)>; }

fn main() {}
