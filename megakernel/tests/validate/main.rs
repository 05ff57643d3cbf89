//! The validator against an exact oracle, rule by rule, and on malformed input.

mod clashes;
mod draw;
mod fuzz;
mod generate;
mod layered;
mod mutate;
mod ops;
mod oracle;
mod races;
mod rng;
mod tables;
mod twins;
