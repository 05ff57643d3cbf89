//! Values of the two passes do not mix.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn mix<'t>(step: &Step<'t>, block: &Block<'t>) {
    let _ = step.query() * block.keys();
}

fn main() {}
