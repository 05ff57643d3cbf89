//! Table 2.2, `softmax` is absent: the cache pass sees one block.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn cache(block: &Block<'_>, field: Field, weights: FlowParameter) {
    block.keys().abs().softmax(1.0);
}

fn main() {}
