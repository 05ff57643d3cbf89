//! Table 2.3, an axis is `D0` or `D1`, no number.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn indexer<'t>(step: Step<'t>, field: Field, weights: FlowParameter, state: State) -> Done<'t> {
    step.query().mean(0);
    let score = step.positions();
    step.select(score)
}

fn main() {}
