//! Table 2.1, MaskSlice: a parameter is not an operand.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn indexer<'t>(step: Step<'t>, field: Field, weights: FlowParameter, state: State) -> Done<'t> {
    step.parameter(weights).mask_slice(D0, 0, 1, 1.0, 0.0);
    let score = step.positions();
    step.select(score)
}

fn main() {}
