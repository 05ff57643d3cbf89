//! A transposition of three modes, which once dropped the last.
use tilewright_layout::layout;
use tilewright_layout::typed::{CompactRight, Int, Transposed};

layout! { type Broken = Transposed<CompactRight<(Int<2>, Int<3>, Int<4>)>>; }

fn main() {}
