//! Table 2.2, a parameter is no value of a block.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn cache(block: &Block<'_>, field: Field, weights: FlowParameter) {
    block.store(field, block.parameter(weights));
}

fn main() {}
