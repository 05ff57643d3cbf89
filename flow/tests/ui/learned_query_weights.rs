//! Table 2.1, LearnedQuery: its weights are parameters.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn indexer<'t>(step: Step<'t>, field: Field, weights: FlowParameter, state: State) -> Done<'t> {
    step.query().learned_query(step.query(), step.query(), 1.0);
    let score = step.positions();
    step.select(score)
}

fn main() {}
