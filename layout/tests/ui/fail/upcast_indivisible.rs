//! Elements eight times as large where rows are twelve apart.
use tilewright_layout::layout;
use tilewright_layout::typed::{Int, Strided, Upcast};

layout! { type Broken = Upcast<Strided<(Int<8>, Int<8>), (Int<12>, Int<1>)>, 8>; }

fn main() {}
