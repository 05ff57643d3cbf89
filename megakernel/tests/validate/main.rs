//! The validator against an exact oracle, rule by rule, and on malformed input.

mod cells;
mod devices;
mod fuzz;
mod json;
mod layered;
mod levels;
mod limits;
mod mutate;
mod ops;
mod races;
mod rules;
mod sharded;
mod tables;
mod twins;
