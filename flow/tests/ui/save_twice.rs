//! A state is saved once.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn indexer<'t>(step: Step<'t>, field: Field, weights: FlowParameter, state: State) -> Done<'t> {
    let (before, slot) = step.load(state);
    slot.save(before);
    slot.save(before);
    let score = step.positions();
    step.select(score)
}

fn main() {}
