//! Table 2.3, GeMM: a parameter is the second operand.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn indexer<'t>(step: Step<'t>, field: Field, weights: FlowParameter, state: State) -> Done<'t> {
    step.parameter(weights).gemm(step.query());
    let score = step.positions();
    step.select(score)
}

fn main() {}
