//! A composition whose stride does not fit a mode.
use tilewright_layout::layout;
use tilewright_layout::typed::{Composed, Int, Strided};

layout! { type Broken = Composed<Strided<(Int<10>, Int<8>), (Int<8>, Int<1>)>, Strided<Int<6>, Int<4>>>; }

fn main() {}
