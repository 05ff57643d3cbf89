//! Table 2.2, `normalize` is absent: the cache pass sees one block.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn cache(block: &Block<'_>, field: Field, weights: FlowParameter) {
    block.keys().abs().normalize(Norm::L2);
}

fn main() {}
