//! The graph's tests: what the check refuses, and what the interpreter computes.

mod check;
mod checkpoint;
mod configurations;
mod families;
mod laws;
mod rows;
