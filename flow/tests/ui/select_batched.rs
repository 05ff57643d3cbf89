//! Table 2.3, topK takes `Ragged`.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn indexer<'t>(step: Step<'t>, field: Field, weights: FlowParameter, state: State) -> Done<'t> {
    let score = step.query();
    step.select(score)
}

fn main() {}
