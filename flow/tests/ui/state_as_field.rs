//! A state is not read where it lies: it is loaded.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn indexer<'t>(step: Step<'t>, field: Field, weights: FlowParameter, state: State) -> Done<'t> {
    step.field(state);
    let score = step.positions();
    step.select(score)
}

fn main() {}
