//! Table 2.1, ops of one value: a parameter is not an operand.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn indexer<'t>(step: Step<'t>, field: Field, weights: FlowParameter, state: State) -> Done<'t> {
    step.parameter(weights).exp();
    let score = step.positions();
    step.select(score)
}

fn main() {}
