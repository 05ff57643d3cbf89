//! A format that a signature does not accept.
use tilewright_layout::tensor::{AnyFormat, Paged, Ragged};

fn softmax(_scores: Ragged) -> &'static str {
    Ragged::FORMAT.name()
}

fn main() {
    softmax(Paged);
}
