//! The graph's tests: what the check refuses, and what the interpreter computes.

mod check;
mod checkpoint;
mod configurations;
mod families;
mod latents;
mod laws;
mod rows;
