//! Generic numbers that make no layout: an extent of 0 where the numbers are given.
use tilewright_layout::layout;

layout! {
    type Rows<const M: usize, const N: usize> = (M, N / 8):(N, 1);
    type Broken = Rows<4, 4>;
}

fn main() {}
