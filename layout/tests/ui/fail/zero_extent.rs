//! A matrix without rows.
use tilewright_layout::layout;
use tilewright_layout::typed::RowMajor;

layout! { type Broken = RowMajor<0, 8>; }

fn main() {}
