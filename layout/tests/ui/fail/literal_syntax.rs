//! A layout whose text has no strides.
use tilewright_layout::layout;

layout! { type Broken = "(2,3)"; }

fn main() {}
