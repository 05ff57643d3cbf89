//! The validator against an exact oracle, rule by rule, and on malformed input.

mod cells;
mod clashes;
mod devices;
mod draw;
mod fuzz;
mod generate;
mod json;
mod layered;
mod levels;
mod limits;
mod mutate;
mod ops;
mod oracle;
mod races;
mod rng;
mod rules;
mod tables;
mod twins;
