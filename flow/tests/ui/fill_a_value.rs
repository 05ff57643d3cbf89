//! Table 2.3, Fill takes a field.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn cache(block: &Block<'_>, field: Field, weights: FlowParameter) {
    block.fill(block.keys(), 0.0);
}

fn main() {}
