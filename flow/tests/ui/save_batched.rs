//! Table 2.3, Save takes `Ragged`.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn indexer<'t>(step: Step<'t>, field: Field, weights: FlowParameter, state: State) -> Done<'t> {
    let (_, slot) = step.load(state);
    slot.save(step.query());
    let score = step.positions();
    step.select(score)
}

fn main() {}
