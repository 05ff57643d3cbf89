//! A state is loaded once.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn indexer<'t>(step: Step<'t>, field: Field, weights: FlowParameter, state: State) -> Done<'t> {
    let (_, first) = step.load(state);
    let (_, second) = step.load(state);
    first.save(step.positions());
    second.save(step.positions());
    let score = step.positions();
    step.select(score)
}

fn main() {}
