//! Table 2.3, `softmax` takes `Ragged`: what lies in the pool is loaded first.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn indexer<'t>(step: Step<'t>, field: Field, weights: FlowParameter, state: State) -> Done<'t> {
    step.field(field).softmax(1.0);
    let score = step.positions();
    step.select(score)
}

fn main() {}
