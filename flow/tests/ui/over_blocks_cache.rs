//! Table 2.2, `over_blocks` is absent: the cache pass sees one block.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn cache(block: &Block<'_>, field: Field, weights: FlowParameter) {
    block.keys().abs().over_blocks(Reduce::Mean);
}

fn main() {}
