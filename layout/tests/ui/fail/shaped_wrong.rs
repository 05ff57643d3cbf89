//! A stated shape that is not the layout's.
use tilewright_layout::layout;
use tilewright_layout::typed::{BlockedProduct, RowMajor, Shaped};

layout! { type Broken = Shaped<8, 20, BlockedProduct<RowMajor<2, 5>, RowMajor<3, 4>>>; }

fn main() {}
