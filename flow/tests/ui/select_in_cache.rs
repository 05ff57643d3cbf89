//! Table 2.2, topK is absent.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn cache(block: &Block<'_>, field: Field, weights: FlowParameter) {
    let score = block.keys().sum(D0).sum(D1);
    block.select(score);
}

fn main() {}
