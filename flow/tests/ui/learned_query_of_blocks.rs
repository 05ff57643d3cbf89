//! Table 2.1, LearnedQuery: it is made from the query.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn indexer<'t>(step: Step<'t>, field: Field, weights: FlowParameter, state: State) -> Done<'t> {
    let w = step.parameter(weights);
    step.field(field).learned_query(w, w, 1.0);
    let score = step.positions();
    step.select(score)
}

fn main() {}
