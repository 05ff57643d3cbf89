//! Table 2.3, `softmax` takes `Ragged`: a row for all blocks has none to run over.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn indexer<'t>(step: Step<'t>, field: Field, weights: FlowParameter, state: State) -> Done<'t> {
    step.query().softmax(1.0);
    let score = step.positions();
    step.select(score)
}

fn main() {}
