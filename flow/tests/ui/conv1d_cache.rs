//! Table 2.2, `conv1d` is absent: the cache pass sees one block.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn cache(block: &Block<'_>, field: Field, weights: FlowParameter) {
    block.keys().abs().conv1d(Taps::shared(&[1.0]).unwrap());
}

fn main() {}
