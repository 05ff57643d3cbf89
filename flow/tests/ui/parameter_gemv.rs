//! Table 2.1, GeMV: a parameter is not an operand.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn indexer<'t>(step: Step<'t>, field: Field, weights: FlowParameter, state: State) -> Done<'t> {
    step.query().gemv(step.parameter(weights));
    let score = step.positions();
    step.select(score)
}

fn main() {}
