//! The complement of a layout that runs backwards.
use tilewright_layout::layout;
use tilewright_layout::typed::{Complement, Int, Strided};

layout! { type Broken = Complement<Strided<Int<4>, Int<-1>>, 64>; }

fn main() {}
