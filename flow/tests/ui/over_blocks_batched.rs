//! Table 2.3, `over_blocks` takes `Ragged`: a row for all blocks has none to run over.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn indexer<'t>(step: Step<'t>, field: Field, weights: FlowParameter, state: State) -> Done<'t> {
    step.query().over_blocks(Reduce::Mean);
    let score = step.positions();
    step.select(score)
}

fn main() {}
