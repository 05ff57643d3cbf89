//! Table 2.2, GeMM: a parameter is the second operand.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn cache(block: &Block<'_>, field: Field, weights: FlowParameter) {
    block.parameter(weights).gemm(block.keys());
}

fn main() {}
