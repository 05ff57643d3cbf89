//! An index at its bound.
use tilewright_layout::typed::Idx;

fn main() {
    let _ = Idx::<4>::constant::<4>();
}
