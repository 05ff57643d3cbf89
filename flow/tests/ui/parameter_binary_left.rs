//! Table 2.1, ops of two values: a parameter is no first operand.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn indexer<'t>(step: Step<'t>, field: Field, weights: FlowParameter, state: State) -> Done<'t> {
    let _ = step.parameter(weights) * step.query();
    let score = step.positions();
    step.select(score)
}

fn main() {}
