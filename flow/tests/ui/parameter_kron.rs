//! Table 2.1, Kron: a parameter is not an operand.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn indexer<'t>(step: Step<'t>, field: Field, weights: FlowParameter, state: State) -> Done<'t> {
    step.query().kron(&[D0], step.parameter(weights));
    let score = step.positions();
    step.select(score)
}

fn main() {}
