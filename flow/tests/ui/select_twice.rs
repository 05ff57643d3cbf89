//! An indexer ends in one selection.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn indexer<'t>(step: Step<'t>, field: Field, weights: FlowParameter, state: State) -> Done<'t> {
    let score = step.positions();
    step.select(score);
    step.select(score)
}

fn main() {}
