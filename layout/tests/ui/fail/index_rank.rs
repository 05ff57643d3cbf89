//! An index of another rank than the layout.
use tilewright_layout::typed::{Lowered, RowMajor};

fn main() {
    let _ = Lowered::<RowMajor<4, 8>>::at([1, 2, 3]);
}
