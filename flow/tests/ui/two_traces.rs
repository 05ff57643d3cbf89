//! Values of two traces do not mix.
#![allow(unused)]
use tilewright_flow::prelude::*;

fn mix<'a, 'b>(one: &Step<'a>, other: &Step<'b>) {
    let _ = one.query() * other.query();
}

fn main() {}
