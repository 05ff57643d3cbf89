//! Table 2.3, Load takes `Paged`.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn indexer<'t>(step: Step<'t>, field: Field, weights: FlowParameter, state: State) -> Done<'t> {
    step.query().load();
    let score = step.positions();
    step.select(score)
}

fn main() {}
