//! Table 2.2, BATCHED is absent.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn cache(block: &Block<'_>, field: Field, weights: Weights) {
    block.query();
}

fn main() {}
