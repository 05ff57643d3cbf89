//! Table 2.3, reduction over blocks: a parameter has no blocks.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn indexer<'t>(step: Step<'t>, field: Field, weights: FlowParameter, state: State) -> Done<'t> {
    step.parameter(weights).over_blocks(Reduce::Mean);
    let score = step.positions();
    step.select(score)
}

fn main() {}
