//! Table 2.2, BATCHED is absent.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn cache(block: &Block<'_>, field: Field, weights: FlowParameter) {
    block.query();
}

fn main() {}
