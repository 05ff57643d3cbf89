//! Table 2.1, ops of two values: a parameter is no second operand.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn indexer<'t>(step: Step<'t>, field: Field, weights: FlowParameter, state: State) -> Done<'t> {
    let _ = step.query() * step.parameter(weights);
    let score = step.positions();
    step.select(score)
}

fn main() {}
