//! Table 2.3, a step writes states; fields belong to the cache pass.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn indexer<'t>(step: Step<'t>, field: Field, weights: FlowParameter, state: State) -> Done<'t> {
    step.store(field, step.positions());
    let score = step.positions();
    step.select(score)
}

fn main() {}
