//! The validator against an exact oracle, rule by rule, and on malformed input.

mod clashes;
mod draw;
mod fuzz;
mod generate;
mod mutate;
mod oracle;
mod rng;
