//! A state is loaded before it is saved.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn indexer<'t>(step: Step<'t>, field: Field, weights: FlowParameter, state: State) -> Done<'t> {
    state.save(step.positions());
    let score = step.positions();
    step.select(score)
}

fn main() {}
