//! Table 2.2, Load and Save are absent.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn cache(block: &Block<'_>, state: State) {
    block.load(state);
}

fn main() {}
