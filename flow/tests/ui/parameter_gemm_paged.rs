//! Table 2.3, GeMM: in a step a parameter multiplies `Batched` alone.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn indexer<'t>(step: Step<'t>, field: Field, weights: FlowParameter, state: State) -> Done<'t> {
    step.field(field).gemm(step.parameter(weights));
    let score = step.positions();
    step.select(score)
}

fn main() {}
