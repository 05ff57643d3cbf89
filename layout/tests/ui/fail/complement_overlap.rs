//! The complement of a layout that is not injective.
use tilewright_layout::layout;
use tilewright_layout::typed::{Complement, Int, Strided};

layout! { type Broken = Complement<Strided<(Int<4>, Int<4>), (Int<1>, Int<2>)>, 64>; }

fn main() {}
